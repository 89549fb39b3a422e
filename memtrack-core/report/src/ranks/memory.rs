//! The devices that are compared across ranks, their usual values, and the ranks that are outliers.

use super::digest::{DeviceDigest, GroupDigest, MomentDigest, RankDigest};
use super::rule::{Distribution, MIN_RANKS};
use super::skew::Skew;
use super::why::{Difference, find_differences};
use memtrack_blocks::estimate::Estimate;
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::event::DeviceKind;
use serde::{Serialize, Serializer};
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

    /// Returns the name of the measure in lower case.
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
            Self::Waste => device.waste_bytes,
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

memtrack_model::serialize_as!(Measure => &'static str: |measure| measure.name());

/// The distribution of one measure over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MeasureDistribution {
    /// The measure that is compared: `peak`, `reserved`, `waste` or `end`.
    pub measure: Measure,
    /// Its distribution.
    #[serde(flatten)]
    pub distribution: Distribution,
}

/// A comparison of the ranks for one kind of memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct RanksMemory {
    /// The device whose memory is compared; it has no number if each rank has one device but the numbers differ.
    pub device: DeviceAnswer,
    /// The indices in `ranks` of the ranks that have this memory; in a program, each with the index of its device.
    #[serde(serialize_with = "serialize_places")]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<usize>"))]
    pub members: Vec<(usize, usize)>,
    /// The distribution over the ranks of each measure that any of them has.
    pub measures: Vec<MeasureDistribution>,
    /// The reason why outliers cannot be determined; null if they can.
    pub cannot_tell: Option<String>,
    /// The ranks that are outliers, starting with the rank furthest from the median.
    pub outliers: Vec<Outlier>,
    /// The spread between the ranks in each step; null unless at least two of them marked the same steps.
    pub skew: Option<Skew>,
}

/// Serializes the ranks' indices without those of their devices.
fn serialize_places<S: Serializer>(members: &[(usize, usize)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(members.iter().map(|(place, _)| place))
}

/// Serializes a sum, clamped to a number that JSON parsers accept, because sums in a file from another source may be
/// larger.
pub(super) fn serialize_clamped<S: Serializer>(sum: &i128, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i64(i64::try_from(*sum).unwrap_or(if *sum > 0 { i64::MAX } else { i64::MIN }))
}

/// A rank that is an outlier.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Outlier {
    /// The index of the rank in `ranks`.
    pub place: usize,
    /// The number of the rank; null if it is unknown.
    pub rank: Option<u64>,
    /// The measure in which the rank is an outlier.
    pub measure: Measure,
    /// The rank's value of the measure, in bytes.
    #[serde(rename = "own_bytes")]
    pub bytes: u64,
    /// The median of the measure over all ranks, in bytes.
    #[serde(rename = "median_bytes")]
    pub median: u64,
    /// The rank's bytes minus the median; negative if the rank has less.
    #[serde(rename = "change_bytes", serialize_with = "serialize_clamped")]
    #[cfg_attr(feature = "schema", schemars(with = "i64"))]
    pub by: i128,
    /// The groups in which the rank differs from the others, starting with those that explain the most. For `reserved`,
    /// these are the groups that were live at the peak. For `waste`, there are none because it is memory outside
    /// blocks.
    pub why: Vec<Difference>,
}

impl RanksMemory {
    /// Returns the distribution of the given measure.
    pub fn distribution(&self, measure: Measure) -> Option<&Distribution> {
        self.measures.iter().find(|one| one.measure == measure).map(|one| &one.distribution)
    }
}

/// Compares the ranks in each kind of memory that they have.
pub(super) fn compare_memories(ranks: &[RankDigest]) -> Vec<RanksMemory> {
    device_kinds(ranks).into_iter().map(|kind| compare(ranks, kind)).collect()
}

/// The name of device memory whose number differs from rank to rank.
const ANY_DEVICE: &str = "device";

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
    let is_accelerator = |device: &DeviceDigest| device.device.kind.is_accelerator();
    let one_each = ranks
        .iter()
        .all(|rank| rank.devices.iter().filter(|device| is_accelerator(device) && used(device)).count() <= 1);
    let mut names: BTreeSet<(DeviceKind, u16, &str)> = BTreeSet::new();
    for device in ranks.iter().flat_map(|rank| &rank.devices).filter(|device| used(device)) {
        let number = if is_accelerator(device) { device.ordinal } else { 0 };
        names.insert((device.device.kind, number, &device.device.name));
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
        kinds.push(Kind { name: ANY_DEVICE.into(), members: members(&is_accelerator) });
    }
    for &(kind, _, name) in &names {
        if !(kind.is_accelerator() && one_each && accelerators > 1) {
            kinds
                .push(Kind { name: name.to_owned(), members: members(&|device| device.device.name == name) });
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
    let distribution = |measure| {
        Distribution::of(&numbers(measure)).map(|distribution| MeasureDistribution { measure, distribution })
    };
    let measures: Vec<MeasureDistribution> = Measure::ALL.into_iter().filter_map(distribution).collect();
    let mut outliers = Vec::new();
    for &MeasureDistribution { measure, distribution } in &measures {
        for member in &members {
            let Some(bytes) = measure.of(device(member)) else { continue };
            // Wasting less than the others is not a problem, so do not report it.
            let is_fine = measure == Measure::Waste && bytes < distribution.median;
            if !is_fine && distribution.is_outlier(bytes, &measure.error(device(member))) {
                outliers.push(Outlier {
                    place: member.0,
                    rank: ranks[member.0].rank,
                    measure,
                    bytes,
                    median: distribution.median,
                    by: i128::from(bytes) - i128::from(distribution.median),
                    why: find_differences(ranks, &members, *member, measure),
                });
            }
        }
    }
    // Keep all measures of a rank together, starting with the rank furthest from the median.
    let furthest = |place: usize, all: &[Outlier]| {
        all.iter().filter(|one| one.place == place).map(|one| one.by.unsigned_abs()).max().unwrap_or(0)
    };
    let order: Vec<u128> = outliers.iter().map(|one| furthest(one.place, &outliers)).collect();
    let mut with_order: Vec<(u128, Outlier)> = order.into_iter().zip(outliers).collect();
    with_order.sort_by_key(|(furthest, one)| (std::cmp::Reverse(*furthest), one.place, one.measure));
    RanksMemory {
        device: match &*name {
            ANY_DEVICE => DeviceAnswer { name, ..DeviceAnswer::default() },
            _ => DeviceAnswer::from_name(&name),
        },
        measures,
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
