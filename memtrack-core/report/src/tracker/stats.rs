//! The data of a run of the memory tracker: three series of counters, the markers, and two counts. A recording fills
//! a [`TrackerStats`], `pickle_file` loads and saves it, and the summary and the figures read it.

use super::summary::Growth;
use std::sync::Arc;

/// The value of a counter after one operator.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The operator's full name, such as `layers.0.forward.addmm.default_3`. The three series share the string.
    pub operator: Arc<str>,
    /// The value in MiB (bytes / 1048576), read after the operator.
    pub mib: f64,
}

impl Sample {
    /// Creates a sample: the counter is `mib` after `operator`.
    #[must_use]
    pub fn new(operator: Arc<str>, mib: f64) -> Self {
        Self { operator, mib }
    }
}

/// The data of one run of a memory tracker, PyTorch's or memtrack's. The index of a sample in its series is the index of
/// the operator.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TrackerStats {
    /// Memory allocated by the program.
    pub memories_allocated: Vec<Sample>,
    /// Memory allocated, or freed but still in use by a stream.
    pub memories_active: Vec<Sample>,
    /// Memory obtained from the driver.
    pub memories_reserved: Vec<Sample>,
    /// Markers in the order they were first set: a name, and the index of the operator that followed. PyTorch sets
    /// `fw_start` and `fw_bw_boundary`.
    pub markers: Vec<(String, u64)>,
    /// The earlier positions of markers that moved, in order: a name, and the index of the operator that followed. A
    /// training run has two for each step except the last. Files that PyTorch wrote have none.
    pub earlier_markers: Vec<(Arc<str>, u64)>,
    /// The peak of allocated memory, which may lie between two samples; `None` if it is unknown, as in files that PyTorch
    /// wrote.
    pub peak: Option<AllocatedPeak>,
    /// The number of times that the allocator had to empty its cache and try again.
    pub num_alloc_retries: u64,
    /// The number of operators recorded: the length of the series, except in damaged or edited files.
    pub op_index: u64,
    /// Data on operators that ran before those in the series; empty if the series contain all operators.
    pub folded: Folded,
}

/// The peak of allocated memory in a run. The series are sampled when operators end, so no sample includes memory that an
/// operator allocates and frees again.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AllocatedPeak {
    /// A lower bound, in MiB.
    pub least_mib: f64,
    /// An upper bound, in MiB: equal to the lower bound if the peak is exact, infinite if there is none.
    pub most_mib: f64,
    /// The index of the operator in which the peak was reached, or of the next one to end; the number of samples if no
    /// operator ended afterwards. `None` if that operator was folded.
    pub op_index: Option<u64>,
    /// Whether the peak was reached inside that operator.
    pub is_inside: bool,
}

impl AllocatedPeak {
    /// Creates a peak between two bounds, in MiB, at an operator of the series.
    #[must_use]
    pub fn new(least_mib: f64, most_mib: f64, op_index: Option<u64>, is_inside: bool) -> Self {
        Self { least_mib, most_mib, op_index, is_inside }
    }

    /// Returns whether the peak is known exactly.
    pub fn is_exact(&self) -> bool {
        self.least_mib >= self.most_mib
    }
}

/// Data on the operators that a long run has folded: a tracker keeps only the newest operators
/// ([`Options::tracker_entries`](memtrack_model::options::Options::tracker_entries)). A file contains only the number of
/// folded operators.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Folded {
    /// The number of folded operators, all of which ran before those in the series.
    pub operators: u64,
    /// Allocated MiB after the last folded operator.
    pub allocated_mib: f64,
    /// The maximum allocated MiB after a folded operator.
    pub peak_allocated_mib: f64,
    /// The maximum active MiB after a folded operator.
    pub peak_active_mib: f64,
    /// The maximum reserved MiB after a folded operator.
    pub peak_reserved_mib: f64,
    /// The folded operators that made memory grow most, at most 1,000, in the order they ran.
    pub growths: Vec<Growth>,
}

impl TrackerStats {
    /// Appends the counters after one operator, in MiB, and moves on to the next operator.
    pub fn push(&mut self, operator: &str, allocated_mib: f64, active_mib: f64, reserved_mib: f64) {
        let operator: Arc<str> = operator.into();
        self.memories_allocated.push(Sample { operator: operator.clone(), mib: allocated_mib });
        self.memories_active.push(Sample { operator: operator.clone(), mib: active_mib });
        self.memories_reserved.push(Sample { operator, mib: reserved_mib });
        self.op_index += 1;
    }

    /// Sets a marker before the next operator. As in PyTorch, a marker that was set before moves; its earlier position is
    /// kept in [`Self::earlier_markers`].
    pub fn mark(&mut self, name: &str) {
        match self.markers.iter_mut().find(|marker| marker.0 == name) {
            Some(marker) => {
                let known = self.earlier_markers.iter().find(|earlier| &*earlier.0 == name);
                let shared = known.map_or_else(|| Arc::from(name), |earlier| Arc::clone(&earlier.0));
                self.earlier_markers.push((shared, marker.1));
                marker.1 = self.op_index;
            }
            None => self.markers.push((name.to_owned(), self.op_index)),
        }
    }
}
