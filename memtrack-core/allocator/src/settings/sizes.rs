//! The sizes of blocks and segments. All are in bytes.

use crate::settings::options::AllocatorOptions;
use memtrack_model::snapshot::pytorch::PoolKind;

/// The smallest block size. All block sizes are multiples of it.
pub const MIN_BLOCK: u64 = 512;
/// The size of the largest block in the small pool.
pub const SMALL_LIMIT: u64 = 1 << 20;
/// The size of segments in the small pool, and of pages in its expandable ranges.
pub const SMALL_BUFFER: u64 = 2 << 20;
/// The smallest request that gets a segment of its block's size, rounded up to [`LARGE_ROUND`].
pub const MIN_LARGE: u64 = 10 << 20;
/// The granularity of the sizes of segments for requests of at least [`MIN_LARGE`].
pub const LARGE_ROUND: u64 = 2 << 20;
/// The exclusive upper limit for requests (1 EiB).
pub const REQUEST_LIMIT: u64 = 1 << 60;

/// Rounds `size` up to a multiple of `step`. The caller must have checked that `size` is below [`REQUEST_LIMIT`].
#[inline]
pub(crate) const fn round_up(size: u64, step: u64) -> u64 {
    size.div_ceil(step) * step
}

/// Returns the size of the block for a request of `size` bytes. The actual block is larger if the rest of a free block
/// is not split off.
#[inline]
pub fn block_size(size: u64, options: &AllocatorOptions) -> u64 {
    if size < MIN_BLOCK {
        return MIN_BLOCK;
    }
    let divisions = options.roundup.of(size);
    if divisions > 1 && size > MIN_BLOCK.saturating_mul(divisions) {
        return round_to_division(size, divisions);
    }
    round_up(size, MIN_BLOCK)
}

/// Rounds up to the next of the `divisions` steps between two powers of two.
fn round_to_division(size: u64, divisions: u64) -> u64 {
    if size.is_power_of_two() {
        return size;
    }
    let below = 1u64 << size.ilog2();
    round_up(size, below / divisions)
}

/// Returns the kind of pool that blocks of `size` bytes come from.
#[inline]
pub(crate) fn pool_kind(size: u64) -> PoolKind {
    if size <= SMALL_LIMIT { PoolKind::Small } else { PoolKind::Large }
}

/// Returns the page size of an expandable range, in bytes.
pub(crate) fn page_size(kind: PoolKind, large_segment_size: u64) -> u64 {
    match kind {
        PoolKind::Small => SMALL_BUFFER,
        PoolKind::Large => large_segment_size,
    }
}

/// Returns the size of the segment allocated from the device for a block of `block_size` bytes.
#[inline]
pub fn segment_size(block_size: u64, options: &AllocatorOptions) -> u64 {
    if block_size <= SMALL_LIMIT {
        SMALL_BUFFER
    } else if block_size < MIN_LARGE {
        options.large_segment_size
    } else {
        round_up(block_size, LARGE_ROUND)
    }
}

/// Formats a size in the style of PyTorch's messages: `1024 bytes`, `1.50 KiB`, `20.00 MiB`, `1.07 GiB`.
pub fn format_size(size: u64) -> String {
    let value = size as f64;
    if size <= 1024 {
        format!("{size} bytes")
    } else if size <= 1 << 20 {
        format!("{:.2} KiB", value / 1024.0)
    } else if size <= 1 << 30 {
        format!("{:.2} MiB", value / 1_048_576.0)
    } else {
        format!("{:.2} GiB", value / 1_073_741_824.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the sizes of requests, blocks and segments with those of PyTorch 2.15 under default options.
    #[test]
    fn sizes_match_pytorch() {
        const MIB: u64 = 1 << 20;
        let options = AllocatorOptions::default();
        for (request, block, segment) in [
            (1, 512, 2 * MIB),
            (511, 512, 2 * MIB),
            (512, 512, 2 * MIB),
            (513, 1024, 2 * MIB),
            (MIB, MIB, 2 * MIB),
            (MIB + 1, MIB + 512, 20 * MIB),
            (10 * MIB - 1, 10 * MIB, 10 * MIB),
            (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
            (250 * MIB + 5, 250 * MIB + 512, 252 * MIB),
        ] {
            assert_eq!(block_size(request, &options), block, "{request}");
            assert_eq!(segment_size(block, &options), segment, "{request}");
        }
    }

    #[test]
    fn divisions_round_between_powers_of_two() {
        for (size, divisions, rounded) in
            [(1200, 4, 1280), ((1 << 20) + 1, 4, 5 << 18), (70 << 20, 4, 80 << 20), (4096, 4, 4096)]
        {
            assert_eq!(round_to_division(size, divisions), rounded);
        }
    }

    #[test]
    fn format_size_switches_units_above_each_power() {
        for (size, text) in [
            (0, "0 bytes"),
            (1024, "1024 bytes"),
            (1025, "1.00 KiB"),
            (1 << 30, "1024.00 MiB"),
            ((1 << 30) + 1, "1.00 GiB"),
        ] {
            assert_eq!(format_size(size), text);
        }
    }
}
