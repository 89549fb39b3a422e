//! The payloads of chunks: the conversion of rows to bytes and back. A payload is written column by column (all ticks,
//! then all addresses, …), as differences between neighbouring rows, because columns of differences compress best.

use super::operators::check_lines;
use super::varint::{Bytes, Malformed, put, put_delta, put_str};
use memtrack_model::event::{DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};
use memtrack_model::snapshot::{
    ColumnSink, ColumnSource, ColumnValue, EventTable, LiveBlock, Mark, Marks, OperatorLines, Scope,
    ScopeKind, ScopeSum, ScopeSums, Segment, Thread,
};
use memtrack_model::text::cut;

/// The maximum length of a name in bytes; longer names are cut at a character when they are written or read. Reports
/// join the names of nested scopes, so a few very long names in a file would make reports huge.
const MAX_NAME_BYTES: usize = 1 << 10;

fn truncate_name(name: &str) -> &str {
    cut(name, MAX_NAME_BYTES)
}

/// Appends a column of differences.
fn put_column<T>(out: &mut Vec<u8>, rows: &[T], value: impl Fn(&T) -> u64) {
    put_values(out, rows.iter().map(value));
}

/// Appends numbers as differences.
fn put_values(out: &mut Vec<u8>, values: impl Iterator<Item = u64>) {
    let mut previous = 0;
    for value in values {
        put_delta(out, previous, value);
        previous = value;
    }
}

/// Reads a column of differences and converts each value.
fn read_column<T>(
    bytes: &mut Bytes<'_>,
    count: usize,
    convert: impl Fn(u64) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut rows = Vec::with_capacity(count);
    let mut previous = 0;
    for _ in 0..count {
        previous = bytes.read_delta(previous)?;
        rows.push(convert(previous)?);
    }
    Ok(rows)
}

fn to_u32(value: u64) -> Result<u32, Malformed> {
    u32::try_from(value).map_err(|_| Malformed)
}

fn to_device_id(value: u64) -> Result<DeviceId, Malformed> {
    u16::try_from(value).map(DeviceId).map_err(|_| Malformed)
}

fn to_flags(value: u64) -> Result<EventFlags, Malformed> {
    u8::try_from(value).map(EventFlags).map_err(|_| Malformed)
}

/// Appends the payload of EVNT.
pub(super) fn put_events(out: &mut Vec<u8>, events: &[Event]) {
    struct Sink<'a>(&'a mut Vec<u8>);
    impl ColumnSink for Sink<'_> {
        fn column(&mut self, values: impl Iterator<Item = u64>) {
            put_values(self.0, values);
        }
    }
    put(out, events.len() as u64);
    EventTable::write_columns(events, &mut Sink(out));
}

/// Reads EVNT and appends its rows to `events`, which is unchanged when the payload is malformed.
pub(super) fn read_events(payload: &[u8], events: &mut EventTable) -> Result<(), Malformed> {
    struct Source<'a> {
        bytes: Bytes<'a>,
        count: usize,
    }
    impl ColumnSource for Source<'_> {
        type Error = Malformed;

        fn column<T: ColumnValue>(&mut self) -> Result<Vec<T>, Malformed> {
            read_column(&mut self.bytes, self.count, |value| T::from_bits(value).ok_or(Malformed))
        }
    }
    let mut bytes = Bytes(payload);
    let count = bytes.read_count(EventTable::COLUMNS)?;
    let mut source = Source { bytes, count };
    let read = EventTable::read_columns(&mut source)?;
    source.bytes.expect_end()?;
    events.append(read);
    Ok(())
}

/// Appends a row of STAK; the caller writes the first id and the number of rows before the rows.
pub(super) fn put_stack(out: &mut Vec<u8>, addresses: &[u64]) {
    put(out, addresses.len() as u64);
    put_column(out, addresses, |&address| address);
}

/// Reads STAK: calls `each` with the id and addresses of each stack.
pub(super) fn read_stacks(
    payload: &[u8],
    mut each: impl FnMut(u64, Vec<u64>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut bytes = Bytes(payload);
    let first = u64::from(bytes.read_u32()?);
    let count = bytes.read_count(1)?;
    for row in 0..count as u64 {
        let frames = bytes.read_count(1)?;
        each(first + row, read_column(&mut bytes, frames, Ok)?)?;
    }
    bytes.expect_end()
}

/// Appends a row of SCOP; the caller writes the number of rows.
pub(super) fn put_scope(out: &mut Vec<u8>, id: ScopeId, scope: &Scope) {
    put(out, u64::from(id.0));
    put(out, u64::from(scope.parent.0));
    out.push(scope.kind as u8);
    put_str(out, truncate_name(&scope.name));
}

/// Reads SCOP: returns the scopes with their ids.
pub(super) fn read_scopes(payload: &[u8]) -> Result<Vec<(u32, Scope)>, Malformed> {
    let mut bytes = Bytes(payload);
    let count = bytes.read_count(4)?;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let id = bytes.read_u32()?;
        let parent = ScopeId(bytes.read_u32()?);
        let kind = *ScopeKind::ALL.get(usize::from(bytes.read_byte()?)).ok_or(Malformed)?;
        rows.push((id, Scope { parent, kind, name: truncate_name(&bytes.read_text()?).to_owned() }));
    }
    bytes.expect_end()?;
    Ok(rows)
}

/// Appends a row of THRD; the caller writes the number of rows.
pub(super) fn put_thread(out: &mut Vec<u8>, id: ThreadId, thread: &Thread) {
    put(out, u64::from(id.0));
    put(out, thread.os_id);
    put_str(out, truncate_name(&thread.name));
}

/// Reads THRD: returns the threads with their ids.
pub(super) fn read_threads(payload: &[u8]) -> Result<Vec<(u32, Thread)>, Malformed> {
    let mut bytes = Bytes(payload);
    let count = bytes.read_count(3)?;
    let mut rows = Vec::with_capacity(count);
    for _ in 0..count {
        let id = bytes.read_u32()?;
        let os_id = bytes.read_number()?;
        rows.push((id, Thread { name: truncate_name(&bytes.read_text()?).to_owned(), os_id }));
    }
    bytes.expect_end()?;
    Ok(rows)
}

/// Appends the payload of LIVE. `last` means that no further LIVE chunk follows.
pub(super) fn put_live(out: &mut Vec<u8>, blocks: &[LiveBlock], last: bool) {
    out.push(u8::from(last));
    put(out, blocks.len() as u64);
    put_column(out, blocks, |b| u64::from(b.device.0));
    put_column(out, blocks, |b| b.address);
    put_column(out, blocks, |b| b.size_bytes);
    put_column(out, blocks, |b| b.stream.0);
    put_column(out, blocks, |b| u64::from(b.stack.0));
    put_column(out, blocks, |b| u64::from(b.scope.0));
    put_column(out, blocks, |b| b.ticks);
    put_column(out, blocks, |b| u64::from(b.flags.0));
    put_column(out, blocks, |b| u64::from(b.pending_free));
}

/// Reads LIVE: returns its rows, and whether it is the last LIVE chunk.
pub(super) fn read_live(payload: &[u8]) -> Result<(Vec<LiveBlock>, bool), Malformed> {
    let mut bytes = Bytes(payload);
    let last = bytes.read_byte()? != 0;
    let count = bytes.read_count(9)?;
    let devices = read_column(&mut bytes, count, to_device_id)?;
    let addresses = read_column(&mut bytes, count, Ok)?;
    let sizes = read_column(&mut bytes, count, Ok)?;
    let streams = read_column(&mut bytes, count, Ok)?;
    let stacks = read_column(&mut bytes, count, to_u32)?;
    let scopes = read_column(&mut bytes, count, to_u32)?;
    let ticks = read_column(&mut bytes, count, Ok)?;
    let block_flags = read_column(&mut bytes, count, to_flags)?;
    let pending = read_column(&mut bytes, count, |v| Ok(v != 0))?;
    bytes.expect_end()?;
    let row = |i: usize| LiveBlock {
        device: devices[i],
        address: addresses[i],
        size_bytes: sizes[i],
        stream: StreamId(streams[i]),
        stack: StackId(stacks[i]),
        scope: ScopeId(scopes[i]),
        ticks: ticks[i],
        flags: block_flags[i],
        pending_free: pending[i],
    };
    Ok(((0..count).map(row).collect(), last))
}

/// Appends the payload of SUMS: some rows of `sums`. `last` means that they are the last rows.
pub(super) fn put_scope_sums(out: &mut Vec<u8>, sums: &ScopeSums, rows: &[ScopeSum], last: bool) {
    out.push(u8::from(last));
    put(out, sums.ticks);
    put(out, sums.folded);
    put(out, rows.len() as u64);
    put_column(out, rows, |row| u64::from(row.device.0));
    put_column(out, rows, |row| u64::from(row.scope.0));
    put_column(out, rows, |row| row.allocated_bytes);
    put_column(out, rows, |row| row.allocations);
}

/// Reads SUMS: returns its rows, and whether they are the last rows.
pub(super) fn read_scope_sums(payload: &[u8]) -> Result<(ScopeSums, bool), Malformed> {
    let mut bytes = Bytes(payload);
    let last = bytes.read_byte()? != 0;
    let (ticks, folded) = (bytes.read_number()?, bytes.read_number()?);
    let count = bytes.read_count(4)?;
    let devices = read_column(&mut bytes, count, to_device_id)?;
    let scopes = read_column(&mut bytes, count, to_u32)?;
    let allocated = read_column(&mut bytes, count, Ok)?;
    let allocations = read_column(&mut bytes, count, Ok)?;
    bytes.expect_end()?;
    let row = |i: usize| ScopeSum {
        device: devices[i],
        scope: ScopeId(scopes[i]),
        allocated_bytes: allocated[i],
        allocations: allocations[i],
    };
    Ok((ScopeSums { ticks, folded, rows: (0..count).map(row).collect() }, last))
}

/// Appends the payload of SEGM.
pub(super) fn put_segments(out: &mut Vec<u8>, segments: &[Segment]) {
    put(out, segments.len() as u64);
    put_column(out, segments, |s| u64::from(s.device.0));
    put_column(out, segments, |s| s.address);
    put_column(out, segments, |s| s.size_bytes);
    put_column(out, segments, |s| s.stream.0);
    put_column(out, segments, |s| u64::from(s.stack.0));
    put_column(out, segments, |s| s.ticks);
}

/// Reads SEGM: returns the segments.
pub(super) fn read_segments(payload: &[u8]) -> Result<Vec<Segment>, Malformed> {
    let mut bytes = Bytes(payload);
    let count = bytes.read_count(6)?;
    let devices = read_column(&mut bytes, count, to_device_id)?;
    let addresses = read_column(&mut bytes, count, Ok)?;
    let sizes = read_column(&mut bytes, count, Ok)?;
    let streams = read_column(&mut bytes, count, Ok)?;
    let stacks = read_column(&mut bytes, count, to_u32)?;
    let ticks = read_column(&mut bytes, count, Ok)?;
    bytes.expect_end()?;
    let row = |i: usize| Segment {
        device: devices[i],
        address: addresses[i],
        size_bytes: sizes[i],
        stream: StreamId(streams[i]),
        stack: StackId(stacks[i]),
        ticks: ticks[i],
        is_expandable: false,
    };
    Ok((0..count).map(row).collect())
}

/// Appends the payload of EXPD: the segments that are parts of expandable segments.
pub(super) fn put_expandable(out: &mut Vec<u8>, segments: &[&Segment]) {
    put(out, segments.len() as u64);
    put_column(out, segments, |s| u64::from(s.device.0));
    put_column(out, segments, |s| s.address);
}

/// Reads EXPD: returns the devices and addresses of the segments.
pub(super) fn read_expandable(payload: &[u8]) -> Result<Vec<(DeviceId, u64)>, Malformed> {
    let mut bytes = Bytes(payload);
    let count = bytes.read_count(2)?;
    let devices = read_column(&mut bytes, count, to_device_id)?;
    let addresses = read_column(&mut bytes, count, Ok)?;
    bytes.expect_end()?;
    Ok(devices.into_iter().zip(addresses).collect())
}

/// Appends the payload of OPER: some lines, and the number of lines omitted so far.
pub(super) fn put_operators(out: &mut Vec<u8>, left_out: u64, base_ticks: u64, lines: &[u8]) {
    put(out, left_out);
    put(out, base_ticks);
    out.extend_from_slice(lines);
}

/// Reads OPER: returns the number of lines omitted so far, and the lines.
pub(super) fn read_operators(payload: &[u8]) -> Result<(u64, OperatorLines), Malformed> {
    let mut bytes = Bytes(payload);
    let (left_out, base_ticks) = (bytes.read_number()?, bytes.read_number()?);
    check_lines(bytes.0)?;
    Ok((left_out, OperatorLines { base_ticks, lines: bytes.0.to_vec() }))
}

/// Appends the payload of MARK: some of the marks, that is, points in time that the program marked.
pub(super) fn put_marks(out: &mut Vec<u8>, marks: &Marks, rows: &[Mark], left_out: u64) {
    put(out, left_out);
    put(out, marks.names.len() as u64);
    marks.names.iter().for_each(|name| put_str(out, truncate_name(name)));
    put(out, rows.len() as u64);
    put_column(out, rows, |mark| mark.ticks);
    put_column(out, rows, |mark| u64::from(mark.thread.0));
    put_column(out, rows, |mark| u64::from(mark.name));
}

/// Reads MARK: returns the marks and the number of marks that were omitted.
pub(super) fn read_marks(payload: &[u8]) -> Result<Marks, Malformed> {
    let mut bytes = Bytes(payload);
    let left_out = bytes.read_number()?;
    let name_count = bytes.read_count(1)?;
    let names: Vec<String> = (0..name_count)
        .map(|_| Ok(truncate_name(&bytes.read_text()?).to_owned()))
        .collect::<Result<_, Malformed>>()?;
    let count = bytes.read_count(3)?;
    let ticks = read_column(&mut bytes, count, Ok)?;
    let threads = read_column(&mut bytes, count, |value| to_u32(value).map(ThreadId))?;
    let name_ids = read_column(&mut bytes, count, |value| {
        to_u32(value).ok().filter(|&name| (name as usize) < name_count).ok_or(Malformed)
    })?;
    bytes.expect_end()?;
    let rows = ticks.into_iter().zip(threads).zip(name_ids);
    let rows = rows.map(|((ticks, thread), name)| Mark { ticks, thread, name }).collect();
    Ok(Marks { names, rows, left_out })
}
