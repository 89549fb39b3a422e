//! Finds leaks across several snapshots of one process: a block that is in two successive snapshots lived from the
//! first to the second. Only each snapshot's live blocks are kept, so that the files can be read one at a time.

use super::alive::{BlockSums, Group, JudgedGroups, JudgedPeriods, StayedBlocks};
use super::periods::CutBy;
use super::recording::keep_largest_stacks;
use super::suppress::Search;
use super::{DeviceLeaks, LeakOptions, LeakReport};
use crate::top::rows::{KnownTotals, Sorter};
use crate::top::{By, TopOptions, TopRow};
use memtrack_blocks::estimate::Precision;
use memtrack_blocks::lifetimes::{is_estimate, lifetimes};
use memtrack_model::Frame;
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::event::{DeviceId, StackId};
use memtrack_model::snapshot::Snapshot;
use memtrack_model::snapshot::pytorch::Key;
use memtrack_symbols::Symbolizer;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};

/// With fewer snapshots than this, growth cannot be distinguished from new memory.
const MIN_SNAPSHOTS: usize = 3;

/// The reason why some files do not form a series.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotASeries {
    /// There are too few files; contains their number.
    TooFew(usize),
    /// One file is a recording and the other is a snapshot from PyTorch; contains the files' names.
    Kinds(String, String),
    /// The files come from different processes; contains the files' names.
    Processes(String, String),
    /// The second file was taken before the first; contains the files' names.
    Order(String, String),
    /// The second file is a copy of the first; contains the files' names.
    Same(String, String),
}

impl std::fmt::Display for NotASeries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooFew(count) => write!(
                f,
                "{count} snapshots are too few to distinguish leaks from new memory: give at least {MIN_SNAPSHOTS} \
                 of one process; memtrack diff shows what changed between two"
            ),
            Self::Kinds(a, b) => {
                write!(f, "{a} and {b} are a recording and a PyTorch snapshot: a series must be of one kind")
            }
            Self::Processes(a, b) => write!(
                f,
                "{a} and {b} are not from one process: their blocks cannot be compared; memtrack diff \
                 compares two runs"
            ),
            Self::Order(a, b) => {
                write!(f, "{b} was taken before {a}: give the files in the order in which they were taken")
            }
            Self::Same(a, b) => write!(f, "the same snapshot twice: {a} and {b}"),
        }
    }
}

impl std::error::Error for NotASeries {}

/// One snapshot of a series, reduced to its live blocks.
#[derive(Debug)]
pub struct ReducedSnapshot {
    name: String,
    is_pytorch: bool,
    process: (u32, String),
    /// When the snapshot was taken, in nanoseconds since the Unix epoch; `None` if the file has no times.
    taken_ns: Option<u64>,
    devices: Vec<ReducedDevice>,
    used: Vec<bool>,
    /// A hash of the snapshot's events and blocks.
    content: u64,
}

#[derive(Debug)]
struct ReducedDevice {
    device: DeviceAnswer,
    /// The place of the device among those of its snapshot.
    ordinal: u16,
    blocks: Vec<ReducedBlock>,
    groups: Vec<(GroupKey, TopRow)>,
    suppressed: BlockSums,
    precision: Precision,
    estimated: bool,
    dropped: u64,
}

#[derive(Clone, Copy, Debug)]
struct ReducedBlock {
    address: u64,
    size_bytes: u64,
    /// The time of the allocation; 0 in snapshots from PyTorch.
    ticks: u64,
    /// A hash of the names in the block's stack; 0 if it has none.
    stack: u64,
    weight: f64,
    group: u32,
}

/// The key that identifies a group in all snapshots of a series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum GroupKey {
    Name(String),
    Frames(Vec<Frame>),
}

impl ReducedSnapshot {
    /// Reduces a snapshot, called `name` in messages, to the live blocks on `devices`.
    pub fn of(
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        devices: &[DeviceId],
        name: impl Into<String>,
        options: &LeakOptions,
    ) -> Self {
        let mut search = Search::new(&options.suppressions);
        let of_device = |&device: &DeviceId| reduce_device(snapshot, symbols, device, &mut search, options);
        let devices = devices.iter().map(of_device).collect();
        Self {
            name: name.into(),
            is_pytorch: snapshot.pytorch.is_some(),
            process: (snapshot.meta.pid, snapshot.meta.program.clone()),
            taken_ns: taken_ns(snapshot),
            devices,
            used: search.used,
            content: hash_content(snapshot),
        }
    }

    fn device(&self, name: &str) -> Option<&ReducedDevice> {
        self.devices.iter().find(|device| device.device.name == name)
    }
}

/// Returns when the snapshot was taken; for a snapshot from PyTorch, this is the time of its newest event.
fn taken_ns(snapshot: &Snapshot) -> Option<u64> {
    let Some(pytorch) = snapshot.pytorch.as_deref() else { return Some(snapshot.clock.last.1) };
    let timed = (0..snapshot.events.len()).filter(|&row| pytorch.events.has(row, Key::TimeUs));
    timed.map(|row| snapshot.clock.time_ns(snapshot.events.ticks[row])).max()
}

/// Returns a hash of a snapshot's events and blocks; snapshots with equal hashes are considered the same.
fn hash_content(snapshot: &Snapshot) -> u64 {
    let mut hasher = foldhash::quality::FixedState::default().build_hasher();
    let (first, last) = (snapshot.clock.first, snapshot.clock.last);
    (first, last, snapshot.meta.pid).hash(&mut hasher);
    let events = &snapshot.events;
    for row in 0..events.len() {
        (events.ticks[row], events.address[row], events.size_bytes[row]).hash(&mut hasher);
        std::mem::discriminant(&events.action[row]).hash(&mut hasher);
    }
    for block in &snapshot.blocks {
        (block.address, block.size_bytes, block.ticks).hash(&mut hasher);
    }
    hasher.finish()
}

fn reduce_device(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    device: DeviceId,
    search: &mut Search<'_>,
    options: &LeakOptions,
) -> ReducedDevice {
    let lifetimes = lifetimes(snapshot, device);
    let precision = Precision::of(snapshot, device, &lifetimes);
    let estimated = is_estimate(snapshot, device, &lifetimes);
    let top = TopOptions::new().rules(options.rules.clone()).patterns(options.patterns.clone());
    let mut sorter = Sorter::new(snapshot, symbols, options.by, device, &top, &lifetimes)
        .split_foreign_by_stack(options.split_foreign_by_stack);
    let mut of_stacks: HashMap<(u32, StackId), u64, foldhash::fast::RandomState> = HashMap::default();
    let mut stacks: HashMap<StackId, u64> = HashMap::new();
    let (mut blocks, mut suppressed) = (Vec::new(), BlockSums::default());
    for lifetime in lifetimes.iter().filter(|lifetime| lifetime.to.is_none()) {
        if search.is_suppressed(snapshot, lifetime.stack, sorter.symbols()) {
            suppressed.add(lifetime.size_bytes, lifetime.blocks);
            continue;
        }
        let place = sorter.find_or_add_row(lifetime);
        sorter.count(place, lifetime);
        *of_stacks.entry((place.row as u32, lifetime.stack)).or_default() += lifetime.bytes;
        let (address, ticks) = match (lifetime.from, lifetime.block) {
            (Some(row), _) => (snapshot.events.address[row], snapshot.events.ticks[row]),
            (None, Some(row)) => {
                let block = &snapshot.blocks[row as usize];
                (block.address, block.ticks)
            }
            (None, None) => continue,
        };
        let stack = *stacks
            .entry(lifetime.stack)
            .or_insert_with(|| hash_stack(snapshot, lifetime.stack, sorter.symbols()));
        blocks.push(ReducedBlock {
            address,
            size_bytes: lifetime.size_bytes,
            // In a snapshot from PyTorch, the time is known only if the trace contains the allocation.
            ticks: if snapshot.pytorch.is_some() { 0 } else { ticks },
            stack,
            weight: lifetime.blocks,
            group: place.row as u32,
        });
    }
    // Rows without a line in the user's code are identified by the first of their stacks, so keep that stack first.
    let lines = sorter.own_lines();
    let is_of_stacks = matches!(options.by, By::Line | By::Stack | By::Python);
    of_stacks.retain(|&(row, _), _| !is_of_stacks || lines.contains(&(row as usize)));
    keep_largest_stacks(&mut sorter, of_stacks);
    let keyed = |row: TopRow| (group_key(&row, options), row);
    let counts = snapshot.devices.iter().find(|counts| counts.device == device);
    ReducedDevice {
        device: DeviceAnswer::of(snapshot, device),
        ordinal: snapshot.ordinal(device),
        blocks,
        groups: sorter.rows_by_index(&precision, &KnownTotals::UNKNOWN).into_iter().map(keyed).collect(),
        suppressed,
        precision,
        estimated,
        dropped: counts.map_or(0, |counts| counts.dropped),
    }
}

/// Returns a hash of the names in a stack.
fn hash_stack(snapshot: &Snapshot, stack: StackId, symbols: &mut Symbolizer) -> u64 {
    let keys = snapshot.frame_keys(stack);
    if keys.is_empty() {
        return 0;
    }
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    for &key in keys.iter() {
        symbols.frames(key).hash(&mut hasher);
    }
    hasher.finish().max(1)
}

fn group_key(row: &TopRow, options: &LeakOptions) -> GroupKey {
    match options.by {
        By::Line if row.owned.mine.is_some() => GroupKey::Frames(row.owned.mine.iter().cloned().collect()),
        By::Line if !options.split_foreign_by_stack => GroupKey::Name(row.name.clone()),
        By::Line | By::Stack | By::Python if !row.stack.is_empty() => {
            GroupKey::Frames(row.stack.iter().map(|line| line.frame.clone()).collect())
        }
        _ => GroupKey::Name(row.name.clone()),
    }
}

/// Checks that the files come from one process and are in order.
fn check_series(snaps: &[ReducedSnapshot]) -> Result<(), NotASeries> {
    if snaps.len() < MIN_SNAPSHOTS {
        return Err(NotASeries::TooFew(snaps.len()));
    }
    let mut known: HashMap<u64, &ReducedSnapshot> = HashMap::new();
    for snap in snaps {
        if let Some(same) = known.insert(snap.content, snap) {
            return Err(NotASeries::Same(same.name.clone(), snap.name.clone()));
        }
    }
    for pair in snaps.windows(2) {
        let [a, b] = [&pair[0], &pair[1]];
        let names = || (a.name.clone(), b.name.clone());
        if a.is_pytorch != b.is_pytorch {
            let (a, b) = names();
            return Err(NotASeries::Kinds(a, b));
        }
        let shares_none = || {
            let addresses: BTreeSet<(&str, u64)> = blocks_of(a).collect();
            !addresses.is_empty()
                && blocks_of(b).next().is_some()
                && !blocks_of(b).any(|one| addresses.contains(&one))
        };
        if a.process != b.process || (a.is_pytorch && shares_none()) {
            let (a, b) = names();
            return Err(NotASeries::Processes(a, b));
        }
        if a.taken_ns.zip(b.taken_ns).is_some_and(|(a, b)| b < a) {
            let (a, b) = names();
            return Err(NotASeries::Order(a, b));
        }
    }
    Ok(())
}

fn blocks_of(snap: &ReducedSnapshot) -> impl Iterator<Item = (&str, u64)> {
    let of = |device: &ReducedDevice| device.blocks.iter().map(|block| block.address).collect::<Vec<_>>();
    snap.devices
        .iter()
        .flat_map(move |device| of(device).into_iter().map(|address| (device.device.name.as_str(), address)))
}

pub(super) fn find_leaks(
    snaps: Vec<ReducedSnapshot>,
    options: &LeakOptions,
) -> Result<LeakReport, NotASeries> {
    check_series(&snaps)?;
    let seconds = snaps.iter().map(|snap| snap.taken_ns).collect::<Option<Vec<u64>>>();
    let seconds = seconds.map(|all| (all[all.len() - 1] - all[0]) as f64 / 1e9 / (all.len() - 1) as f64);
    let mut names: Vec<(u16, &str)> = Vec::new();
    for device in snaps.iter().flat_map(|snap| &snap.devices) {
        if !names.iter().any(|(_, name)| *name == device.device.name) {
            names.push((device.ordinal, &device.device.name));
        }
    }
    names.sort_unstable();
    let mut notes = Vec::new();
    for (_, name) in &names {
        let lacking = snaps.iter().filter(|snap| snap.device(name).is_none()).map(|snap| snap.name.as_str());
        let lacking: Vec<&str> = lacking.collect();
        if !lacking.is_empty() {
            notes.push(format!("{} has no memory of {name}: counted as empty", lacking.join(", ")));
        }
    }
    if seconds.is_none() {
        notes.push("the files have no times: they are used in the order given".into());
    }
    let unused =
        (0..options.suppressions.len()).filter(|&number| !snaps.iter().any(|snap| snap.used[number]));
    let report = LeakReport {
        by: options.by,
        leaking: false,
        blind: None,
        answer: Vec::new(),
        split_foreign_by_stack: options.split_foreign_by_stack,
        cut: CutBy::Snapshots,
        period_events: None,
        complete: true,
        periods: snaps.len() - 1,
        period_seconds: seconds,
        unused_suppressions: unused.map(|number| options.suppressions.glob(number).to_owned()).collect(),
        devices: names.iter().map(|(_, name)| find_device_leaks(&snaps, name, options)).collect(),
        notes,
    };
    Ok(report.summed_up())
}

/// A block, and the range of successive snapshots that contain it so far.
struct OpenBlock {
    stack: u64,
    size_bytes: u64,
    weight: f64,
    group: usize,
    /// The first snapshot that contains the block.
    born: usize,
    /// The last snapshot that contains the block.
    seen: usize,
}

fn find_device_leaks(snaps: &[ReducedSnapshot], name: &str, options: &LeakOptions) -> DeviceLeaks {
    let mut known: HashMap<&GroupKey, usize> = HashMap::new();
    let mut rows: Vec<&TopRow> = Vec::new();
    let mut stays: Vec<StayedBlocks> = Vec::new();
    let mut open: HashMap<(u64, u64, u64), OpenBlock, foldhash::fast::RandomState> = HashMap::default();
    for (at, snap) in snaps.iter().enumerate() {
        let Some(device) = snap.device(name) else { continue };
        let numbers: Vec<usize> = device
            .groups
            .iter()
            .map(|(key, row)| {
                let number = *known.entry(key).or_insert(rows.len());
                if number == rows.len() {
                    rows.push(row);
                    stays.push(StayedBlocks::new(snaps.len()));
                }
                // The newest snapshot's row has the most information.
                rows[number] = row;
                number
            })
            .collect();
        for block in &device.blocks {
            let place = (block.address, block.size_bytes, block.ticks);
            let group = numbers[block.group as usize];
            if let Some(one) = open.get_mut(&place) {
                let is_same =
                    one.seen + 1 == at && (one.stack == block.stack || one.stack == 0 || block.stack == 0);
                if is_same {
                    one.seen = at;
                    continue;
                }
                stays[one.group].add(one.born, one.seen + 1, one.size_bytes, one.weight);
            }
            let ReducedBlock { size_bytes, stack, weight, .. } = *block;
            open.insert(place, OpenBlock { stack, size_bytes, weight, group, born: at, seen: at });
        }
    }
    let mut never_freed = vec![BlockSums::default(); rows.len()];
    let mut left = never_freed.clone();
    for one in open.into_values() {
        stays[one.group].add(one.born, one.seen + 1, one.size_bytes, one.weight);
        if one.seen + 1 < snaps.len() {
            continue;
        }
        left[one.group].add(one.size_bytes, one.weight);
        // Blocks in the first snapshot are older than the series, so they do not count as new.
        if one.born > 0 {
            never_freed[one.group].add(one.size_bytes, one.weight);
        }
    }
    let newest = snaps.iter().rev().find_map(|snap| snap.device(name)).expect("a snapshot has this device");
    let precision = &newest.precision;
    let groups =
        rows.into_iter().zip(never_freed).zip(left).zip(stays).map(|(((row, never_freed), left), stays)| {
            let mut row = row.clone();
            let amount = never_freed.amount(precision);
            (row.allocated_bytes, row.count) = (amount.bytes, amount.blocks);
            (row.allocated_error, row.count_error) = (amount.bytes_error, amount.blocks_error);
            Group { row, never_freed, freed_later: BlockSums::default(), left, stays: Some((stays, None)) }
        });
    let least = ((snaps.len() - 1) / 2).max(2);
    let judged_periods =
        JudgedPeriods { seconds: 0.0, least, end: 0, seconds_per_tick: None, between_snapshots: true };
    let judged = JudgedGroups::of(groups, &judged_periods, precision, options);
    let is_empty = snaps.iter().all(|snap| snap.device(name).is_none_or(|device| device.blocks.is_empty()));
    DeviceLeaks {
        device: newest.device.clone(),
        blind: is_empty.then(|| "none of the snapshots has live memory of it".into()),
        leaks: judged.leaks,
        leaks_in_all: judged.leaks_in_all,
        leaked: judged.leaked.amount(precision),
        alive: judged.alive.amount(precision),
        alive_groups: judged.alive_groups,
        older: BlockSums::default().amount(precision),
        suppressed: newest.suppressed.amount(precision),
        detection_limit_bytes: if newest.estimated { precision.detection_limit_bytes() } else { 0 },
        dropped: newest.dropped,
        freed_late: Vec::new(),
        generations: None,
    }
}
