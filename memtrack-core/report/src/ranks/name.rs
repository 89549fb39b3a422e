//! The rank and the job of a file. The file's name states them more often than its contents do: `rank3.pickle`,
//! `rank=3/part.pickle`, `job=17/rank_03.memtrack`. A snapshot may also state them under a key such as `rank` next to
//! PyTorch's own keys, or in the program's own texts (`user_metadata`, as JSON). If the name and the contents disagree,
//! the contents count, because files get renamed.

use super::digest::RankDigest;
use memtrack_model::snapshot::pytorch::{Key, Part as RootPart, PyTorch};
use memtrack_model::snapshot::{Snapshot, Value};
use std::collections::BTreeSet;
use std::path::{Component, Path};

/// The number of events that are searched for the program's texts, starting with the first.
const MAX_SEARCHED_EVENTS: usize = 256;

/// The rank and the job that a file belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankName {
    /// The rank; `None` if neither the file nor its name states it.
    pub rank: Option<u64>,
    /// The number of ranks in the job, if the file states it.
    pub world: Option<u64>,
    /// The job, if the file or its path states it.
    pub job: Option<String>,
}

impl RankName {
    /// Determines the rank and the job from a file and its path.
    pub fn of(snapshot: &Snapshot, path: &Path) -> Self {
        let content = from_content(snapshot);
        let from_path = Self::of_path(path);
        Self {
            rank: content.rank.or(from_path.rank),
            world: content.world,
            job: content.job.or(from_path.job),
        }
    }

    /// Determines the rank and the job from a path alone. The file name takes precedence over the folder names.
    pub fn of_path(path: &Path) -> Self {
        let parts: Vec<String> = path
            .components()
            .filter_map(|part| match part {
                Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
                _ => None,
            })
            .collect();
        let mut nearest_first = parts.iter().rev();
        let rank = nearest_first.find_map(|part| number_after(part, "rank"));
        let folders = parts.iter().rev().skip(1);
        let job = folders.filter_map(|part| part.strip_prefix("job=")).find(|job| !job.is_empty());
        Self { rank, world: None, job: job.map(str::to_owned) }
    }
}

/// Returns the number that follows `word` in a name, as in `rank3`, `rank_03`, `global-rank=3` and `RANK.3`.
fn number_after(name: &str, word: &str) -> Option<u64> {
    let lower = name.to_ascii_lowercase();
    let mut from = 0;
    while let Some(at) = lower[from..].find(word) {
        let rest = &lower[from + at + word.len()..];
        let rest = rest.strip_prefix(['_', '-', '=', '.', ' ', '#']).unwrap_or(rest);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if let Ok(number) = rest[..digits].parse() {
            return Some(number);
        }
        from += at + word.len();
    }
    None
}

/// Determines the rank and the job from a file's contents.
fn from_content(snapshot: &Snapshot) -> RankName {
    let Some(pytorch) = snapshot.pytorch.as_deref() else { return RankName::default() };
    let at_root = |names: &[&str]| names.iter().find_map(|name| root_value(snapshot, pytorch, name));
    let number = |value: &Value| value.as_i128().and_then(|number| u64::try_from(number).ok());
    let text = |value: &Value| match value {
        Value::Str(text) => Some(snapshot.strings.get(*text).into_owned()),
        other => number(other).map(|number| number.to_string()),
    };
    let mut name = RankName {
        rank: at_root(&["rank", "global_rank"]).and_then(number),
        world: at_root(&["world_size"]).and_then(number),
        job: at_root(&["job", "job_id"]).and_then(text),
    };
    let rows = (0..snapshot.events.len().min(MAX_SEARCHED_EVENTS))
        .filter(|&row| pytorch.events.has(row, Key::UserMetadata));
    let mut last = None;
    for row in rows {
        let text = pytorch.events.text(row, Key::UserMetadata);
        if name.rank.is_some() && name.job.is_some() && name.world.is_some() {
            break;
        }
        if last.replace(text) == Some(text) {
            continue;
        }
        let text = snapshot.strings.get(text);
        // Most texts are not JSON, and parsing all of them would be expensive.
        if !text.starts_with('{') {
            continue;
        }
        let Ok(serde_json::Value::Object(keys)) = serde_json::from_str(&text) else { continue };
        let number = |key: &str| keys.get(key).and_then(serde_json::Value::as_u64);
        let text = |key: &str| match keys.get(key) {
            Some(serde_json::Value::String(text)) => Some(text.clone()),
            Some(serde_json::Value::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        name.rank = name.rank.or_else(|| number("rank").or_else(|| number("global_rank")));
        name.world = name.world.or_else(|| number("world_size"));
        name.job = name.job.or_else(|| text("job").or_else(|| text("job_id")));
    }
    name
}

/// Returns the value of a root key that is not one of PyTorch's own keys.
fn root_value<'a>(snapshot: &Snapshot, pytorch: &'a PyTorch, name: &str) -> Option<&'a Value> {
    let is_requested = |key: &Value| matches!(key, Value::Str(text) if snapshot.strings.get(*text) == name);
    pytorch.root.iter().find_map(|(key, part)| match part {
        RootPart::Value(value) if is_requested(key) => Some(value),
        _ => None,
    })
}

/// Uses the number in file names as the rank if no file states its rank and the names differ only in that number, as in
/// `snapshot_7.pickle`.
pub(super) fn number_by_file_names(ranks: &mut [RankDigest]) {
    if ranks.len() < 2 || ranks.iter().any(|rank| rank.rank.is_some()) {
        return;
    }
    let parts: Vec<Vec<Part>> = ranks.iter().map(|rank| natural_key(&rank.file)).collect();
    let differs = |at: &usize| parts.iter().any(|one| one.get(*at) != parts[0].get(*at));
    let mut places = (0..parts[0].len()).filter(differs);
    let (Some(place), None) = (places.next(), places.next()) else { return };
    let number = |one: &Vec<Part>| match one.get(place) {
        Some(Part::Number(number)) if one.len() == parts[0].len() => Some(*number),
        _ => None,
    };
    let numbers: Option<BTreeSet<u64>> = parts.iter().map(number).collect();
    if numbers.is_some_and(|numbers| numbers.len() == ranks.len()) {
        for (rank, one) in ranks.iter_mut().zip(&parts) {
            rank.rank = number(one);
        }
    }
}

/// A part of a name for natural sorting, in which 2 comes before 10.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Number(u64),
    Text(String),
}

/// Splits a name into parts for natural sorting.
pub(super) fn natural_key(name: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        // Treat digits as text if there are too many of them for a number.
        parts.push(part.parse().map_or_else(|_| Part::Text(part.to_owned()), Part::Number));
        rest = after;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_comes_from_names_and_job_from_folders() {
        for (path, rank, job) in [
            ("run/rank3.pickle", Some(3), None),
            ("run/rank_03_memory_snapshot.pickle.gz", Some(3), None),
            ("job=17/rank=12/part-0.pickle", Some(12), Some("17")),
            ("iteration_10/rank0_memory_snapshot.pickle", Some(0), None),
            ("rank7/global-rank-5.pickle", Some(5), None),
            ("ranking.pickle", None, None),
            ("ranks/frankrank2.pickle", Some(2), None),
            ("job=/snapshot.pickle", None, None),
            ("rank99999999999999999999.pickle", None, None),
        ] {
            let name = RankName::of_path(Path::new(path));
            assert_eq!((name.rank, name.job.as_deref()), (rank, job), "{path}");
        }
    }

    #[test]
    fn names_sort_naturally() {
        let mut names = ["rank10.pickle", "rank2.pickle", "rank1.pickle", "a", "rank02b"];
        names.sort_by_key(|name| natural_key(name));
        assert_eq!(names, ["a", "rank1.pickle", "rank2.pickle", "rank02b", "rank10.pickle"]);
        assert_eq!(natural_key("12"), [Part::Number(12)]);
        assert_eq!(natural_key(""), []);
    }
}
