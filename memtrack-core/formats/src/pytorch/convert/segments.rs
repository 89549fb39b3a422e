//! Converts segments and live blocks to PyTorch's segments with blocks. The memory between the live blocks of
//! a segment becomes an inactive block.

use super::{Converter, MAX_WRITTEN_INTEGER, clear_sampled_flag, keep_bits, set_default_pool};
use memtrack_model::event::{DeviceId, StackId};
use memtrack_model::snapshot::pytorch::{BlockInfo, BlockState, Key, PoolKind, Records, Shape};
use memtrack_model::snapshot::{LiveBlock, Piece, Segment, StringId, WeighedBlock, lay_out};
use std::borrow::Borrow;

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

impl Borrow<LiveBlock> for FileBlock {
    fn borrow(&self) -> &LiveBlock {
        &self.block
    }
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
        let mut devices: Vec<DeviceId> = from.device_ids();
        devices.sort_by_key(|&device| ordinals.of(device));
        let (mut blocks, mut segments) = (&blocks[..], &segments[..]);
        for device in devices {
            let inside = blocks.iter().take_while(|FileBlock { block, .. }| block.device == device).count();
            let (of_device, others) = blocks.split_at(inside);
            let inside = segments.iter().take_while(|segment| segment.device == device).count();
            let (segments_of_device, other_segments) = segments.split_at(inside);
            (blocks, segments) = (others, other_segments);
            lay_out(segments_of_device, of_device, |segment, pieces| {
                self.push_segment(segment, pieces, of_device);
            });
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
        let size_bytes = weighed.bytes.min(MAX_WRITTEN_INTEGER);
        FileBlock { block: LiveBlock { size_bytes, flags, ..block }, metadata }
    }

    fn push_segment(&mut self, segment: &Segment, pieces: &[Piece], blocks: &[FileBlock]) {
        let first = self.pytorch.blocks.len() as u64;
        let mut sums = Sums::default();
        for &Piece { address, size_bytes: size, block } in pieces {
            let Some(FileBlock { block, metadata }) = block.map(|block| &blocks[block]) else {
                let (state, stack) = (BlockState::Inactive, StackId::NONE);
                let free = BlockInfo { address, size, requested_size: 0, state, stack };
                self.push_block(&free, StringId::EMPTY);
                continue;
            };
            let state = match block.pending_free {
                true => BlockState::ActivePendingFree,
                false => BlockState::ActiveAllocated,
            };
            let requested_size = block.size_bytes;
            self.push_block(
                &BlockInfo { address, size, requested_size, state, stack: block.stack },
                *metadata,
            );
            sums.active += size;
            sums.allocated += if block.pending_free { 0 } else { size };
            sums.requested = sums.requested.saturating_add(block.size_bytes);
        }
        let count = self.pytorch.blocks.len() as u64 - first;
        let stack = self.names.convert_stack(segment.stack);
        let kind =
            if segment.size_bytes <= MAX_SMALL_SEGMENT_BYTES { PoolKind::Small } else { PoolKind::Large };
        let kind = self.names.strings.intern(kind.name().as_bytes());
        let device = self.file_device(segment.device);
        // PyTorch gives the host the device number −1.
        let number = if device.is_host() { -1_i64 as u64 } else { device.0.into() };
        let segments = &mut self.pytorch.segments;
        let row = segments.push((!stack.is_none()).into());
        for (key, number) in [
            (Key::Device, number),
            (Key::Address, segment.address),
            (Key::TotalSize, segment.size_bytes),
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
        self.to.segments.push(Segment { device, stack, ticks: 0, ..*segment });
        for FileBlock { block, metadata } in pieces.iter().filter_map(|piece| Some(&blocks[piece.block?])) {
            let stack = self.names.convert_stack(block.stack);
            self.samples.add_block(self.to.blocks.len(), *metadata);
            self.to.blocks.push(LiveBlock { device, stack, ..*block });
        }
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
