//! `roundup_power2_divisions`: the number of rounding steps between two powers of two.

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

    /// Sets the divisions of a range of intervals.
    pub(super) fn fill(&mut self, intervals: std::ops::Range<usize>, divisions: u64) {
        self.divisions[intervals].fill(divisions);
        self.has_divisions = self.divisions.iter().any(|&divisions| divisions > 1);
    }
}
