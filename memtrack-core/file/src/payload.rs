//! The payloads of chunks: the conversion of rows to bytes and back. A payload is written column by column (all ticks,
//! then all addresses, …), as differences between neighbouring rows, because columns of differences compress best.

use super::operators::check_lines;
use super::varint::{Bytes, Malformed, put, put_delta, put_str};
use memtrack_model::event::{
    Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, TaskId, ThreadId,
};
use memtrack_model::snapshot::{
    EventTable, LiveBlock, Mark, Marks, OperatorLines, Scope, ScopeKind, ScopeSum, ScopeSums, Segment, Task,
    TaskPlace, TaskTable, Thread,
};
use memtrack_model::text::cut;

/// The maximum length of a name in bytes; longer names are cut at a character when they are written or read. Reports
/// join the names of nested scopes, so a few very long names in a file would make reports huge.
const MAX_NAME_BYTES: usize = 1 << 10;

fn truncate_name(name: &str) -> &str {
    cut(name, MAX_NAME_BYTES)
}

/// A value in a column, which is written as a number.
trait ColumnValue: Copy {
    fn bits(self) -> u64;

    /// Returns the value with this number; `None` if no value has it.
    fn from_bits(bits: u64) -> Option<Self>;
}

macro_rules! column_values {
    ($($value:ty: $to:expr, $from:expr;)*) => {
        $(impl ColumnValue for $value {
            fn bits(self) -> u64 {
                let to: fn(Self) -> u64 = $to;
                to(self)
            }

            fn from_bits(bits: u64) -> Option<Self> {
                let from: fn(u64) -> Option<Self> = $from;
                from(bits)
            }
        })*
    };
}

column_values! {
    u64: |number| number, Some;
    u32: u64::from, |bits| u32::try_from(bits).ok();
    bool: u64::from, |bits| Some(bits != 0);
    StreamId: |id| id.0, |bits| Some(Self(bits));
    TaskId: |id| id.0, |bits| Some(Self(bits));
    StackId: |id| id.0.into(), |bits| u32::try_from(bits).ok().map(Self);
    ScopeId: |id| id.0.into(), |bits| u32::try_from(bits).ok().map(Self);
    ThreadId: |id| id.0.into(), |bits| u32::try_from(bits).ok().map(Self);
    DeviceId: |id| id.0.into(), |bits| u16::try_from(bits).ok().map(Self);
    EventFlags: |flags| flags.0.into(), |bits| u8::try_from(bits).ok().map(Self);
    Action: |action| action as u64, |bits| u8::try_from(bits).ok().and_then(Self::from_number);
}

/// Appends a column of differences.
fn put_column<T: ColumnValue>(out: &mut Vec<u8>, values: impl Iterator<Item = T>) {
    let mut previous = 0;
    for value in values.map(T::bits) {
        put_delta(out, previous, value);
        previous = value;
    }
}

/// Reads a column of differences.
fn read_column<T: ColumnValue>(bytes: &mut Bytes<'_>, count: usize) -> Result<Vec<T>, Malformed> {
    let mut values = Vec::with_capacity(count);
    let mut previous = 0;
    for _ in 0..count {
        previous = bytes.read_delta(previous)?;
        values.push(T::from_bits(previous).ok_or(Malformed)?);
    }
    Ok(values)
}

/// Appends the number of rows, and then these fields of all rows, one column after another.
macro_rules! put_rows {
    ($out:expr, $rows:expr, { $($field:ident),* }) => {
        put($out, $rows.len() as u64);
        $(put_column($out, $rows.iter().map(|row| row.$field));)*
    };
}

/// Reads what [`put_rows`] has written, up to the end of the payload, and returns the rows. The remaining fields get the
/// given values.
macro_rules! read_rows {
    ($bytes:expr, $row:ident { $($field:ident),* $(; $other:ident: $value:expr)? }) => {{
        let count = $bytes.read_count([$(stringify!($field)),*].len())?;
        $(let $field = read_column(&mut $bytes, count)?;)*
        $bytes.expect_end()?;
        let row = |i: usize| $row { $($field: $field[i],)* $($other: $value)? };
        (0..count).map(row).collect::<Vec<$row>>()
    }};
}

/// Appends the payload of EVNT.
pub(super) fn put_events(out: &mut Vec<u8>, events: &[Event]) {
    put_rows!(out, events, {
        ticks, address, size_bytes, stream, stack, scope, thread, device, action, flags
    });
}

/// Reads EVNT and appends its rows to `events`, which is unchanged when the payload is malformed.
pub(super) fn read_events(payload: &[u8], events: &mut EventTable) -> Result<(), Malformed> {
    let mut bytes = Bytes(payload);
    let count = bytes.read_count(10)?;
    // In the order of the file, which is that of `put_events`.
    let read = EventTable::of_recorded_columns(
        read_column(&mut bytes, count)?,
        read_column(&mut bytes, count)?,
        read_column(&mut bytes, count)?,
        read_column(&mut bytes, count)?,
        read_column(&mut bytes, count)?,
        read_column(&mut bytes, count)?,
        read_column(&mut bytes, count)?,
        read_column(&mut bytes, count)?,
        read_column(&mut bytes, count)?,
        read_column(&mut bytes, count)?,
    );
    bytes.expect_end()?;
    events.append(read);
    Ok(())
}

/// Appends a row of STAK; the caller writes the first id and the number of rows before the rows.
pub(super) fn put_stack(out: &mut Vec<u8>, addresses: &[u64]) {
    put(out, addresses.len() as u64);
    put_column(out, addresses.iter().copied());
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
        each(first + row, read_column(&mut bytes, frames)?)?;
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
    // As in events, host blocks have a task in place of a stream.
    put(out, blocks.len() as u64);
    put_column(out, blocks.iter().map(|block| block.device));
    put_column(out, blocks.iter().map(|block| block.address));
    put_column(out, blocks.iter().map(|block| block.size_bytes));
    put_column(out, blocks.iter().map(|block| block.recorded_allocation().stream));
    put_column(out, blocks.iter().map(|block| block.stack));
    put_column(out, blocks.iter().map(|block| block.scope));
    put_column(out, blocks.iter().map(|block| block.ticks));
    put_column(out, blocks.iter().map(|block| block.flags));
    put_column(out, blocks.iter().map(|block| block.pending_free));
}

/// Reads LIVE: returns its rows, and whether it is the last LIVE chunk.
pub(super) fn read_live(payload: &[u8]) -> Result<(Vec<LiveBlock>, bool), Malformed> {
    let mut bytes = Bytes(payload);
    let last = bytes.read_byte()? != 0;
    let mut blocks = read_rows!(
        bytes,
        LiveBlock { device, address, size_bytes, stream, stack, scope, ticks, flags, pending_free; task: TaskId::NONE }
    );
    for block in blocks.iter_mut().filter(|block| block.device.is_host()) {
        block.task = TaskId(std::mem::take(&mut block.stream).0);
    }
    Ok((blocks, last))
}

/// Appends the payload of SUMS: some rows of `sums`. `last` means that they are the last rows.
pub(super) fn put_scope_sums(out: &mut Vec<u8>, sums: &ScopeSums, rows: &[ScopeSum], last: bool) {
    out.push(u8::from(last));
    put(out, sums.ticks);
    put(out, sums.folded);
    put_rows!(out, rows, { device, scope, allocated_bytes, allocations });
}

/// Reads SUMS: returns its rows, and whether they are the last rows.
pub(super) fn read_scope_sums(payload: &[u8]) -> Result<(ScopeSums, bool), Malformed> {
    let mut bytes = Bytes(payload);
    let last = bytes.read_byte()? != 0;
    let (ticks, folded) = (bytes.read_number()?, bytes.read_number()?);
    let rows = read_rows!(bytes, ScopeSum { device, scope, allocated_bytes, allocations });
    Ok((ScopeSums { ticks, folded, rows }, last))
}

/// Appends the payload of SEGM.
pub(super) fn put_segments(out: &mut Vec<u8>, segments: &[Segment]) {
    put_rows!(out, segments, { device, address, size_bytes, stream, stack, ticks });
}

/// Reads SEGM: returns the segments.
pub(super) fn read_segments(payload: &[u8]) -> Result<Vec<Segment>, Malformed> {
    let mut bytes = Bytes(payload);
    Ok(read_rows!(bytes, Segment { device, address, size_bytes, stream, stack, ticks; is_expandable: false }))
}

/// Appends the payload of EXPD: the segments that are parts of expandable segments.
pub(super) fn put_expandable(out: &mut Vec<u8>, segments: &[&Segment]) {
    put_rows!(out, segments, { device, address });
}

/// Reads EXPD: returns the devices and addresses of the segments.
pub(super) fn read_expandable(payload: &[u8]) -> Result<Vec<(DeviceId, u64)>, Malformed> {
    let mut bytes = Bytes(payload);
    let count = bytes.read_count(2)?;
    let devices: Vec<DeviceId> = read_column(&mut bytes, count)?;
    let addresses: Vec<u64> = read_column(&mut bytes, count)?;
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

/// Appends the payload of TASK: all places, and some of the rows. `last` means that no further rows follow.
pub(super) fn put_tasks(out: &mut Vec<u8>, tasks: &TaskTable, rows: &[Task], last: bool) {
    out.push(u8::from(last));
    put(out, tasks.without_row);
    put(out, tasks.places.len() as u64);
    for place in &tasks.places {
        put_str(out, truncate_name(&place.name));
        put_str(out, truncate_name(&place.file));
        [u64::from(place.line), place.begun, place.ended].into_iter().for_each(|number| put(out, number));
    }
    put_rows!(out, rows, { id, parent, scope, begun_ticks, ended_ticks });
}

/// Reads TASK: returns its places and rows, and whether they are the last rows.
pub(super) fn read_tasks(payload: &[u8]) -> Result<(TaskTable, bool), Malformed> {
    let mut bytes = Bytes(payload);
    let last = bytes.read_byte()? != 0;
    let without_row = bytes.read_number()?;
    let count = bytes.read_count(5)?;
    let mut places = Vec::with_capacity(count);
    for _ in 0..count {
        let [name, file] =
            [bytes.read_text()?, bytes.read_text()?].map(|text| truncate_name(&text).to_owned());
        let line = bytes.read_u32()?;
        places.push(TaskPlace { name, file, line, begun: bytes.read_number()?, ended: bytes.read_number()? });
    }
    let rows = read_rows!(bytes, Task { id, parent, scope, begun_ticks, ended_ticks });
    Ok((TaskTable { places, rows, without_row }, last))
}

/// Appends the payload of MARK: some of the marks, that is, points in time that the program marked.
pub(super) fn put_marks(out: &mut Vec<u8>, marks: &Marks, rows: &[Mark], left_out: u64) {
    put(out, left_out);
    put(out, marks.names.len() as u64);
    marks.names.iter().for_each(|name| put_str(out, truncate_name(name)));
    put_rows!(out, rows, { ticks, thread, name });
}

/// Reads MARK: returns the marks and the number of marks that were omitted.
pub(super) fn read_marks(payload: &[u8]) -> Result<Marks, Malformed> {
    let mut bytes = Bytes(payload);
    let left_out = bytes.read_number()?;
    let name_count = bytes.read_count(1)?;
    let names: Vec<String> = (0..name_count)
        .map(|_| Ok(truncate_name(&bytes.read_text()?).to_owned()))
        .collect::<Result<_, Malformed>>()?;
    let rows = read_rows!(bytes, Mark { ticks, thread, name });
    if rows.iter().any(|mark| mark.name as usize >= name_count) {
        return Err(Malformed);
    }
    Ok(Marks { names, rows, left_out })
}
