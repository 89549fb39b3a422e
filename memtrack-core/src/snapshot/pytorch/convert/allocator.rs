//! What the caching allocator knows, as the snapshot that PyTorch takes of its own: the same keys in the same order.

use super::segments::{block_shapes, segment_shapes};
use super::{Convert, event_shapes};
use crate::allocator::{AllocatorSettings, BlockState, MempoolId, SegmentInfo, TraceEntry};
use crate::event::{DeviceId, Event, EventFlags, ScopeId, ThreadId};
use crate::snapshot::pytorch::{Key, Odd, Part, Records};
use crate::snapshot::{LiveBlock, Segment, Snapshot, StringId, Value};
use crate::stack::symbols::Symbolizer;

/// An allocator at one moment.
pub(crate) struct AllocatorState {
    /// The segments of all devices.
    pub(crate) segments: Vec<SegmentInfo>,
    /// The events of each device.
    pub(crate) traces: Vec<Vec<TraceEntry>>,
    /// The settings in force.
    pub(crate) settings: AllocatorSettings,
    /// The stacks, scopes and binaries that events and blocks name.
    pub(crate) names: Snapshot,
}

impl AllocatorState {
    /// The snapshot, with the names of `symbols`.
    pub(crate) fn into_snapshot(self, symbols: &mut Symbolizer) -> Snapshot {
        let mut convert = Convert::new(&self.names, symbols);
        convert.to.meta.max_entries = u64::MAX;
        convert.to.meta.complete = true;
        convert.pytorch.events.shapes = event_shapes();
        for (device, trace) in self.traces.iter().enumerate() {
            let start = convert.to.events.len();
            for entry in trace {
                convert.entry(DeviceId(device as u16), entry);
            }
            convert.pytorch.traces.push(start..convert.to.events.len());
        }
        convert.pytorch.segments.shapes = segment_shapes();
        convert.pytorch.blocks.shapes = block_shapes();
        for segment in &self.segments {
            convert.allocator_segment(segment);
        }
        let settings = convert.allocator_settings(&self.settings);
        let mut snapshot = convert.finish();
        let root = snapshot.pytorch.iter_mut().flat_map(|pytorch| &mut pytorch.root);
        for (_, part) in root.filter(|(key, _)| super::super::known(key) == Some(Key::AllocatorSettings)) {
            *part = Part::Value(settings.clone());
        }
        snapshot
    }
}

impl Convert<'_> {
    fn entry(&mut self, device: DeviceId, entry: &TraceEntry) {
        self.event(&Event {
            // `event` takes ticks for what its recording's clock says, which is nanoseconds here.
            ticks: entry.time_ns,
            address: entry.address,
            size_bytes: entry.size,
            stream: entry.stream,
            stack: entry.stack,
            scope: entry.scope,
            thread: ThreadId::NONE,
            device,
            action: entry.action,
            flags: EventFlags::default(),
        });
        let row = self.to.events.len() - 1;
        set_pool(&mut self.pytorch.events, row, Key::PoolId, entry.pool, EVENT_POOL);
    }

    fn allocator_segment(&mut self, segment: &SegmentInfo) {
        let first = self.pytorch.blocks.len() as u64;
        for block in &segment.blocks {
            let state = block.state.name();
            self.block(block.address, block.size, block.requested_size, state, block.stack, StringId::EMPTY);
            if block.state != BlockState::Inactive {
                let stack = self.names.stack(block.stack);
                self.to.blocks.push(LiveBlock {
                    device: segment.device,
                    address: block.address,
                    size_bytes: block.requested_size,
                    stream: segment.stream,
                    stack,
                    scope: ScopeId::NONE,
                    ticks: 0,
                    flags: EventFlags::default(),
                    pending_free: block.state == BlockState::ActivePendingFree,
                });
            }
        }
        let stack = self.names.stack(segment.stack);
        let kind = self.names.strings.intern(segment.segment_type().as_bytes());
        let segments = &mut self.pytorch.segments;
        let row = segments.push((!stack.is_none()).into());
        for (key, number) in [
            (Key::Device, segment.device.0.into()),
            (Key::Address, segment.address),
            (Key::TotalSize, segment.total_size),
            (Key::AllocatedSize, segment.allocated_size),
            (Key::ActiveSize, segment.active_size),
            (Key::RequestedSize, segment.requested_size),
            (Key::Stream, segment.stream.0),
            (Key::SegmentType, kind.0.into()),
            (Key::IsExpandable, segment.is_expandable.into()),
            (Key::Frames, stack.0.into()),
            (Key::Blocks, first << 32 | segment.blocks.len() as u64),
        ] {
            segments.set(row, key, number);
        }
        set_pool(segments, row, Key::SegmentPoolId, segment.pool, SEGMENT_POOL);
        self.to.segments.push(Segment {
            device: segment.device,
            address: segment.address,
            size_bytes: segment.total_size,
            stream: segment.stream,
            stack,
            ticks: 0,
            is_expandable: segment.is_expandable,
        });
    }

    fn allocator_settings(&mut self, settings: &AllocatorSettings) -> Value {
        let mut text = |text: &str| Value::Str(self.names.strings.intern(text.as_bytes()));
        let divisions = settings.roundup_power2_divisions.divisions().iter().enumerate();
        let divisions = divisions
            .map(|(interval, &of)| (text(&(1u64 << interval).to_string()), Value::integer(of.into())))
            .collect();
        let entries = [
            ("PYTORCH_CUDA_ALLOC_CONF", text(&settings.text)),
            ("max_split_size", Value::Int(settings.max_split_size)),
            ("garbage_collection_threshold", Value::Float(settings.garbage_collection_threshold)),
            ("expandable_segments", Value::Bool(settings.expandable_segments)),
            ("pinned_num_register_threads", Value::integer(settings.pinned_num_register_threads.into())),
            ("release_lock_on_cudamalloc", Value::Bool(settings.release_lock_on_cudamalloc)),
            ("pinned_use_cuda_host_register", Value::Bool(settings.pinned_use_cuda_host_register)),
            ("graph_capture_record_stream_reuse", Value::Bool(settings.graph_capture_record_stream_reuse)),
            ("max_round_threshold", Value::Int(settings.max_round_threshold)),
            ("max_cached_size", Value::Int(settings.max_cached_size)),
            ("roundup_power2_divisions", Value::Dict(divisions)),
        ];
        Value::Dict(entries.into_iter().map(|(key, value)| (text(key), value)).collect())
    }
}

/// The place of the pool among an event's keys, and among a segment's.
const EVENT_POOL: u16 = 7;
const SEGMENT_POOL: u16 = 8;

fn set_pool(records: &mut Records, row: usize, key: Key, pool: MempoolId, place: u16) {
    if let Some(number) = records.pool_number(pool) {
        return records.set(row, key, number);
    }
    // More pools than the column tells apart.
    let pair = [Value::integer(pool.0.into()), Value::integer(pool.1.into())];
    records.odd.push(Odd { row: row as u32, place, value: Value::Tuple(pair.into_iter().collect()) });
    records.set(row, key, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_lie_where_their_keys_do() {
        for shape in segment_shapes() {
            assert_eq!(
                super::super::super::known(&shape.keys[usize::from(SEGMENT_POOL)]),
                Some(Key::SegmentPoolId)
            );
        }
        assert_eq!(super::super::EVENT[usize::from(EVENT_POOL)], Key::PoolId);
    }
}
