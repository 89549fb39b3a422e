//! The options that the algorithm uses.

use super::tokens::parse_leading_float;

/// The default size of the large pool's segments for requests below 10 MiB.
const LARGE_BUFFER: u64 = 20 << 20;

/// The options that the algorithm uses. All sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AllocatorOptions {
    /// Blocks of this size or more are never split; `u64::MAX` means no limit.
    pub max_split_size: u64,
    /// The maximum number of bytes by which an unsplit block may exceed the requested size.
    pub max_non_split_rounding: u64,
    /// Old cached blocks are released when reserved memory exceeds this share of the limit; 0 means that they never
    /// are.
    pub garbage_collection_threshold: f64,
    /// The rounding of requests between powers of two.
    pub roundup: Roundup,
    /// Whether new memory is mapped into growing ranges instead of being allocated as separate segments.
    pub expandable_segments: bool,
    /// The size of the segments that the large pool allocates from the device.
    pub large_segment_size: u64,
    /// The amount of address space that an expandable range reserves.
    pub reserve: Reserve,
    /// The share of the device's memory that an allocator may reserve. With `throw_on_cudamalloc_oom`, every request is
    /// checked against it; without that option, only its value at the allocator's creation has an effect.
    pub per_process_memory_fraction: f64,
    /// Whether a request that would exceed `per_process_memory_fraction` is rejected without first releasing cached
    /// memory. If a request exceeds a limit that was set at run time, cached memory is released nevertheless.
    pub throw_on_cudamalloc_oom: bool,
}

impl Default for AllocatorOptions {
    fn default() -> Self {
        Self {
            max_split_size: u64::MAX,
            max_non_split_rounding: LARGE_BUFFER,
            garbage_collection_threshold: 0.0,
            roundup: Roundup::default(),
            expandable_segments: false,
            large_segment_size: LARGE_BUFFER,
            reserve: Reserve::default(),
            per_process_memory_fraction: 1.0,
            throw_on_cudamalloc_oom: false,
        }
    }
}

/// The allocator that the settings select.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocatorBackend {
    /// The caching allocator.
    #[default]
    Native,
    /// The driver's stream-ordered pool.
    CudaMallocAsync,
}

impl AllocatorBackend {
    /// Returns PyTorch's name for the allocator.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::CudaMallocAsync => "cudaMallocAsync",
        }
    }
}

/// `roundup_power2_divisions`: the number of rounding steps between two powers of two.
///
/// The number of divisions for each of 16 intervals, which start at 1, 2, 4 … 32768 MiB; 0 and 1 mean no rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roundup {
    divisions: [u64; Self::INTERVALS],
    /// Whether any interval has divisions. This is cached because it is checked for each request.
    has_divisions: bool,
}

impl Default for Roundup {
    fn default() -> Self {
        Self { divisions: [0; Self::INTERVALS], has_divisions: false }
    }
}

impl Roundup {
    /// The number of intervals.
    pub const INTERVALS: usize = 16;

    /// Returns the divisions for a request of `size` bytes. Sizes below 1 MiB belong to the first interval.
    #[inline]
    pub fn of(&self, size: u64) -> u64 {
        if !self.has_divisions {
            return 0;
        }
        let interval = (size.max(1).ilog2() as usize).saturating_sub(20);
        self.divisions[interval.min(Self::INTERVALS - 1)]
    }

    /// Returns the divisions of all intervals, starting with the smallest.
    pub fn divisions(&self) -> &[u64; Self::INTERVALS] {
        &self.divisions
    }

    pub(super) fn fill(&mut self, intervals: std::ops::Range<usize>, divisions: u64) {
        self.divisions[intervals].fill(divisions);
        self.has_divisions = self.divisions.iter().any(|&divisions| divisions > 1);
    }
}

/// `expandable_segments_reserve`: the size of an expandable range, which is never larger than the default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Reserve {
    /// Nine eighths of the device's memory.
    #[default]
    Default,
    /// A share of the device's memory.
    Fraction(f64),
    /// A size in GiB.
    Gib(f64),
}

impl Reserve {
    /// Parses `0.5` as a share of the device's memory and `40G` as a number of GiB. Returns `None` for
    /// anything else; PyTorch then warns and keeps the previous value.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (number, is_gib) = match text.strip_suffix(['G', 'g']) {
            Some(number) => (number, true),
            None => (text, false),
        };
        // The whole text must be a number written in decimal digits.
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        let value =
            parse_leading_float(number).ok().filter(|_| digits(number) && number.parse::<f64>().is_ok())?;
        (value > 0.0).then_some(if is_gib { Self::Gib(value) } else { Self::Fraction(value) })
    }

    /// Returns the maximum size of a request on a device with `total` bytes, or `None` if there is no limit.
    pub(crate) fn max_request_bytes(self, total: u64) -> Option<u64> {
        let bytes = match self {
            Self::Default => return None,
            Self::Fraction(fraction) => fraction * total as f64,
            Self::Gib(gib) => gib * (1u64 << 30) as f64,
        };
        // The cast saturates.
        Some((bytes as u64).min(Self::largest_reserve(total)))
    }

    /// Returns the size of the reservation on a device with `total` bytes, before it is rounded to pages.
    pub(crate) fn reserved_bytes(self, total: u64) -> u64 {
        self.max_request_bytes(total).unwrap_or(Self::largest_reserve(total))
    }

    fn largest_reserve(total: u64) -> u64 {
        total.saturating_add(total / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_reserves_are_rejected() {
        const GIB: u64 = 1 << 30;
        for (text, bytes) in
            [("0.5", 4 * GIB), ("2G", 2 * GIB), ("1.5g", 3 * GIB / 2), ("1e0G", GIB), ("1e20G", 9 * GIB)]
        {
            assert_eq!(Reserve::parse(text).unwrap().reserved_bytes(8 * GIB), bytes, "{text}");
        }
        for text in ["", "G", "abc", "-1", "0", "512M", "12X", "inf", "nan", "1.5.5", "40GB"] {
            assert_eq!(Reserve::parse(text), None, "{text}");
        }
        assert_eq!(Reserve::Default.reserved_bytes(8 * GIB), 9 * GIB);
    }
}
