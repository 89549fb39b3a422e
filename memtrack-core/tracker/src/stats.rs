//! The data of a memory tracker run: three series of counters, the markers, and two counts. A recording fills a
//! [`TrackerStats`], `pickle_file` loads and saves it, and the summary and the figures read it.

use super::summary::Growth;
use std::sync::Arc;

/// The value of a counter after one operator.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The operator's full name, such as `layers.0.forward.addmm.default_3`. The three series share the string.
    pub operator: Arc<str>,
    /// The value in MiB (bytes / 1048576), read after the operator ended.
    pub mib: f64,
}

impl Sample {
    /// Creates a sample for a counter whose value is `mib`, in MiB, after `operator`.
    #[must_use]
    pub fn new(operator: Arc<str>, mib: f64) -> Self {
        Self { operator, mib }
    }
}

/// The data of one run of a memory tracker, either PyTorch's or memtrack's. A sample's index in its series is the index
/// of its operator.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TrackerStats {
    /// Memory allocated by the program.
    pub memories_allocated: Vec<Sample>,
    /// Memory allocated, or freed but still in use by a stream.
    pub memories_active: Vec<Sample>,
    /// Memory obtained from the driver.
    pub memories_reserved: Vec<Sample>,
    /// The markers in the order they were first set, each with its name and the index of the operator that followed.
    /// PyTorch sets `fw_start` and `fw_bw_boundary`.
    pub markers: Vec<(String, u64)>,
    /// The earlier positions of markers that were moved, in order, each with the marker's name and the index of the
    /// operator that followed. In a training run, there are two of these positions for each step except the last. Files
    /// written by PyTorch have none.
    pub earlier_markers: Vec<(Arc<str>, u64)>,
    /// The peak of allocated memory, which may lie between two samples. It is `None` if unknown, as in files written by
    /// PyTorch.
    pub peak: Option<AllocatedPeak>,
    /// The number of times that the allocator had to empty its cache and try again.
    pub num_alloc_retries: u64,
    /// The number of operators recorded, which is the length of the series except in damaged or edited files.
    pub op_index: u64,
    /// Data on operators that ran before those in the series; empty if the series contain all operators.
    pub folded: Folded,
}

/// The peak of allocated memory in a run. The series are sampled when operators end, so no sample includes memory that
/// a single operator allocates and frees.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AllocatedPeak {
    /// A lower bound on the peak, in MiB.
    pub least_mib: f64,
    /// An upper bound on the peak, in MiB. It equals the lower bound if the peak is exact, and is infinite if no upper
    /// bound is known.
    pub most_mib: f64,
    /// The index of the operator during which the peak was reached, or of the next operator to end. It is the number of
    /// samples if no operator ended afterwards, and `None` if that operator was folded.
    pub op_index: Option<u64>,
    /// Whether the peak was reached inside that operator.
    pub is_inside: bool,
}

impl AllocatedPeak {
    /// Creates a peak that lies between two bounds, in MiB, at the operator with index `op_index`.
    #[must_use]
    pub fn new(least_mib: f64, most_mib: f64, op_index: Option<u64>, is_inside: bool) -> Self {
        Self { least_mib, most_mib, op_index, is_inside }
    }

    /// Returns whether the peak is known exactly.
    pub fn is_exact(&self) -> bool {
        self.least_mib >= self.most_mib
    }
}

/// Data on folded operators: those whose samples a long run has removed from the series, because a tracker keeps only the
/// newest operators ([`Options::tracker_entries`](memtrack_model::options::Options::tracker_entries)). A file stores only
/// the number of folded operators.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Folded {
    /// The number of folded operators, all of which ran before those in the series.
    pub operators: u64,
    /// Allocated memory after the last folded operator, in MiB.
    pub allocated_mib: f64,
    /// The highest allocated memory after any folded operator, in MiB.
    pub peak_allocated_mib: f64,
    /// The highest active memory after any folded operator, in MiB.
    pub peak_active_mib: f64,
    /// The highest reserved memory after any folded operator, in MiB.
    pub peak_reserved_mib: f64,
    /// The folded operators that made memory grow most, up to 1,000 of them, in the order they ran.
    pub growths: Vec<Growth>,
}

impl TrackerStats {
    /// Appends the counter values after one operator, in MiB, and moves on to the next operator.
    pub fn push(&mut self, operator: &str, allocated_mib: f64, active_mib: f64, reserved_mib: f64) {
        let operator: Arc<str> = operator.into();
        self.memories_allocated.push(Sample { operator: operator.clone(), mib: allocated_mib });
        self.memories_active.push(Sample { operator: operator.clone(), mib: active_mib });
        self.memories_reserved.push(Sample { operator, mib: reserved_mib });
        self.op_index += 1;
    }

    /// Sets a marker before the next operator. As in PyTorch, setting an existing marker moves it; its earlier position
    /// is kept in [`Self::earlier_markers`].
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
