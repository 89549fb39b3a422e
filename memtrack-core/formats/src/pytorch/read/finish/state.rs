//! Computes the tables that every snapshot has (segments, live blocks, and counts per device) from PyTorch's tables.

use memtrack_model::event::{DeviceId, EventFlags, ScopeId, StreamId};
use memtrack_model::snapshot::pytorch::{Key, PyTorch};
use memtrack_model::snapshot::{DeviceStatistics, LiveBlock, Segment, Snapshot};
use std::collections::BTreeMap;

/// Fills the segments, the live blocks and the counts per device in a snapshot that is otherwise complete.
pub(crate) fn fill(snapshot: &mut Snapshot) {
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
            let state = blocks.text(block, Key::State);
            let pending_free = match snapshot.strings.bytes(state) {
                b"active_allocated" => false,
                b"active_pending_free" | b"active_awaiting_free" => true,
                _ => continue,
            };
            let tenant = pytorch.tenant(&snapshot.strings, block);
            let stack = tenant.map_or(blocks.stack(block, Key::Frames), |tenant| tenant.stack);
            let requested = pytorch.requested_bytes(&snapshot.strings, block);
            let size_bytes = requested.unwrap_or(blocks.number(block, Key::Size));
            snapshot.blocks.push(LiveBlock {
                device,
                address: blocks.number(block, Key::Address),
                size_bytes,
                stream,
                stack,
                scope: ScopeId::NONE,
                ticks: 0,
                flags: EventFlags(0),
                pending_free,
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
