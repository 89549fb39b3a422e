//! Converts segments and live blocks to PyTorch's segments with blocks. The memory between the live blocks of
//! a segment becomes an inactive block, and a live block outside all segments becomes a segment with a single
//! block.

use super::{Converter, MAX_WRITTEN_INTEGER, clear_sampled_flag, keep_bits, set_default_pool};
use memtrack_model::event::{ScopeId, StackId, StreamId};
use memtrack_model::snapshot::pytorch::{BlockInfo, BlockState, Key, PoolKind, Records, Shape};
use memtrack_model::snapshot::{LiveBlock, Segment, StringId, WeighedBlock};

pub(super) const SEGMENT_KEYS: [Key; 12] = [
    Key::Device,
    Key::Address,
    Key::TotalSize,
    Key::AllocatedSize,
    Key::ActiveSize,
    Key::RequestedSize,
    Key::Stream,
    Key::SegmentType,
    Key::SegmentPoolId,
    Key::IsExpandable,
    Key::Frames,
    Key::Blocks,
];

/// Returns the shapes of segments, first without and then with a stack, which PyTorch adds last.
pub(super) fn segment_shapes() -> Vec<Shape> {
    let mut with_stack = SEGMENT_KEYS;
    with_stack.swap(10, 11);
    [SEGMENT_KEYS, with_stack].map(|keys| Shape::of(&keys)).into()
}

const BLOCK_KEYS: [Key; 6] =
    [Key::Address, Key::Size, Key::RequestedSize, Key::State, Key::Frames, Key::UserMetadata];

/// Returns the shapes of blocks, first without and then with metadata.
pub(super) fn block_shapes() -> Vec<Shape> {
    [&BLOCK_KEYS[..5], &BLOCK_KEYS].map(Shape::of).into()
}

/// The maximum size of the segments that PyTorch calls small.
const MAX_SMALL_SEGMENT_BYTES: u64 = 2 << 20;

/// A live block as it appears in the file.
struct FileBlock {
    block: LiveBlock,
    /// The block's scope, plus the text for sampled blocks. Usually empty.
    metadata: StringId,
}

/// Sums over the blocks of a segment, in bytes.
#[derive(Default)]
struct Sums {
    allocated: u64,
    active: u64,
    requested: u64,
}

impl Converter<'_> {
    pub(super) fn convert_segments(&mut self) {
        self.pytorch.segments.shapes = segment_shapes();
        self.pytorch.blocks.shapes = block_shapes();
        let (from, ordinals) = (self.from, self.ordinals);
        let mut blocks: Vec<FileBlock> = from.blocks.iter().map(|block| self.convert_block(block)).collect();
        blocks.sort_by_key(|FileBlock { block, .. }| (ordinals.of(block.device), block.address));
        let capped = |segment: &Segment| Segment {
            size_bytes: segment.size_bytes.min(MAX_WRITTEN_INTEGER),
            ..*segment
        };
        let mut segments: Vec<Segment> = from.segments.iter().map(capped).collect();
        segments.sort_by_key(|segment| (ordinals.of(segment.device), segment.address));
        let mut segments = segments.into_iter().peekable();
        let mut next = 0;
        while segments.peek().is_some() || next < blocks.len() {
            let place = |device, address| (ordinals.of(device), address);
            let block = blocks.get(next).map(|FileBlock { block, .. }| place(block.device, block.address));
            let segment = segments.peek().map(|segment| place(segment.device, segment.address));
            // Proceed in address order. A block outside all segments gets a segment of its own.
            if block.is_some_and(|block| segment.is_none_or(|segment| block < segment)) {
                let alone = &blocks[next..=next];
                next += 1;
                self.push_segment(&segment_of_block(&alone[0].block), alone);
            } else if let Some(segment) = segments.next() {
                let within = |FileBlock { block, .. }: &&FileBlock| {
                    let inside = block.address.checked_sub(segment.address);
                    block.device == segment.device
                        && inside.is_some_and(|offset| offset < segment.size_bytes.max(1))
                };
                let count = blocks[next..].iter().take_while(within).count();
                let inside = &blocks[next..next + count];
                next += count;
                self.push_segment(&segment, inside);
            }
        }
    }

    /// Returns a block with the total size of the blocks that it represents, at its address in the file.
    fn convert_block(&mut self, block: &LiveBlock) -> FileBlock {
        let block = self.places.get(&block.device).map_or(*block, |places| places.to_live_block(block));
        let weighed = WeighedBlock::of(block.size_bytes, block.flags, &self.from.meta);
        let mut metadata = self.convert_scope(block.scope);
        if weighed.estimated {
            metadata = self.samples.intern_text(metadata, weighed, &mut self.names.strings);
        }
        let flags = clear_sampled_flag(block.flags);
        FileBlock { block: LiveBlock { size_bytes: weighed.bytes, flags, ..block }, metadata }
    }

    fn push_segment(&mut self, segment: &Segment, blocks: &[FileBlock]) {
        let first = self.pytorch.blocks.len() as u64;
        let mut sums = Sums::default();
        let mut free_from = segment.address;
        let end = segment.address.saturating_add(segment.size_bytes);
        let total = end - segment.address;
        for (place, FileBlock { block, metadata }) in blocks.iter().enumerate() {
            if block.address > free_from {
                self.push_free_block(free_from, block.address);
            }
            // A neighbouring block may be missing because it was not sampled, so its memory counts as free.
            let limit = blocks.get(place + 1).map_or(end, |next| next.block.address.min(end));
            let start = block.address.max(free_from);
            let size = block.size_bytes.min(limit.saturating_sub(start));
            let file_block = BlockInfo {
                address: start,
                size,
                requested_size: block.size_bytes.min(MAX_WRITTEN_INTEGER),
                state: match block.pending_free {
                    true => BlockState::ActivePendingFree,
                    false => BlockState::ActiveAllocated,
                },
                stack: block.stack,
            };
            self.push_block(&file_block, *metadata);
            sums.active += size;
            sums.allocated += if block.pending_free { 0 } else { size };
            sums.requested = sums.requested.saturating_add(block.size_bytes);
            free_from = start + size;
        }
        if end > free_from || blocks.is_empty() {
            self.push_free_block(free_from, end);
        }
        let count = self.pytorch.blocks.len() as u64 - first;
        let stack = self.names.convert_stack(segment.stack);
        let kind = if total <= MAX_SMALL_SEGMENT_BYTES { PoolKind::Small } else { PoolKind::Large };
        let kind = self.names.strings.intern(kind.name().as_bytes());
        let device = self.file_device(segment.device);
        // PyTorch gives the host the device number −1.
        let number = if device.is_host() { -1_i64 as u64 } else { device.0.into() };
        let segments = &mut self.pytorch.segments;
        let row = segments.push((!stack.is_none()).into());
        for (key, number) in [
            (Key::Device, number),
            (Key::Address, segment.address),
            (Key::TotalSize, total),
            (Key::AllocatedSize, sums.allocated),
            (Key::ActiveSize, sums.active),
            (Key::RequestedSize, sums.requested.min(MAX_WRITTEN_INTEGER)),
            (Key::Stream, segment.stream.0),
            (Key::SegmentType, kind.0.into()),
            (Key::IsExpandable, segment.is_expandable.into()),
            (Key::Frames, stack.0.into()),
            (Key::Blocks, first << 32 | count),
        ] {
            segments.set(row, key, number);
        }
        keep_bits(segments, row, Key::Address, segment.address);
        keep_bits(segments, row, Key::Stream, segment.stream.0);
        set_default_pool(segments, row, Key::SegmentPoolId);
        self.to.segments.push(Segment { device, size_bytes: total, stack, ticks: 0, ..*segment });
        for FileBlock { block, .. } in blocks {
            let stack = self.names.convert_stack(block.stack);
            let size_bytes = block.size_bytes.min(MAX_WRITTEN_INTEGER);
            let scope = ScopeId::NONE;
            self.to.blocks.push(LiveBlock { device, size_bytes, stack, scope, ..*block });
        }
    }

    /// Appends a free block that ends at `end`.
    fn push_free_block(&mut self, address: u64, end: u64) {
        let (size, state, stack) = (end - address, BlockState::Inactive, StackId::NONE);
        self.push_block(&BlockInfo { address, size, requested_size: 0, state, stack }, StringId::EMPTY);
    }

    /// Appends a block and its `user_metadata`.
    pub(super) fn push_block(&mut self, block: &BlockInfo, metadata: StringId) {
        let stack = self.names.convert_stack(block.stack);
        let state = self.names.strings.intern(block.state.name().as_bytes());
        let blocks: &mut Records = &mut self.pytorch.blocks;
        let row = blocks.push((metadata != StringId::EMPTY).into());
        for (key, number) in [
            (Key::Address, block.address),
            (Key::Size, block.size),
            (Key::RequestedSize, block.requested_size),
            (Key::State, state.0.into()),
            (Key::Frames, stack.0.into()),
        ] {
            blocks.set(row, key, number);
        }
        if metadata != StringId::EMPTY {
            blocks.set(row, Key::UserMetadata, metadata.0.into());
        }
        keep_bits(blocks, row, Key::Address, block.address);
    }
}

/// Returns a segment that consists of a single block.
fn segment_of_block(block: &LiveBlock) -> Segment {
    Segment {
        device: block.device,
        address: block.address,
        size_bytes: block.size_bytes.min(MAX_WRITTEN_INTEGER),
        stream: StreamId(block.stream.0),
        stack: block.stack,
        ticks: block.ticks,
        is_expandable: false,
    }
}
