//! The lifetimes of a group's blocks: the 99th percentile for freed blocks, and the age at the end for all other blocks.
//! Times are kept in histograms whose buckets grow by a fifth, so that a group takes 3 KB regardless of its number of
//! blocks.

use serde::Serialize;

/// The number of buckets per doubling of the time.
const BUCKETS_PER_DOUBLING: f64 = 4.0;
/// The number of buckets, which cover times up to 2^62 nanoseconds.
const BUCKET_COUNT: usize = 250;
/// If fewer blocks than this were freed, their usual lifetime is unknown.
const MIN_FREED_BLOCKS: f64 = 100.0;
/// The share of freed blocks whose lifetimes count as usual.
const USUAL_SHARE: f64 = 0.99;
/// A block is far older than usual if its age is at least this many times the usual lifetime.
const MIN_FAR_OLDER_FACTOR: f64 = 10.0;

/// The ages of a group's blocks, at the free or, if they were never freed, at the end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Age {
    /// The number of the group's blocks that were freed.
    #[serde(rename = "freed_count")]
    pub freed: u64,
    /// The usual lifetime of a block in seconds: 99 % of the freed blocks were freed within this time.
    pub usual_seconds: f64,
    /// The number of the group's blocks that were never freed and are more than ten times as old as `usual_seconds`.
    #[serde(rename = "far_older_count")]
    pub far_older: u64,
    /// The total bytes of the blocks that `far_older_count` counts.
    pub far_older_bytes: u64,
}

/// Histograms of one group's lifetimes and ages.
#[derive(Clone, Debug)]
pub(super) struct Ages {
    freed: Box<[f32; BUCKET_COUNT]>,
    /// For each bucket, the number and the bytes of the blocks that were never freed.
    alive: Box<[[f32; 2]; BUCKET_COUNT]>,
}

impl Default for Ages {
    fn default() -> Self {
        Self { freed: Box::new([0.0; BUCKET_COUNT]), alive: Box::new([[0.0; 2]; BUCKET_COUNT]) }
    }
}

fn bucket_index(seconds: f64) -> usize {
    let bucket = (seconds * 1e9).max(1.0).log2() * BUCKETS_PER_DOUBLING;
    (bucket as usize).min(BUCKET_COUNT - 1)
}

/// Returns the upper bound of a bucket in seconds.
fn bucket_end(bucket: usize) -> f64 {
    ((bucket + 1) as f64 / BUCKETS_PER_DOUBLING).exp2() / 1e9
}

impl Ages {
    /// Adds blocks that were freed after `seconds`.
    pub(super) fn add_freed(&mut self, seconds: f64, blocks: f64) {
        self.freed[bucket_index(seconds)] += blocks as f32;
    }

    /// Adds blocks that are `seconds` old and were not freed.
    pub(super) fn add_alive(&mut self, seconds: f64, blocks: f64, bytes: f64) {
        let [all_blocks, all_bytes] = &mut self.alive[bucket_index(seconds)];
        *all_blocks += blocks as f32;
        *all_bytes += bytes as f32;
    }

    /// Returns the ages, or `None` if too few blocks were freed to know the usual lifetime.
    pub(super) fn age(&self) -> Option<Age> {
        let freed: f64 = self.freed.iter().map(|&blocks| f64::from(blocks)).sum();
        if freed < MIN_FREED_BLOCKS {
            return None;
        }
        let mut so_far = 0.0;
        let usual = self.freed.iter().position(|&blocks| {
            so_far += f64::from(blocks);
            so_far >= USUAL_SHARE * freed
        });
        let usual_seconds = bucket_end(usual.unwrap_or(BUCKET_COUNT - 1));
        let far = self.alive.iter().skip(bucket_index(MIN_FAR_OLDER_FACTOR * usual_seconds) + 1);
        let [blocks, bytes] =
            far.fold([0.0; 2], |sum, alive| [0, 1].map(|unit| sum[unit] + f64::from(alive[unit])));
        Some(Age {
            freed: freed.round() as u64,
            usual_seconds,
            far_older: blocks.round() as u64,
            far_older_bytes: bytes.round() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_lifetime_comes_from_freed_blocks() {
        let mut ages = Ages::default();
        (0..99).for_each(|_| ages.add_freed(1e-3, 1.0));
        assert_eq!(ages.age(), None, "too few");
        (0..901).for_each(|_| ages.add_freed(1e-3, 1.0));
        ages.add_freed(5.0, 2.0);
        ages.add_alive(5e-3, 1.0, 100.0);
        ages.add_alive(0.5, 3.0, 300.0);
        let age = ages.age().unwrap();
        assert!(age.usual_seconds >= 1e-3 && age.usual_seconds < 1.3e-3, "{age:?}");
        assert_eq!((age.freed, age.far_older, age.far_older_bytes), (1002, 3, 300));
    }

    #[test]
    fn times_of_any_length_have_bucket() {
        for seconds in [0.0, 1e-9, 1.0, 1e9, f64::INFINITY] {
            assert!(bucket_index(seconds) < BUCKET_COUNT);
        }
        assert!((0..60).all(|power| {
            let seconds = f64::from(1 << (power / 2)) / 1e9;
            seconds <= bucket_end(bucket_index(seconds)) && bucket_end(bucket_index(seconds)) < seconds * 1.2
        }));
    }
}
