//! The markers of a tracker's iterations.

/// A marker of one iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mark {
    /// `fw_start` or `fw_bw_boundary`.
    pub name: &'static str,
    /// The iteration, from 0; each `fw_start` begins one.
    pub iteration: u64,
    /// Index of the next operator, counted from the tracker's first.
    pub op_index: u64,
}
