//! Builds a snapshot in PyTorch's form from an allocator's tables. The keys and their order are the same as in
//! PyTorch's own snapshots.

use super::segments::{block_shapes, segment_shapes};
use super::{Converter, event_shapes};
use crate::pytorch::StringInterner;
use memtrack_model::NameFrames;
use memtrack_model::event::{Event, EventFlags, ScopeId};
use memtrack_model::snapshot::pytorch::{
    BlockState, ExactValue, Key, MempoolId, Part, PytorchSnapshot, Records, SegmentInfo, known,
};
use memtrack_model::snapshot::{LiveBlock, Segment, Snapshot, StringId, Value};

/// A builder of a snapshot in PyTorch's form.
pub struct Builder<'a> {
    convert: Converter<'a>,
    settings: Option<Value>,
}

impl<'a> Builder<'a> {
    /// Creates a builder whose events and blocks refer to the stacks and scopes in `tables`. Frames are named by
    /// `names`.
    pub fn new(tables: &'a Snapshot, names: &'a mut dyn NameFrames) -> Self {
        let mut convert = Converter::new(tables, names);
        convert.to.meta.max_entries = u64::MAX;
        convert.to.meta.complete = true;
        convert.pytorch.events.shapes = event_shapes();
        convert.pytorch.segments.shapes = segment_shapes();
        convert.pytorch.blocks.shapes = block_shapes();
        Self { convert, settings: None }
    }

    /// Returns the snapshot's string table.
    pub fn strings(&mut self) -> &mut StringInterner {
        &mut self.convert.names.strings
    }

    /// Appends the trace of the next device, given as events with their pools. The events' ticks are those of the clock
    /// in the tables that were passed to [`Self::new`].
    pub fn add_trace(&mut self, events: impl IntoIterator<Item = (Event, MempoolId)>) {
        let start = self.convert.to.events.len();
        for (event, pool) in events {
            self.convert.push_event(&event, None);
            let row = self.convert.to.events.len() - 1;
            set_pool(&mut self.convert.pytorch.events, row, Key::PoolId, pool, EVENT_POOL_POSITION);
        }
        let end = self.convert.to.events.len();
        self.convert.pytorch.traces.push(start..end);
    }

    /// Appends a segment and its blocks.
    pub fn add_segment(&mut self, segment: &SegmentInfo) {
        let convert = &mut self.convert;
        let first = convert.pytorch.blocks.len() as u64;
        for block in &segment.blocks {
            convert.push_block(block, StringId::EMPTY);
            if block.state != BlockState::Inactive {
                let stack = convert.names.convert_stack(block.stack);
                convert.to.blocks.push(LiveBlock {
                    device: segment.device,
                    address: block.address,
                    size_bytes: block.requested_size,
                    stream: segment.stream,
                    task: Default::default(),
                    stack,
                    scope: ScopeId::NONE,
                    ticks: 0,
                    flags: EventFlags::default(),
                    pending_free: block.state == BlockState::ActivePendingFree,
                });
            }
        }
        let count = convert.pytorch.blocks.len() as u64 - first;
        let stack = convert.names.convert_stack(segment.stack);
        let kind = convert.names.strings.intern(segment.segment_type().as_bytes());
        let segments = &mut convert.pytorch.segments;
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
            (Key::Blocks, first << 32 | count),
        ] {
            segments.set(row, key, number);
        }
        set_pool(segments, row, Key::SegmentPoolId, segment.pool, SEGMENT_POOL_POSITION);
        convert.to.segments.push(Segment {
            device: segment.device,
            address: segment.address,
            size_bytes: segment.total_size,
            stream: segment.stream,
            stack,
            ticks: 0,
            is_expandable: segment.is_expandable,
        });
    }

    /// Sets the value of `allocator_settings`.
    pub fn set_settings(&mut self, settings: Value) {
        self.settings = Some(settings);
    }

    /// Returns the snapshot.
    pub fn finish(self) -> PytorchSnapshot {
        let mut snapshot = self.convert.into_snapshot();
        if let Some(settings) = self.settings {
            let root = snapshot.pytorch.iter_mut().flat_map(|pytorch| &mut pytorch.root);
            for (_, part) in root.filter(|(key, _)| known(key) == Some(Key::AllocatorSettings)) {
                *part = Part::Value(settings.clone());
            }
        }
        PytorchSnapshot::try_from(snapshot).expect("it has that form")
    }
}

/// The position of the pool among an event's keys.
const EVENT_POOL_POSITION: u16 = 7;
/// The position of the pool among a segment's keys.
const SEGMENT_POOL_POSITION: u16 = 8;

fn set_pool(records: &mut Records, row: usize, key: Key, pool: MempoolId, place: u16) {
    if let Some(number) = records.pool_number(pool) {
        return records.set(row, key, number);
    }
    // The column cannot number any more pools, so store this pool's id as an exact value.
    let pair = [Value::integer(pool.0.into()), Value::integer(pool.1.into())];
    records.exact.push(ExactValue {
        row: row as u32,
        place,
        value: Value::Tuple(pair.into_iter().collect()),
    });
    records.set(row, key, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_stored_at_positions_of_their_keys() {
        for shape in segment_shapes() {
            assert_eq!(known(&shape.keys[usize::from(SEGMENT_POOL_POSITION)]), Some(Key::SegmentPoolId));
        }
        assert_eq!(super::super::EVENT_KEYS[usize::from(EVENT_POOL_POSITION)], Key::PoolId);
    }
}
