//! Makes the snapshot from the finished tables, including those that every snapshot has: segments, live blocks, and counts
//! per device.

use crate::pytorch::read::tables::TableBuilder;
use memtrack_model::event::{DeviceId, EventFlags, ScopeId, StreamId};
use memtrack_model::snapshot::pytorch::{BlockState, Key, PyTorch, Records};
use memtrack_model::snapshot::{
    Clock, DeviceStatistics, EventTable, FrameTable, LiveBlock, Meta, Segment, Snapshot,
};
use std::collections::BTreeMap;

/// Makes the snapshot from the tables. `order` has the events of all traces.
pub(crate) fn into_snapshot(mut builder: TableBuilder, mut pytorch: PyTorch, order: Order) -> Snapshot {
    let [frames, events, segments, blocks, annotations] =
        std::mem::take(&mut builder.tables).map(|table| table.records);
    let mut table = std::mem::take(&mut builder.events);
    // The rows are usually in the order of the traces already.
    if order.is_order_of_table(table.len()) {
        pytorch.events = events;
    } else {
        let rows = order.into_rows();
        pytorch.events = events.gather(&rows);
        table.pick(&rows);
    }
    for (device, rows) in pytorch.traces.iter().enumerate() {
        table.device[rows.clone()].fill(DeviceId(device as u16));
    }
    table.device[pytorch.host_trace.clone()].fill(DeviceId::HOST);
    for rows in pytorch.traces.iter().chain([&pytorch.host_trace]) {
        for row in rows.clone() {
            if !pytorch.events.has(row, Key::TimeUs) {
                table.ticks[row] = (row - rows.start) as u64;
            }
        }
    }
    pytorch.segments = segments;
    pytorch.blocks = blocks;
    pytorch.annotations = annotations;
    let mut snapshot = Snapshot {
        meta: Meta { max_entries: u64::MAX, complete: true, ..Meta::default() },
        clock: build_clock(&table, &pytorch.events),
        events: table,
        strings: std::mem::take(&mut builder.heap.strings.table),
        frames: FrameTable { records: frames, ..FrameTable::default() },
        named: std::mem::take(&mut builder.stacks.table),
        pytorch: Some(Box::new(pytorch)),
        ..Snapshot::default()
    };
    fill_state(&mut snapshot);
    crate::pytorch::restore_settings(&mut snapshot);
    snapshot
}

/// Returns a clock that ticks in microseconds and starts at the earliest event with a time.
fn build_clock(events: &EventTable, records: &Records) -> Clock {
    let timed = (0..events.len()).filter(|&row| records.has(row, Key::TimeUs));
    Clock::of_microseconds(timed.map(|row| events.ticks[row]).min().unwrap_or(0))
}

/// Fills the segments, the live blocks and the counts per device in a snapshot that is otherwise complete.
fn fill_state(snapshot: &mut Snapshot) {
    let Some(pytorch) = snapshot.pytorch.take() else { return };
    let mut devices: BTreeMap<DeviceId, DeviceStatistics> = BTreeMap::new();
    // The file does not contain allocation counts.
    let statistics = |device| DeviceStatistics { counted: false, ..DeviceStatistics::of(device) };
    for (ordinal, rows) in pytorch.traces.iter().enumerate() {
        let device = DeviceId(ordinal as u16);
        devices.entry(device).or_insert_with(|| statistics(device)).recorded = rows.len() as u64;
    }
    if !pytorch.host_trace.is_empty() {
        devices.entry(DeviceId::HOST).or_insert_with(|| statistics(DeviceId::HOST)).recorded =
            pytorch.host_trace.len() as u64;
    }
    for row in 0..pytorch.segments.len() {
        let device = device(&pytorch, row);
        let segments = &pytorch.segments;
        let size_bytes = segments.number(row, Key::TotalSize);
        let reserved = &mut devices.entry(device).or_insert_with(|| statistics(device)).reserved_bytes;
        *reserved = reserved.saturating_add(size_bytes);
        let stream = StreamId(segments.number(row, Key::Stream));
        snapshot.segments.push(Segment {
            device,
            address: segments.number(row, Key::Address),
            size_bytes,
            stream,
            stack: segments.stack(row, Key::Frames),
            ticks: 0,
            is_expandable: segments.number(row, Key::IsExpandable) != 0,
        });
        for block in segments.rows(row, Key::Blocks) {
            let blocks = &pytorch.blocks;
            let state = BlockState::named(snapshot.strings.bytes(blocks.text(block, Key::State)));
            if state == BlockState::Inactive {
                continue;
            }
            let tenant = pytorch.tenant(&snapshot.strings, block);
            let stack = tenant.map_or(blocks.stack(block, Key::Frames), |tenant| tenant.stack);
            let requested = pytorch.requested_bytes(&snapshot.strings, block);
            let size_bytes = requested.unwrap_or(blocks.number(block, Key::Size));
            snapshot.blocks.push(LiveBlock {
                device,
                address: blocks.number(block, Key::Address),
                size_bytes,
                stream,
                task: Default::default(),
                stack,
                scope: ScopeId::NONE,
                ticks: 0,
                flags: EventFlags(0),
                pending_free: state == BlockState::ActivePendingFree,
            });
        }
    }
    snapshot.devices = devices.into_values().collect();
    snapshot.pytorch = Some(pytorch);
}

/// Returns the device of a segment. A segment without a device counts as being on device 0.
fn device(pytorch: &PyTorch, segment: usize) -> DeviceId {
    if segment >= pytorch.device_segments {
        return DeviceId::HOST;
    }
    match pytorch.segments.number(segment, Key::Device) as i64 {
        -1 => DeviceId::HOST,
        ordinal => u16::try_from(ordinal).map_or(DeviceId(0), DeviceId),
    }
}

/// The event rows in the table, in the order of the traces.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The number of rows at the start that are in place. Usually, this is all of them.
    in_place: u32,
    /// All rows in order. The list is empty until a row arrives out of place.
    rows: Vec<u32>,
}

impl Order {
    /// Appends a row.
    pub(crate) fn push(&mut self, row: u32) {
        if self.rows.is_empty() {
            if row == self.in_place && row != u32::MAX {
                self.in_place += 1;
                return;
            }
            self.rows.extend(0..self.in_place);
        }
        self.rows.push(row);
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        if self.rows.is_empty() { self.in_place as usize } else { self.rows.len() }
    }

    /// Returns whether the traces contain all `length` rows of the table in the table's order.
    pub(crate) fn is_order_of_table(&self, length: usize) -> bool {
        self.rows.is_empty() && self.in_place as usize == length
    }

    /// Returns the rows.
    pub(crate) fn into_rows(self) -> Vec<u32> {
        if self.rows.is_empty() { (0..self.in_place).collect() } else { self.rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_stored_only_when_they_are_out_of_place() {
        let mut order = Order::default();
        assert!(order.is_order_of_table(0));
        (0..3).for_each(|row| order.push(row));
        assert!(order.is_order_of_table(3) && !order.is_order_of_table(4) && order.rows.is_empty());
        order.push(1);
        order.push(4);
        assert!(!order.is_order_of_table(5));
        assert_eq!((order.len(), order.into_rows()), (5, vec![0, 1, 2, 1, 4]));
        let mut late = Order::default();
        late.push(2);
        assert_eq!((late.len(), late.into_rows()), (1, vec![2]));
    }
}
