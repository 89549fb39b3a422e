//! Checks whether files come from one job. Contradictory statements in the files are an error; mere suspicions are
//! reported, but the files are compared anyway.

use super::digest::RankDigest;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::{Component, Path};

/// The maximum number of names in a list.
const MAX_NAMES: usize = 4;

/// The reason why files cannot be compared as the ranks of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotOneJob {
    /// The files come from several jobs; contains each job with one of its files.
    Jobs(Vec<(String, String)>),
    /// The files state different numbers of ranks; contains each number with one of the files that state it.
    Worlds(Vec<(u64, String)>),
    /// Each of several folders contains the same rank once.
    Folders {
        /// The first rank that occurs more than once.
        rank: u64,
        /// The folders, with the parts that name a rank replaced.
        folders: Vec<String>,
    },
}

impl fmt::Display for NotOneJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ADVICE: &str = "give the files of one job at a time";
        match self {
            Self::Jobs(jobs) => {
                let jobs = format_names(jobs.iter().map(|(job, file)| format!("{job} ({file})")));
                write!(f, "these are ranks of different jobs: {jobs}; {ADVICE}")
            }
            Self::Worlds(worlds) => {
                let worlds = format_names(worlds.iter().map(|(world, file)| format!("{world} ({file})")));
                write!(f, "these are of jobs with different numbers of ranks: {worlds}; {ADVICE}")
            }
            Self::Folders { rank, folders } => write!(
                f,
                "rank {rank} occurs once in each of {}: these are different jobs, one at different times, \
                 or nodes that each count from 0; {ADVICE}, or put all of them below a folder job=NAME",
                format_names(folders.iter().cloned())
            ),
        }
    }
}

impl std::error::Error for NotOneJob {}

/// Formats the first few names, followed by the number of the other names.
pub(super) fn format_names(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.collect();
    let shown = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Checks that no statement in the files rules out that they come from one job.
pub(super) fn check_job(ranks: &[RankDigest]) -> Result<(), NotOneJob> {
    let mut jobs: BTreeMap<&str, &str> = BTreeMap::new();
    let mut worlds: BTreeMap<u64, &str> = BTreeMap::new();
    for rank in ranks {
        rank.job.as_deref().map(|job| jobs.entry(job).or_insert(&rank.file));
        rank.world.map(|world| worlds.entry(world).or_insert(&rank.file));
    }
    if jobs.len() > 1 {
        let pair = |(job, file): (&str, &str)| (job.to_owned(), file.to_owned());
        return Err(NotOneJob::Jobs(jobs.into_iter().map(pair).collect()));
    }
    if worlds.len() > 1 {
        let pair = |(world, file): (u64, &str)| (world, file.to_owned());
        return Err(NotOneJob::Worlds(worlds.into_iter().map(pair).collect()));
    }
    if ranks.iter().all(|rank| rank.job.is_some()) {
        // All files state the same job.
        return Ok(());
    }
    for (rank, files) in duplicate_ranks(ranks) {
        let folders: BTreeSet<String> = files.iter().map(|file| folder_pattern(file)).collect();
        if folders.len() == files.len() {
            return Err(NotOneJob::Folders { rank, folders: folders.into_iter().collect() });
        }
    }
    Ok(())
}

/// Returns the ranks that occur in more than one file, with those files.
fn duplicate_ranks(ranks: &[RankDigest]) -> Vec<(u64, Vec<&str>)> {
    let mut files: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for rank in ranks {
        if let Some(number) = rank.rank {
            files.entry(number).or_default().push(&rank.file);
        }
    }
    files.into_iter().filter(|(_, files)| files.len() > 1).collect()
}

/// Returns the folder of a file, with `rank*` in place of any part that names a rank.
fn folder_pattern(file: &str) -> String {
    let parent = Path::new(file).parent().unwrap_or(Path::new(""));
    let part = |part: Component<'_>| {
        let name = part.as_os_str().to_string_lossy().into_owned();
        let names_a_rank = super::RankName::of_path(Path::new(&name)).rank.is_some();
        if names_a_rank { "rank*".to_owned() } else { name }
    };
    let parts: Vec<String> = parent.components().map(part).collect();
    if parts.is_empty() { ".".into() } else { parts.join("/").replacen("//", "/", 1) }
}

/// Returns reasons to doubt that the files are ranks of one job, each with its evidence.
pub(super) fn find_doubts(ranks: &[RankDigest]) -> Vec<String> {
    let mut doubts = Vec::new();
    for (rank, files) in duplicate_ranks(ranks) {
        doubts.push(format!(
            "rank {rank} occurs {} times: {}; each counts as a separate rank",
            files.len(),
            format_names(files.iter().map(|&file| file.to_owned()))
        ));
    }
    if let Some(world) = ranks.iter().find_map(|rank| rank.world) {
        let beyond = ranks.iter().filter(|rank| rank.rank.is_some_and(|number| number >= world));
        let beyond: Vec<String> = beyond.map(rank_label).collect();
        if !beyond.is_empty() {
            doubts.push(format!(
                "the job has {world} ranks, but there is also {}",
                format_names(beyond.into_iter())
            ));
        }
    }
    let kinds: BTreeSet<bool> = ranks.iter().map(|rank| rank.is_pytorch).collect();
    if kinds.len() > 1 {
        let (few, what) =
            smaller_group(ranks, |rank| rank.is_pytorch, "PyTorch snapshots", "memtrack's recordings");
        doubts.push(format!("some are {what}, others are not: {few}"));
    }
    let programs: BTreeSet<&str> =
        ranks.iter().map(|rank| &*rank.program).filter(|program| !program.is_empty()).collect();
    if programs.len() > 1 {
        doubts.push(format!(
            "they are of different programs: {}",
            format_names(programs.into_iter().map(str::to_owned))
        ));
    }
    doubts.extend(describe_foreign_ranks(ranks));
    doubts
}

/// Returns the ranks for which `holds` is true or those for which it is false, whichever are fewer, along with their
/// description.
fn smaller_group(
    ranks: &[RankDigest],
    holds: impl Fn(&RankDigest) -> bool,
    yes: &'static str,
    no: &'static str,
) -> (String, &'static str) {
    let (with, without): (Vec<_>, Vec<_>) = ranks.iter().partition(|rank| holds(rank));
    let (few, what) = if with.len() < without.len() { (with, yes) } else { (without, no) };
    (format_names(few.into_iter().map(rank_label)), what)
}

/// Returns a sentence about ranks that have nothing in common with most others because they ran another program or
/// model.
fn describe_foreign_ranks(ranks: &[RankDigest]) -> Option<String> {
    let keys = |rank: &RankDigest| -> BTreeSet<String> {
        let groups = rank.devices.iter().flat_map(|device| device.at_peak.iter().chain(&device.at_end));
        // Unnamed functions do not show that programs are the same.
        groups.map(|group| &group.key).filter(|key| !key.starts_with('(')).cloned().collect()
    };
    let all: Vec<BTreeSet<String>> = ranks.iter().map(keys).collect();
    let mut times: HashMap<&String, usize> = HashMap::new();
    for key in all.iter().flatten() {
        *times.entry(key).or_default() += 1;
    }
    let usual = all.iter().filter(|keys| !keys.is_empty()).count();
    // If only one rank has groups, there is no other rank to compare with.
    if usual < 2 {
        return None;
    }
    let is_common = |key: &&String| times.get(*key).is_some_and(|&times| times * 2 > usual);
    let is_foreign = |keys: &BTreeSet<String>| !keys.is_empty() && !keys.iter().any(|key| is_common(&key));
    let foreign: Vec<String> = ranks
        .iter()
        .zip(&all)
        .filter(|(_, keys)| is_foreign(keys))
        .map(|(rank, _)| rank_label(rank))
        .collect();
    if foreign.is_empty() {
        return None;
    }
    Some(match foreign.len() * 2 > usual {
        true => "most ranks have no allocating line in common: are they of one job?".into(),
        false => format!(
            "no line that allocates in most ranks allocates in {}: from another job?",
            format_names(foreign.into_iter())
        ),
    })
}

/// Returns the name of a rank: `rank 3`, or its file if its number is unknown.
pub(super) fn rank_label(rank: &RankDigest) -> String {
    rank.rank.map_or_else(|| rank.file.clone(), |number| format!("rank {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_differ_only_in_rank_are_same() {
        assert_eq!(folder_pattern("run/rank3/part.pickle"), "run/rank*");
        assert_eq!(folder_pattern("/data/a/rank3.pickle"), "/data/a");
        assert_eq!(folder_pattern("rank3.pickle"), ".");
    }
}
