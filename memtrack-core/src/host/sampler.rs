//! Byte sampling, as jemalloc and tcmalloc do it: a countdown of bytes, and after each hit a new gap drawn from an
//! exponential distribution. A block of size s is then picked with chance 1 − e^(−s/mean) whatever came before, and
//! weighting it by the inverse ([`sampling_weight`](crate::event::sampling_weight)) keeps totals unbiased.

/// One thread's countdown.
pub(crate) struct Sampler {
    bytes_left: i64,
    /// The mean the countdown was drawn with.
    mean_bytes: u64,
    random: u64,
}

impl Sampler {
    /// A sampler that is started by its first use.
    pub(crate) fn new() -> Self {
        // A seed of its own for each thread: the address of a new sampler's stack frame, and the time.
        let here = 0_u8;
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let seed = (&raw const here as u64).rotate_left(32) ^ time.map_or(0, |time| time.as_nanos() as u64);
        Self { bytes_left: 0, mean_bytes: 0, random: seed }
    }

    /// Whether a block of `size_bytes` is picked.
    #[inline(always)]
    pub(crate) fn picks(&mut self, size_bytes: u64, mean_bytes: u64) -> bool {
        if mean_bytes != self.mean_bytes {
            self.mean_bytes = mean_bytes;
            self.bytes_left = self.gap();
        }
        self.bytes_left -= size_bytes as i64;
        if self.bytes_left > 0 {
            return false;
        }
        self.bytes_left = self.gap();
        true
    }

    /// Draws a gap in bytes.
    #[cold]
    fn gap(&mut self) -> i64 {
        // Steele, Lea and Flood's SplitMix64.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^= bits >> 31;
        // In (0, 1]: its logarithm is finite.
        let uniform = ((bits >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (-uniform.ln() * self.mean_bytes as f64).ceil() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::sampling_weight;

    #[test]
    fn weighted_samples_add_up_to_all_bytes() {
        let mut sampler = Sampler::new();
        let (mean, size) = (64 << 10, 1000);
        let blocks = 4_000_000_u64;
        let picked = (0..blocks).filter(|_| sampler.picks(size, mean)).count() as f64;
        let estimate = picked * sampling_weight(size, mean) / blocks as f64;
        // Some 60,000 samples: a standard deviation of 0.4 %.
        assert!((estimate - 1.0).abs() < 0.02, "{estimate}");
    }
}
