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
pub use memory::{Measure, MeasureDistribution, Outlier, RanksMemory};
pub use name::RankName;
pub use reduce::DigestOptions;
pub use skew::{HighestRank, Skew, StepSkew};
pub use text::{RankNumbers, signed_bytes};
pub use why::Difference;

use crate::top::By;
use serde::Serialize;

/// The memory of a job's ranks, as `memtrack ranks --json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Ranks {
    /// The key by which allocations are grouped, as given to `--by`.
    pub by: By,
    /// The summary as sentences.
    pub answer: Vec<String>,
    /// Reasons to doubt that the files are ranks of one job, as sentences.
    pub doubts: Vec<String>,
    /// The ranks in order of their numbers, followed by those without a number.
    pub ranks: Vec<RankDigest>,
    /// A comparison of the ranks for each kind of memory: first devices, then pinned memory, then the heap.
    pub memories: Vec<RanksMemory>,
    /// The files that could not be read.
    pub unread: Vec<Unread>,
}

/// A file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Unread {
    /// The path of the file.
    pub path: String,
    /// The reason why the file could not be read.
    pub why: String,
}

impl Ranks {
    /// Compares ranks whose groups are keyed by `by`; `unread` lists the files that could not be read.
    ///
    /// # Errors
    /// Returns an error if the files state that they come from different jobs.
    pub fn of(mut ranks: Vec<RankDigest>, by: By, mut unread: Vec<Unread>) -> Result<Self, NotOneJob> {
        name::number_by_file_names(&mut ranks);
        ranks.sort_by_cached_key(|rank| {
            (rank.rank.is_none(), rank.rank, name::natural_key(&rank.file), rank.file.clone())
        });
        unread.sort_by_cached_key(|file| (name::natural_key(&file.path), file.path.clone()));
        job::check_job(&ranks)?;
        let (memories, doubts) = (memory::compare_memories(&ranks), job::find_doubts(&ranks));
        let mut ranks = Self { by, answer: Vec::new(), doubts, ranks, memories, unread };
        ranks.answer = ranks.summary_sentences();
        Ok(ranks)
    }

    /// Replaces the names of files and jobs with those that `rename` returns, so that the report can be shared.
    #[must_use]
    pub fn renamed(mut self, mut rename: impl FnMut(&str) -> String) -> Self {
        for rank in &mut self.ranks {
            rank.file = rename(&rank.file);
            rank.job = rank.job.take().map(|job| rename(&job));
        }
        for Unread { path, why } in &mut self.unread {
            let renamed = rename(path);
            *why = why.replace(&**path, &renamed);
            *path = renamed;
        }
        self.doubts = job::find_doubts(&self.ranks);
        self.answer = self.summary_sentences();
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
