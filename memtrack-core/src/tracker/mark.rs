//! The markers of a tracker's iterations.

/// A marker in one iteration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mark {
    /// The name: `fw_start` or `fw_bw_boundary`.
    pub name: &'static str,
    /// The iteration, counted from 0. Each `fw_start` starts a new one.
    pub iteration: u64,
    /// The index of the next operator, counted from the tracker's first operator.
    pub op_index: u64,
}
