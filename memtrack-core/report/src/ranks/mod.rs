//! Compares the ranks of one job: which ranks hold more memory than the others, why they do, and how far apart the
//! ranks are from step to step.
//!
//! Each file is reduced to a [`RankDigest`] and dropped before the next one is read. The reports are computed from the
//! digests alone. [`rule`] defines which ranks are outliers. The `memtrack ranks` command prints the reports, and the
//! repository's docs/RANKS.md explains them.

mod curve;
mod digest;
pub mod heat;
mod job;
mod json;
mod memory;
mod name;
mod reduce;
pub mod rule;
mod skew;
mod steps;
mod text;
mod why;

pub use digest::{
    DeviceDigest, EndDigest, GroupDigest, MomentDigest, OutOfMemoryDigest, RankDigest, StepDigest, Timeline,
};
pub use job::NotOneJob;
pub use json::{
    DifferenceAnswer, HighestRankAnswer, MeasureAnswer, MomentAnswer, OutlierAnswer, RankAnswer,
    RankMemoryAnswer, RanksAnswer, RanksMemoryAnswer, SkewAnswer, StepAnswer, UnreadAnswer,
};
pub use memory::{Measure, Outlier, RanksMemory};
pub use name::RankName;
pub use reduce::DigestOptions;
pub use skew::{Skew, StepSkew};
pub use text::{RankNumbers, signed_bytes};
pub use why::Difference;

use crate::top::By;

/// A comparison of the ranks of one job.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ranks {
    /// The key by which allocations are grouped.
    pub by: By,
    /// The ranks by number, followed by those without a number, by file name.
    pub ranks: Vec<RankDigest>,
    /// The memory of the ranks: first devices, then pinned memory, then the heap.
    pub memories: Vec<RanksMemory>,
    /// Reasons to doubt that the files are ranks of one job, as sentences.
    pub doubts: Vec<String>,
    /// Files that could not be read, each with the reason why.
    pub unread: Vec<(String, String)>,
}

impl Ranks {
    /// Compares ranks whose groups are keyed by `by`; `unread` lists the files that could not be read, each with the
    /// reason.
    ///
    /// # Errors
    /// Returns an error if the files state that they come from different jobs.
    pub fn of(
        mut ranks: Vec<RankDigest>,
        by: By,
        mut unread: Vec<(String, String)>,
    ) -> Result<Self, NotOneJob> {
        name::number_by_file_names(&mut ranks);
        ranks.sort_by_cached_key(|rank| {
            (rank.name.rank.is_none(), rank.name.rank, name::natural_key(&rank.file), rank.file.clone())
        });
        unread.sort_by_cached_key(|(file, _)| (name::natural_key(file), file.clone()));
        job::check_job(&ranks)?;
        let (memories, doubts) = (memory::compare_memories(&ranks), job::find_doubts(&ranks));
        Ok(Self { by, ranks, memories, doubts, unread })
    }

    /// Replaces the names of files and jobs with those that `rename` returns, so that the report can be shared.
    #[must_use]
    pub fn renamed(mut self, mut rename: impl FnMut(&str) -> String) -> Self {
        for rank in &mut self.ranks {
            rank.file = rename(&rank.file);
            rank.name.job = rank.name.job.take().map(|job| rename(&job));
        }
        for (file, why) in &mut self.unread {
            let renamed = rename(file);
            *why = why.replace(&**file, &renamed);
            *file = renamed;
        }
        self.doubts = job::find_doubts(&self.ranks);
        self
    }

    /// Returns whether any rank is an outlier.
    pub fn has_outliers(&self) -> bool {
        self.memories.iter().any(|memory| !memory.outliers.is_empty())
    }

    /// Returns the name of the rank at index `place`: `rank 3`, or its file if its number is unknown.
    ///
    /// # Panics
    /// Panics if there is no such rank.
    pub fn label(&self, place: usize) -> String {
        job::rank_label(&self.ranks[place])
    }
}
