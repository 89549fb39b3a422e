//! Explains why a rank holds more or less than the others, by the groups of its memory that differ from their usual
//! values.

use super::digest::RankDigest;
use super::memory::{Measure, serialize_clamped};
use super::rule::median;
#[cfg(feature = "schema")]
use memtrack_model::answer::NameAnswer;
use memtrack_model::answer::serialize_as_name;
use serde::Serialize;
use std::collections::HashMap;

/// Groups that explain less than 1/1000 of the difference are left out.
const MIN_PART_DIVISOR: u128 = 1000;

/// A group in which a rank differs from the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Difference {
    /// The group's name.
    #[serde(flatten, serialize_with = "serialize_as_name")]
    #[cfg_attr(feature = "schema", schemars(with = "NameAnswer"))]
    pub name: String,
    /// The key that identifies the group in every rank; for a line, `FILE:LINE FUNCTION`.
    pub key: String,
    /// The rank's requested bytes in the group.
    #[serde(rename = "own_bytes")]
    pub bytes: u64,
    /// The number of the rank's blocks in the group.
    #[serde(rename = "own_count")]
    pub blocks: u64,
    /// The median over all ranks of the requested bytes in the group; a rank without the group counts as 0.
    #[serde(rename = "median_bytes")]
    pub median: u64,
    /// The rank's bytes in the group minus the median; negative if the rank has less.
    #[serde(rename = "change_bytes", serialize_with = "serialize_clamped")]
    #[cfg_attr(feature = "schema", schemars(with = "i64"))]
    pub by: i128,
    /// The number of other ranks that have blocks in the group.
    #[serde(rename = "other_ranks")]
    pub others: usize,
}

/// Returns the groups in which the rank at `member` differs from the median, with the largest differences first.
pub(super) fn find_differences(
    ranks: &[RankDigest],
    members: &[(usize, usize)],
    member: (usize, usize),
    measure: Measure,
) -> Vec<Difference> {
    // Memory is reserved for blocks, so the blocks at the peak explain most of the reserved memory.
    let measure = if measure == Measure::Reserved { Measure::Peak } else { measure };
    let groups = |&(rank, at): &(usize, usize)| measure.groups(&ranks[rank].devices[at]);
    let Some(own) = groups(&member) else { return Vec::new() };
    let mut found: HashMap<&str, (Vec<u64>, Difference)> = HashMap::new();
    for one in members {
        for group in groups(one).unwrap_or_default() {
            let empty = || Difference {
                key: group.key.clone(),
                name: group.name.clone(),
                bytes: 0,
                blocks: 0,
                median: 0,
                by: 0,
                others: 0,
            };
            let (all, difference) = found.entry(&group.key).or_insert_with(|| (Vec::new(), empty()));
            all.push(group.bytes);
            difference.others += usize::from(*one != member);
        }
    }
    for group in own {
        if let Some((_, difference)) = found.get_mut(&*group.key) {
            (difference.bytes, difference.blocks) = (group.bytes, group.blocks);
            difference.name.clone_from(&group.name);
        }
    }
    let mut differences: Vec<Difference> = found
        .into_values()
        .map(|(mut all, difference)| {
            all.resize(members.len(), 0);
            let median = median(&mut all).unwrap_or(0);
            let by = i128::from(difference.bytes) - i128::from(median);
            Difference { median, by, ..difference }
        })
        .filter(|difference| difference.by != 0)
        .collect();
    differences.sort_by(|a, b| b.by.unsigned_abs().cmp(&a.by.unsigned_abs()).then_with(|| a.key.cmp(&b.key)));
    let all: u128 = differences.iter().map(|difference| difference.by.unsigned_abs()).sum();
    differences.retain(|difference| difference.by.unsigned_abs() * MIN_PART_DIVISOR >= all);
    differences
}
