//! The operators that made memory grow most, listed with exactly the same text as PyTorch's `MemoryTracker.summary`.
//! The summary of a loaded file keeps PyTorch's quirks. A live tracker knows the allocated memory before its first
//! operator, so it lists that operator too.

use super::{StatsError, TrackerStats};
use memtrack_model::python_float::python_float_repr;
use memtrack_model::units::counted;
use serde::{Serialize, Serializer};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// The growth of memory during one operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Growth {
    /// The operator's full name.
    #[serde(serialize_with = "serialize_text")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub operator: Arc<str>,
    /// The allocated memory after the operator minus the allocated memory before it, in MiB; in JSON in bytes, rounded.
    /// Negative if the operator freed memory; null if the file has no number.
    #[serde(rename = "growth_bytes", serialize_with = "serialize_bytes")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<i64>"))]
    pub growth_mib: f64,
}

impl Growth {
    /// Creates an entry for `operator`, during which allocated memory grew by `growth_mib`.
    #[must_use]
    pub fn new(operator: Arc<str>, growth_mib: f64) -> Self {
        Self { operator, growth_mib }
    }
}

/// The operators during which memory grew most. As text, this is PyTorch's output without the final line feed, in which
/// `MB` means MiB.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Summary {
    /// The number of times the allocator had to empty its cache and try again.
    pub num_alloc_retries: u64,
    /// The maximum number of operators to list, as requested.
    pub top: usize,
    /// The operators, largest growth first. Those with equal growth are in the order they ran.
    pub operators: Vec<Growth>,
    /// The number of earlier operators, which the file does not list individually. Of these only the ones with the largest
    /// growth, at most 1,000, are ranked.
    pub folded_operators: u64,
}

impl TrackerStats {
    /// Returns the summary that PyTorch prints for a loaded file. The first record is only the baseline and is not
    /// listed. If several records have the same name, only the last one counts, but it is ranked as if it were at the
    /// position of the first.
    ///
    /// # Errors
    /// Fails when there are no records (PyTorch raises a `KeyError`), or when there are fewer than `op_index` records.
    pub fn summary(&self, top: usize) -> Result<Summary, StatsError> {
        let Some(first) = self.memories_allocated.first() else { return Err(StatsError::NoRecords) };
        self.rank_records(top, 1, first.mib)
    }

    /// Returns the summary of a run whose allocated memory before its first operator is known to be `baseline_mib`, in
    /// MiB. The first operator is listed like any other. Without records, the list is empty.
    ///
    /// # Errors
    /// Fails when there are fewer than `op_index` records.
    pub fn summary_since(&self, top: usize, baseline_mib: f64) -> Result<Summary, StatsError> {
        self.rank_records(top, 0, baseline_mib)
    }

    /// Ranks the records from `start` on by their growth since the previous record, or since `baseline_mib` for the
    /// first.
    fn rank_records(&self, top: usize, start: usize, baseline_mib: f64) -> Result<Summary, StatsError> {
        let samples = &self.memories_allocated;
        if self.op_index > samples.len() as u64 {
            return Err(StatsError::MissingRecord { index: samples.len() as u64, op_index: self.op_index });
        }
        let end = self.op_index as usize;
        let mut operators: Vec<Growth> = Vec::new();
        let mut rows: HashMap<&str, usize> = HashMap::new();
        let mut previous_mib = baseline_mib;
        if start == 0 && self.folded.operators > 0 {
            operators.extend_from_slice(&self.folded.growths);
            previous_mib = self.folded.allocated_mib;
        }
        for sample in samples.get(start..end).unwrap_or(&[]) {
            let growth_mib = sample.mib - previous_mib;
            previous_mib = sample.mib;
            let row = *rows.entry(&sample.operator).or_insert(operators.len());
            let growth = Growth { operator: sample.operator.clone(), growth_mib };
            match operators.get_mut(row) {
                Some(earlier) => *earlier = growth,
                None => operators.push(growth),
            }
        }
        operators.sort_by(|a, b| compare_descending(a.growth_mib, b.growth_mib));
        operators.truncate(top);
        let (num_alloc_retries, folded_operators) = (self.num_alloc_retries, self.folded.operators);
        Ok(Summary { num_alloc_retries, top, operators, folded_operators })
    }
}

/// Serialises a shared string as a string.
fn serialize_text<S: Serializer>(name: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name)
}

/// Serialises MiB as bytes.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn serialize_bytes<S: Serializer>(mib: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    mib.is_finite().then(|| (mib * f64::from(1 << 20)).round() as i64).serialize(serializer)
}

/// Orders larger numbers first and NaN last; 0 and -0 are equal, as in Python.
fn compare_descending(a: f64, b: f64) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RULE: &str = "------------------------------------------------";
        writeln!(f, "{RULE}")?;
        writeln!(f, "The number of alloc retries are: {}", self.num_alloc_retries)?;
        writeln!(f, "Top {} ops that generates memory are:", self.top)?;
        for Growth { operator, growth_mib } in &self.operators {
            writeln!(f, "{operator}: {}MB", python_float_repr(*growth_mib))?;
        }
        if self.folded_operators > 0 {
            let folded = counted(self.folded_operators, "earlier operator");
            writeln!(f, "{folded} folded: of those only the largest growths are listed, if any")?;
        }
        f.write_str(RULE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(samples: &[(&str, f64)]) -> TrackerStats {
        let mut stats = TrackerStats { num_alloc_retries: 3, ..TrackerStats::default() };
        samples.iter().for_each(|(name, mib)| stats.push(name, *mib, 0.0, 0.0));
        stats
    }

    fn listed(summary: &Summary) -> Vec<(&str, f64)> {
        summary.operators.iter().map(|growth| (&*growth.operator, growth.growth_mib)).collect()
    }

    #[test]
    fn text_equals_pytorch_text() {
        let summary = run(&[("a", 1.0), ("b", 1.5), ("c", 1.00001)]).summary(5).unwrap();
        assert_eq!(
            summary.to_string(),
            "------------------------------------------------\n\
             The number of alloc retries are: 3\n\
             Top 5 ops that generates memory are:\n\
             b: 0.5MB\n\
             c: -0.49998999999999993MB\n\
             ------------------------------------------------"
        );
    }

    #[test]
    fn first_record_is_only_baseline() {
        let stats = run(&[("a", 1.0), ("b", 1.5)]);
        assert_eq!(listed(&stats.summary(5).unwrap()), [("b", 0.5)]);
        assert_eq!(listed(&stats.summary_since(5, 0.25).unwrap()), [("a", 0.75), ("b", 0.5)]);
    }

    #[test]
    fn last_record_of_name_counts_at_position_of_first() {
        let stats = run(&[("x", 0.0), ("a", 5.0), ("b", 6.0), ("a", 7.0)]);
        assert_eq!(listed(&stats.summary(5).unwrap()), [("a", 1.0), ("b", 1.0)]);
    }

    #[test]
    fn ties_keep_their_order_and_zero_has_no_sign() {
        let stats =
            run(&[("x", 1.0), ("a", 1.0), ("b", 2.0), ("c", 2.0), ("d", 3.0), ("e", f64::NAN), ("f", 1.0)]);
        let summary = stats.summary(9).unwrap();
        let names: Vec<_> = summary.operators.iter().map(|growth| &*growth.operator).collect();
        assert_eq!(names, ["b", "d", "a", "c", "e", "f"]);
    }

    #[test]
    fn file_without_records_is_error_and_live_run_is_empty() {
        let stats = TrackerStats::default();
        assert!(matches!(stats.summary(5), Err(StatsError::NoRecords)));
        assert_eq!(stats.summary_since(5, 0.0).unwrap().operators, []);
    }

    #[test]
    fn operator_index_limits_series() {
        let mut stats = run(&[("a", 1.0), ("b", 1.5)]);
        stats.op_index = 0;
        assert_eq!(stats.summary(5).unwrap().operators, []);
        stats.op_index = 3;
        assert!(matches!(stats.summary(5), Err(StatsError::MissingRecord { index: 2, op_index: 3 })));
    }
}
