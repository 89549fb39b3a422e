//! The devices that are compared across ranks, their usual values, and the ranks that are outliers.

use super::digest::{DeviceDigest, GroupDigest, MomentDigest, RankDigest};
use super::rule::{Distribution, MIN_RANKS};
use super::skew::Skew;
use super::why::{Difference, find_differences};
use memtrack_blocks::estimate::Estimate;
use memtrack_model::event::DeviceKind;
use std::collections::BTreeSet;

/// A measure that is compared between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Measure {
    /// Requested bytes that were live at the peak.
    Peak,
    /// Bytes that were reserved when the most bytes were reserved.
    Reserved,
    /// Bytes that were reserved but not live when the most bytes were reserved.
    Waste,
    /// Requested bytes that are live at the end.
    End,
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 4] = [Self::Peak, Self::Reserved, Self::Waste, Self::End];

    /// Returns the name of the measure in lower case, as used in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Peak => "peak",
            Self::Reserved => "reserved",
            Self::Waste => "waste",
            Self::End => "end",
        }
    }

    /// Returns a device's bytes, or `None` if its file does not contain them.
    pub fn of(self, device: &DeviceDigest) -> Option<u64> {
        match self {
            Self::Peak => Some(device.peak.requested_bytes),
            Self::Reserved => device.reserved.as_ref().and_then(|at| at.reserved_bytes),
            Self::Waste => device.waste_bytes(),
            Self::End => Some(device.end.requested_bytes),
        }
    }

    /// Returns the error of a device's bytes.
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

    /// Returns the groups that explain the measure, or `None` for memory outside blocks.
    pub(super) fn groups(self, device: &DeviceDigest) -> Option<&[GroupDigest]> {
        match self {
            Self::Peak => Some(&device.at_peak),
            Self::End => Some(&device.at_end),
            Self::Reserved | Self::Waste => None,
        }
    }
}

/// One kind of memory across all ranks: device memory, heaps, or pinned host memory.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RanksMemory {
    /// The name of the memory: `device 0`, `host heap`, `mapped memory` or `pinned host memory`; or just `device` if each rank has one
    /// device but the numbers differ.
    pub name: String,
    /// The kind of the memory.
    pub kind: DeviceKind,
    /// The ranks that have this memory, as indices into [`Ranks::ranks`](super::Ranks::ranks), each with the index of
    /// its device.
    pub members: Vec<(usize, usize)>,
    /// The distribution of each measure that any of the ranks has.
    pub distributions: Vec<(Measure, Distribution)>,
    /// The ranks that are outliers, starting with the rank furthest from the median.
    pub outliers: Vec<Outlier>,
    /// The reason why outliers cannot be determined; `None` if they can.
    pub cannot_tell: Option<String>,
    /// The spread of the ranks in each step; `None` unless at least two of the ranks marked steps in common.
    pub skew: Option<Skew>,
}

/// A rank that is an outlier.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Outlier {
    /// The rank's index in [`Ranks::ranks`](super::Ranks::ranks).
    pub rank: usize,
    /// The measure in which the rank is an outlier.
    pub measure: Measure,
    /// The rank's bytes.
    pub bytes: u64,
    /// The median over all ranks.
    pub median: u64,
    /// The groups that differ, starting with those that explain the most; empty for memory outside blocks.
    pub why: Vec<Difference>,
}

impl Outlier {
    /// Returns the rank's distance from the median in bytes; negative if the rank has less.
    pub fn by(&self) -> i128 {
        i128::from(self.bytes) - i128::from(self.median)
    }
}

impl RanksMemory {
    /// Returns the distribution of the given measure.
    pub fn distribution(&self, measure: Measure) -> Option<&Distribution> {
        self.distributions.iter().find(|(of, _)| *of == measure).map(|(_, distribution)| distribution)
    }
}

/// Compares the ranks in each kind of memory that they have.
pub(super) fn compare_memories(ranks: &[RankDigest]) -> Vec<RanksMemory> {
    device_kinds(ranks).into_iter().map(|kind| compare(ranks, kind)).collect()
}

struct Kind {
    name: String,
    members: Vec<(usize, usize)>,
}

/// Returns the groups of devices to compare. Most processes use one accelerator, and its number on the machine is
/// arbitrary, so these accelerators are compared regardless of their numbers. If any rank uses several accelerators,
/// accelerators with the same number are compared.
fn device_kinds(ranks: &[RankDigest]) -> Vec<Kind> {
    let used = |device: &DeviceDigest| {
        device.peak.requested_bytes > 0
            || device.end.requested_bytes > 0
            || Measure::Reserved.of(device).is_some_and(|bytes| bytes > 0)
            || !device.out_of_memory.is_empty()
    };
    let is_accelerator = |device: &DeviceDigest| device.kind.is_accelerator();
    let one_each = ranks
        .iter()
        .all(|rank| rank.devices.iter().filter(|device| is_accelerator(device) && used(device)).count() <= 1);
    let mut names: BTreeSet<(DeviceKind, u16, &str)> = BTreeSet::new();
    for device in ranks.iter().flat_map(|rank| &rank.devices).filter(|device| used(device)) {
        let number = if is_accelerator(device) { device.device } else { 0 };
        names.insert((device.kind, number, &device.name));
    }
    let members = |belongs: &dyn Fn(&DeviceDigest) -> bool| -> Vec<(usize, usize)> {
        let of_rank = |(place, rank): (usize, &RankDigest)| {
            rank.devices.iter().position(|device| used(device) && belongs(device)).map(|at| (place, at))
        };
        ranks.iter().enumerate().filter_map(of_rank).collect()
    };
    let accelerators = names.iter().filter(|(kind, ..)| kind.is_accelerator()).count();
    let mut kinds = Vec::new();
    if one_each && accelerators > 1 {
        kinds.push(Kind { name: "device".into(), members: members(&is_accelerator) });
    }
    for &(kind, _, name) in &names {
        if !(kind.is_accelerator() && one_each && accelerators > 1) {
            kinds.push(Kind { name: name.to_owned(), members: members(&|device| device.name == name) });
        }
    }
    kinds
}

fn compare(ranks: &[RankDigest], kind: Kind) -> RanksMemory {
    let Kind { name, members } = kind;
    let device = |&(rank, at): &(usize, usize)| &ranks[rank].devices[at];
    let numbers = |measure: Measure| -> Vec<u64> {
        members.iter().filter_map(|member| measure.of(device(member))).collect()
    };
    let distributions: Vec<(Measure, Distribution)> = Measure::ALL
        .into_iter()
        .filter_map(|measure| Distribution::of(&numbers(measure)).map(|distribution| (measure, distribution)))
        .collect();
    let mut outliers = Vec::new();
    for &(measure, distribution) in &distributions {
        for member in &members {
            let Some(bytes) = measure.of(device(member)) else { continue };
            // Wasting less than the others is not a problem, so do not report it.
            let is_fine = measure == Measure::Waste && bytes < distribution.median;
            if !is_fine && distribution.is_outlier(bytes, &measure.error(device(member))) {
                let why = find_differences(ranks, &members, *member, measure);
                outliers.push(Outlier { rank: member.0, measure, bytes, median: distribution.median, why });
            }
        }
    }
    // Keep all measures of a rank together, starting with the rank furthest from the median.
    let furthest = |rank: usize, all: &[Outlier]| {
        all.iter().filter(|one| one.rank == rank).map(|one| one.by().unsigned_abs()).max().unwrap_or(0)
    };
    let order: Vec<u128> = outliers.iter().map(|one| furthest(one.rank, &outliers)).collect();
    let mut with_order: Vec<(u128, Outlier)> = order.into_iter().zip(outliers).collect();
    with_order.sort_by_key(|(furthest, one)| (std::cmp::Reverse(*furthest), one.rank, one.measure));
    let of_memory = members.first().map_or(DeviceKind::Device, |member| device(member).kind);
    RanksMemory {
        name,
        kind: of_memory,
        distributions,
        outliers: with_order.into_iter().map(|(_, one)| one).collect(),
        cannot_tell: undetermined_reason(members.len()),
        skew: Skew::of(ranks, &members),
        members,
    }
}

/// Returns the reason why outliers cannot be determined among this many ranks; `None` if they can.
fn undetermined_reason(ranks: usize) -> Option<String> {
    match ranks {
        0 | 1 => Some("there is no other rank to compare with".into()),
        ranks if ranks < MIN_RANKS => Some("with two ranks, neither is the odd one".into()),
        _ => None,
    }
}
