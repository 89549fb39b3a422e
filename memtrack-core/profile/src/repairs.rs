//! Counts the repairs made to a trace so that it can be analysed.

use std::collections::BTreeMap;
use std::fmt;

/// A kind of repair. Tolerant mode makes repairs and counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Repair {
    /// The trace is truncated. It has no footer, or ends in the middle of a line or of the compressed data.
    Cut,
    /// The number of records differs from the number in the footer.
    MissingRecords,
    /// Records were dropped by the producer, according to the footer.
    DroppedRecords,
    /// Lines occurred twice.
    RepeatedLines,
    /// Records had an earlier time than the record before them.
    Unordered,
    /// Records referred to tensors, stacks, element types or enclosing records that the trace does not
    /// define.
    Undefined,
    /// End lines referred to records that never started or had already ended.
    UnknownEnds,
    /// Memory was allocated at an address that was still in use. The earlier memory is assumed to have been
    /// freed right before.
    ImpliedFrees,
    /// Memory that had already been freed was freed again.
    IgnoredFrees,
    /// Tensor versions were not consecutive.
    Versions,
}

impl Repair {
    /// All kinds of repairs.
    pub const ALL: [Self; 10] = [
        Self::Cut,
        Self::MissingRecords,
        Self::DroppedRecords,
        Self::RepeatedLines,
        Self::Unordered,
        Self::Undefined,
        Self::UnknownEnds,
        Self::ImpliedFrees,
        Self::IgnoredFrees,
        Self::Versions,
    ];

    /// Returns the name used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::MissingRecords => "missing_records",
            Self::DroppedRecords => "dropped_records",
            Self::RepeatedLines => "repeated_lines",
            Self::Unordered => "unordered_records",
            Self::Undefined => "undefined_mentions",
            Self::UnknownEnds => "unknown_ends",
            Self::ImpliedFrees => "implied_frees",
            Self::IgnoredFrees => "ignored_frees",
            Self::Versions => "versions",
        }
    }

    /// Returns the text that follows the repair count in a sentence.
    const fn text(self, one: bool) -> &'static str {
        match (self, one) {
            (Self::Cut, _) => "the trace is cut: the rest is missing",
            (Self::MissingRecords, true) => "record is missing or too many, by the footer's count",
            (Self::MissingRecords, false) => "records are missing or too many, by the footer's count",
            (Self::DroppedRecords, true) => "record was dropped by the program that wrote the trace",
            (Self::DroppedRecords, false) => "records were dropped by the program that wrote the trace",
            (Self::RepeatedLines, true) => "line was there twice, and is used once",
            (Self::RepeatedLines, false) => "lines were there twice, and are used once",
            (Self::Unordered, true) => "record was put into the order of time",
            (Self::Unordered, false) => "records were put into the order of time",
            (Self::Undefined, true) => "reference to something that is not in the trace was ignored",
            (Self::Undefined, false) => "references to something that is not in the trace were ignored",
            (Self::UnknownEnds, true) => "end of a record that did not run was left out",
            (Self::UnknownEnds, false) => "ends of records that did not run were left out",
            (Self::ImpliedFrees, true) => "allocation at an address in use: its memory counts as freed then",
            (Self::ImpliedFrees, false) => {
                "allocations at addresses in use: their memory counts as freed then"
            }
            (Self::IgnoredFrees, true) => "free of memory that was not in use was left out",
            (Self::IgnoredFrees, false) => "frees of memory that was not in use were left out",
            (Self::Versions, true) => {
                "version of a tensor did not follow the one before, and was taken as it was"
            }
            (Self::Versions, false) => {
                "versions of tensors did not follow the ones before, and were taken as they were"
            }
        }
    }
}

/// The number of repairs of each kind. Displays one line per kind that occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repairs {
    counts: [u64; Repair::ALL.len()],
}

impl Repairs {
    /// Returns the number of repairs of the given kind.
    pub const fn count(&self, repair: Repair) -> u64 {
        self.counts[repair as usize]
    }

    /// Returns whether no repairs were made.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|&count| count == 0)
    }

    pub(crate) fn add(&mut self, repair: Repair, count: u64) {
        self.counts[repair as usize] += count;
    }

    /// Adds the counts of `others` to these.
    #[must_use]
    pub fn and(mut self, others: &Self) -> Self {
        self.counts.iter_mut().zip(others.counts).for_each(|(count, more)| *count += more);
        self
    }

    pub(crate) fn nonzero(&self) -> impl Iterator<Item = (Repair, u64)> {
        Repair::ALL.into_iter().map(|repair| (repair, self.count(repair))).filter(|&(_, count)| count > 0)
    }
}

impl fmt::Display for Repairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (repair, count)) in self.nonzero().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            match repair {
                Repair::Cut => f.write_str(repair.text(true))?,
                _ => write!(f, "{count} {}", repair.text(count == 1))?,
            }
        }
        Ok(())
    }
}

// Only the kinds that occurred are serialized.
memtrack_model::serialize_as!(Repairs => BTreeMap<&'static str, u64>: |repairs| {
    repairs.nonzero().map(|(repair, count)| (repair.name(), count)).collect()
});
