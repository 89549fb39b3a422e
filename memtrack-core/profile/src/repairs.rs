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
        TABLE[self as usize].0
    }
}

/// The name of each kind of repair, and the texts that follow a count of one and of several in a sentence.
const TABLE: [(&str, &str, &str); Repair::ALL.len()] = [
    ("cut", "the trace is cut: the rest is missing", ""),
    (
        "missing_records",
        "record is missing or too many, by the footer's count",
        "records are missing or too many, by the footer's count",
    ),
    (
        "dropped_records",
        "record was dropped by the program that wrote the trace",
        "records were dropped by the program that wrote the trace",
    ),
    ("repeated_lines", "line was there twice, and is used once", "lines were there twice, and are used once"),
    ("unordered_records", "record was put into the order of time", "records were put into the order of time"),
    (
        "undefined_mentions",
        "reference to something that is not in the trace was ignored",
        "references to something that is not in the trace were ignored",
    ),
    (
        "unknown_ends",
        "end of a record that did not run was left out",
        "ends of records that did not run were left out",
    ),
    (
        "implied_frees",
        "allocation at an address in use: its memory counts as freed then",
        "allocations at addresses in use: their memory counts as freed then",
    ),
    (
        "ignored_frees",
        "free of memory that was not in use was left out",
        "frees of memory that was not in use were left out",
    ),
    (
        "versions",
        "version of a tensor did not follow the one before, and was taken as it was",
        "versions of tensors did not follow the ones before, and were taken as they were",
    ),
];

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
            let (_, one, several) = TABLE[repair as usize];
            match repair {
                Repair::Cut => f.write_str(one)?,
                _ => write!(f, "{count} {}", if count == 1 { one } else { several })?,
            }
        }
        Ok(())
    }
}

// Only the kinds that occurred are serialized.
memtrack_model::serialize_as!(Repairs => BTreeMap<&'static str, u64>: |repairs| {
    repairs.nonzero().map(|(repair, count)| (repair.name(), count)).collect()
});
