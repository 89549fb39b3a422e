//! The devices of the ranks that are compared with one another, their usual values, and the odd ranks.

use super::digest::{DeviceDigest, GroupDigest, MomentDigest, RankDigest};
use super::rule::{LEAST_RANKS, Middle};
use super::skew::Skew;
use super::why::{Difference, differences};
use crate::analysis::estimate::Estimate;
use std::collections::BTreeSet;

/// A measure that is compared between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Measure {
    /// Requested bytes that were live at the peak.
    Peak,
    /// Bytes that were reserved at the moment with the most reserved bytes.
    Reserved,
    /// Bytes that were reserved and not live at that moment.
    Waste,
    /// Requested bytes that are live at the end.
    End,
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 4] = [Self::Peak, Self::Reserved, Self::Waste, Self::End];

    /// Returns its name in lower case, as in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peak => "peak",
            Self::Reserved => "reserved",
            Self::Waste => "waste",
            Self::End => "end",
        }
    }

    /// Returns the bytes of a device; none where its file has none.
    pub fn of(self, device: &DeviceDigest) -> Option<u64> {
        match self {
            Self::Peak => Some(device.peak.requested_bytes),
            Self::Reserved => device.reserved.as_ref().and_then(|at| at.reserved_bytes),
            Self::Waste => device.waste_bytes(),
            Self::End => Some(device.end.requested_bytes),
        }
    }

    /// Returns the error of these bytes.
    fn error(self, device: &DeviceDigest) -> Estimate {
        let of_reserved =
            || device.reserved.as_ref().map_or_else(Estimate::default, |at: &MomentDigest| at.error);
        match self {
            Self::Peak => device.peak.error,
            Self::Reserved => Estimate::default(),
            Self::Waste => of_reserved(),
            Self::End => device.end.error,
        }
    }

    /// Returns the groups that explain it; none for memory that is in no block.
    pub(super) fn groups(self, device: &DeviceDigest) -> Option<&[GroupDigest]> {
        match self {
            Self::Peak => Some(&device.at_peak),
            Self::End => Some(&device.at_end),
            Self::Reserved | Self::Waste => None,
        }
    }
}

/// One kind of memory in all ranks: that of their devices, their heaps, or their pinned memory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RanksMemory {
    /// Its name: `device 0`, `host heap`, `pinned host memory`; `device` where each rank has one, with another number.
    pub name: String,
    /// Whether it is the host heap.
    pub is_host: bool,
    /// Whether it is pinned host memory.
    pub is_pinned: bool,
    /// The ranks that have it, as indices into [`Ranks::ranks`](super::Ranks::ranks), each with the index of its device.
    pub members: Vec<(usize, usize)>,
    /// The usual value of each measure that any of them has.
    pub middles: Vec<(Measure, Middle)>,
    /// The odd ranks, the one that is furthest off first.
    pub outliers: Vec<Outlier>,
    /// The reason why no rank can be called odd; none where one can.
    pub cannot_tell: Option<String>,
    /// The distance between the ranks from step to step; none where fewer than two have marked steps in common.
    pub skew: Option<Skew>,
}

/// An odd rank.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outlier {
    /// Its index in [`Ranks::ranks`](super::Ranks::ranks).
    pub rank: usize,
    /// The measure in which it is odd.
    pub measure: Measure,
    /// Its own bytes.
    pub bytes: u64,
    /// The median of all ranks.
    pub median: u64,
    /// The groups that differ, those that explain most first; empty for memory that is in no block.
    pub why: Vec<Difference>,
}

impl Outlier {
    /// Returns its distance from the median in bytes; negative if it has less.
    pub fn by(&self) -> i128 {
        i128::from(self.bytes) - i128::from(self.median)
    }
}

impl RanksMemory {
    /// Returns the usual value of a measure.
    pub fn middle(&self, measure: Measure) -> Option<&Middle> {
        self.middles.iter().find(|(of, _)| *of == measure).map(|(_, middle)| middle)
    }
}

/// Returns all kinds of memory that the ranks have.
pub(super) fn memories(ranks: &[RankDigest]) -> Vec<RanksMemory> {
    kinds(ranks).into_iter().map(|kind| compared(ranks, kind)).collect()
}

struct Kind {
    name: String,
    members: Vec<(usize, usize)>,
}

/// Returns the groups of devices to compare. A process mostly has one accelerator, with any number on the
/// machine: then these are compared. Where ranks have several, those with the same number are.
/// these are compared. Where ranks have several, those with the same number are.
fn kinds(ranks: &[RankDigest]) -> Vec<Kind> {
    let used = |device: &DeviceDigest| {
        device.peak.requested_bytes > 0
            || device.end.requested_bytes > 0
            || Measure::Reserved.of(device).is_some_and(|bytes| bytes > 0)
            || !device.out_of_memory.is_empty()
    };
    let is_accelerator = |device: &DeviceDigest| !device.is_host && !device.is_pinned;
    let one_each = ranks
        .iter()
        .all(|rank| rank.devices.iter().filter(|device| is_accelerator(device) && used(device)).count() <= 1);
    let mut names: BTreeSet<(u8, u16, &str)> = BTreeSet::new();
    for device in ranks.iter().flat_map(|rank| &rank.devices).filter(|device| used(device)) {
        names.insert(match (device.is_host, device.is_pinned) {
            (true, _) => (2, 0, "host heap"),
            (_, true) => (1, 0, "pinned host memory"),
            _ => (0, device.device, &device.name),
        });
    }
    let members = |belongs: &dyn Fn(&DeviceDigest) -> bool| -> Vec<(usize, usize)> {
        let of_rank = |(place, rank): (usize, &RankDigest)| {
            rank.devices.iter().position(|device| used(device) && belongs(device)).map(|at| (place, at))
        };
        ranks.iter().enumerate().filter_map(of_rank).collect()
    };
    let accelerators = names.iter().filter(|(sort, ..)| *sort == 0).count();
    let mut kinds = Vec::new();
    if one_each && accelerators > 1 {
        kinds.push(Kind { name: "device".into(), members: members(&is_accelerator) });
    }
    for &(sort, _, name) in &names {
        if !(sort == 0 && one_each && accelerators > 1) {
            kinds.push(Kind { name: name.to_owned(), members: members(&|device| device.name == name) });
        }
    }
    kinds
}

fn compared(ranks: &[RankDigest], kind: Kind) -> RanksMemory {
    let Kind { name, members } = kind;
    let device = |&(rank, at): &(usize, usize)| &ranks[rank].devices[at];
    let numbers = |measure: Measure| -> Vec<u64> {
        members.iter().filter_map(|member| measure.of(device(member))).collect()
    };
    let middles: Vec<(Measure, Middle)> = Measure::ALL
        .into_iter()
        .filter_map(|measure| Middle::of(&numbers(measure)).map(|middle| (measure, middle)))
        .collect();
    let mut outliers = Vec::new();
    for &(measure, middle) in &middles {
        for member in &members {
            let Some(bytes) = measure.of(device(member)) else { continue };
            // A rank that wastes less than others is no finding.
            let is_fine = measure == Measure::Waste && bytes < middle.median;
            if !is_fine && middle.is_outlier(bytes, &measure.error(device(member))) {
                let why = differences(ranks, &members, *member, measure);
                outliers.push(Outlier { rank: member.0, measure, bytes, median: middle.median, why });
            }
        }
    }
    // The findings of one rank together, the rank that is furthest off first.
    let furthest = |rank: usize, all: &[Outlier]| {
        all.iter().filter(|one| one.rank == rank).map(|one| one.by().unsigned_abs()).max().unwrap_or(0)
    };
    let order: Vec<u128> = outliers.iter().map(|one| furthest(one.rank, &outliers)).collect();
    let mut with_order: Vec<(u128, Outlier)> = order.into_iter().zip(outliers).collect();
    with_order.sort_by_key(|(furthest, one)| (std::cmp::Reverse(*furthest), one.rank, one.measure));
    let (is_host, is_pinned) =
        members.first().map_or((false, false), |member| (device(member).is_host, device(member).is_pinned));
    RanksMemory {
        name,
        is_host,
        is_pinned,
        middles,
        outliers: with_order.into_iter().map(|(_, one)| one).collect(),
        cannot_tell: cannot_tell(members.len()),
        skew: Skew::of(ranks, &members),
        members,
    }
}

/// Returns the reason why no odd rank can be determined among this many.
fn cannot_tell(ranks: usize) -> Option<String> {
    match ranks {
        0 | 1 => Some("there is no other rank to compare with".into()),
        ranks if ranks < LEAST_RANKS => Some("with two ranks, neither is the odd one".into()),
        _ => None,
    }
}
