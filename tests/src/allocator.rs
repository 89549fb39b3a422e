//! Invariants of the caching allocator, which hold at all times.

use memtrack_core::allocator::{
    Backend, BlockState, CachingAllocator, DeviceMemory, DeviceStats, PoolKind, SegmentInfo, StatArray,
};
use memtrack_core::event::DeviceId;

/// Checks that the blocks of each segment are contiguous, and that the statistics agree with the segments.
///
/// # Panics
/// When a check fails.
pub fn check_books<M: DeviceMemory>(allocator: &CachingAllocator<M>) {
    let segments = allocator.memory_snapshot();
    for pair in segments.windows(2).filter(|pair| pair[0].device == pair[1].device) {
        assert!(pair[0].address + pair[0].total_size <= pair[1].address, "segments overlap: {pair:?}");
    }
    for segment in &segments {
        let mut next = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, next, "a gap or an overlap in {segment:?}");
            assert!(block.size > 0 && block.size % 512 == 0, "{segment:?}");
            next += block.size;
        }
        assert_eq!(next, segment.address + segment.total_size, "{segment:?}");
    }
    for ordinal in 0..allocator.device_count() {
        let device = DeviceId(ordinal as u16);
        let of_device: Vec<&SegmentInfo> =
            segments.iter().filter(|segment| segment.device == device).collect();
        let stats = allocator.statistics(device).unwrap();
        check_device(&of_device, &stats);
        let info = allocator.mem_get_info(device).unwrap();
        assert_eq!(info.total_bytes - info.free_bytes, stats.reserved_bytes.all.current as u64);
    }
}

fn check_device(segments: &[&SegmentInfo], stats: &DeviceStats) {
    type Current = fn(&StatArray) -> i64;
    let kinds: [(Option<PoolKind>, Current); 3] = [
        (None, |array| array.all.current),
        (Some(PoolKind::Small), |array| array.small_pool.current),
        (Some(PoolKind::Large), |array| array.large_pool.current),
    ];
    for (kind, current) in kinds {
        let mut sums = [0; 9];
        for segment in segments.iter().filter(|segment| kind.is_none_or(|kind| kind == segment.kind)) {
            sums[0] += segment.total_size as i64;
            sums[1] += i64::from(!segment.is_expandable);
            let shared = segment.blocks.len() >= 2 && !segment.is_expandable;
            for block in &segment.blocks {
                let size = block.size as i64;
                match block.state {
                    BlockState::Inactive if shared => {
                        sums[2] += 1;
                        sums[3] += size;
                    }
                    BlockState::Inactive => {}
                    state => {
                        let allocated = i64::from(state == BlockState::ActiveAllocated);
                        sums[4] += allocated;
                        sums[5] += allocated * size;
                        sums[6] += 1;
                        sums[7] += size;
                        sums[8] += block.requested_size as i64;
                    }
                }
            }
        }
        let reported = [
            &stats.reserved_bytes,
            &stats.segment,
            &stats.inactive_split,
            &stats.inactive_split_bytes,
            &stats.allocation,
            &stats.allocated_bytes,
            &stats.active,
            &stats.active_bytes,
            &stats.requested_bytes,
        ];
        assert_eq!(sums, reported.map(current), "{kind:?}: segments and statistics disagree");
    }
}
