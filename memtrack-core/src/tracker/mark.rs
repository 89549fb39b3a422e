//! The markers of the iterations of a tracker.

/// A marker of one iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mark {
    /// The name: `fw_start` or `fw_bw_boundary`.
    pub name: &'static str,
    /// The iteration, from 0; each `fw_start` begins one.
    pub iteration: u64,
    /// The index of the next operator, counted from the first operator of the tracker.
    pub op_index: u64,
}
