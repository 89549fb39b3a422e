//! Reduces a file to its groups. Only these groups stay in memory while the other file is read.

use super::moved_lines::Functions;
use super::names::strip_indices;
use super::{DiffAt, DiffBy};
use crate::top::{By, StackLine, TopOptions, TopReport, TopRow, top_with};
use memtrack_blocks::change::Amount;
use memtrack_blocks::moment::Moment;
use memtrack_frames::ownership::Rules;
use memtrack_frames::trim::is_internal;
use memtrack_model::Frame;
use memtrack_model::answer::DeviceAnswer;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;
use memtrack_symbols::Symbolizer;
use std::collections::{HashMap, HashSet};

/// One file, reduced to its groups.
#[derive(Debug)]
#[non_exhaustive]
pub struct Side {
    /// The key by which allocations are grouped.
    pub by: DiffBy,
    /// The blocks that are counted.
    pub at: DiffAt,
    /// Whether the file is in PyTorch's format.
    pub is_pytorch: bool,
    /// The file's devices, each with its groups.
    pub devices: Vec<SideDevice>,
    pub(super) has_stacks: bool,
    pub(super) has_scopes: bool,
    pub(super) seconds: Option<f64>,
    pub(super) functions: Functions,
    pub(super) rules: Rules,
}

/// A device of one file.
#[derive(Debug)]
#[non_exhaustive]
pub struct SideDevice {
    /// The device.
    pub device: DeviceAnswer,
    /// The total number of requested bytes.
    pub bytes: Amount,
    /// The total number of blocks.
    pub blocks: Amount,
    /// The number of older events that did not fit in the recorder's ring.
    pub dropped: u64,
    /// Groups with fewer bytes than this may have no sample; 0 if every block was recorded.
    pub detection_limit_bytes: u64,
    /// The maximum number of blocks that a group without a sample can have.
    pub(super) detection_limit_blocks: f64,
    pub(super) groups: Vec<Group>,
}

/// A group of one file.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) key: GroupKey,
    pub(super) bytes: Amount,
    pub(super) blocks: Amount,
    pub(super) members: u64,
}

/// The key that identifies a group within a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum GroupKey {
    Name(String),
    /// The numbers that [`Functions`] assigned to the functions of the stack, innermost first.
    Stack(Vec<u32>),
}

impl Side {
    /// Reduces `devices` of a snapshot to their groups; `rules` decide which lines are in the user's code.
    pub fn of(
        snapshot: &Snapshot,
        symbols: &mut Symbolizer,
        devices: &[DeviceId],
        by: DiffBy,
        at: DiffAt,
        rules: &Rules,
    ) -> Self {
        let ranked = match by {
            DiffBy::Line => By::Line,
            DiffBy::Stack => By::Stack,
            DiffBy::Operator => By::Operator,
            DiffBy::Module => By::Module,
            DiffBy::Phase => By::Phase,
            DiffBy::Category => By::Category,
        };
        let moment = match at {
            DiffAt::Peak => Some(Moment::Peak),
            DiffAt::End => Some(Moment::End),
            DiffAt::Total => None,
        };
        let options =
            TopOptions::new().limit(usize::MAX).at(moment).rules(rules.clone()).prepare_for_matching();
        let ticks = &snapshot.events.ticks;
        let seconds = |tick: &u64| snapshot.clock.seconds_since_start(*tick);
        let ends = ticks.iter().min().zip(ticks.iter().max()).filter(|_| snapshot.has_times());
        let mut side = Self {
            by,
            at,
            is_pytorch: snapshot.pytorch.is_some(),
            devices: Vec::new(),
            has_stacks: false,
            has_scopes: snapshot.scopes.rows.len() > 1,
            seconds: ends.map(|(first, last)| seconds(last) - seconds(first)),
            functions: Functions::default(),
            rules: rules.clone(),
        };
        for &device in devices {
            let report = top_with(snapshot, symbols, ranked, device, &options);
            side.devices.push(reduce(report, by, at, &mut side.functions));
        }
        side.record_lines(snapshot, symbols);
        side
    }

    /// Records the lines of all stacks, because all of them are needed to determine which of a function's lines moved.
    fn record_lines(&mut self, snapshot: &Snapshot, symbols: &mut Symbolizer) {
        let blocks = snapshot.blocks.iter().map(|block| block.stack);
        let stacks: HashSet<_, foldhash::fast::RandomState> =
            snapshot.events.stack.iter().copied().chain(blocks).filter(|stack| !stack.is_none()).collect();
        self.has_stacks = !stacks.is_empty();
        if !matches!(self.by, DiffBy::Line | DiffBy::Stack) {
            return;
        }
        let mut seen: HashSet<u64, foldhash::fast::RandomState> = HashSet::default();
        for stack in stacks {
            for &key in snapshot.frame_keys(stack).iter() {
                if seen.insert(key) {
                    symbols.frames(key).iter().for_each(|frame| self.functions.record_line(frame));
                }
            }
        }
    }

    /// Returns whether the file contains nothing to compare.
    pub fn is_empty(&self) -> bool {
        self.devices.iter().all(|device| device.groups.is_empty() && device.bytes.value == 0)
    }

    /// Returns the kind of file, as text.
    pub(super) fn kind_text(&self) -> &'static str {
        if self.is_pytorch { "a PyTorch snapshot" } else { "a recording" }
    }
}

/// Reduces a ranking to its groups.
fn reduce(report: TopReport, by: DiffBy, at: DiffAt, functions: &mut Functions) -> SideDevice {
    let totals = &report.totals;
    let exact = report.statistics.counted && report.statistics.dropped == 0;
    let (bytes, blocks) = match at {
        DiffAt::Peak => {
            (Amount::new(report.peak.bytes, report.peak.error), Amount::new(totals.count, totals.count_error))
        }
        // The recorder counts every block, even if it records only a sample of them.
        DiffAt::Total if exact => {
            (Amount::exact(report.statistics.allocated_bytes), Amount::exact(report.statistics.allocations))
        }
        _ => (
            Amount::new(totals.allocated_bytes, totals.bytes_error),
            Amount::new(totals.count, totals.count_error),
        ),
    };
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<GroupKey, usize> = HashMap::new();
    for row in report.rows {
        // A ranking of all allocations also has rows for blocks that were live at the peak but were allocated before the
        // recording.
        if row.allocated_bytes == 0 && row.count == 0 {
            continue;
        }
        let (bytes, blocks) =
            (Amount::new(row.allocated_bytes, row.allocated_error), Amount::new(row.count, row.count_error));
        let key = group_key(&row, by, functions);
        match known.get(&key) {
            Some(&group) => {
                let group = &mut groups[group];
                group.bytes = group.bytes + bytes;
                group.blocks = group.blocks + blocks;
                group.members += 1;
            }
            None => {
                known.insert(key.clone(), groups.len());
                groups.push(Group { key, bytes, blocks, members: 1 });
            }
        }
    }
    if matches!(by, DiffBy::Line | DiffBy::Stack) {
        // Rows whose stacks have the same functions are a single group to the user, so they are not counted as merged.
        groups.iter_mut().for_each(|group| group.members = 1);
    }
    let blocks_limit = match report.detection_limit_bytes {
        0 => 0.0,
        // The smallest blocks of allocators are 16 bytes.
        bytes => bytes as f64 / 16.0,
    };
    SideDevice {
        device: report.device,
        bytes,
        blocks,
        dropped: report.statistics.dropped,
        detection_limit_bytes: report.detection_limit_bytes,
        detection_limit_blocks: blocks_limit,
        groups,
    }
}

/// Returns the key of a row's group.
fn group_key(row: &TopRow, by: DiffBy, functions: &mut Functions) -> GroupKey {
    match by {
        DiffBy::Line => match &row.owned.mine {
            Some(line) => GroupKey::Stack(vec![functions.assign_number(line)]),
            None => GroupKey::Name(row.name.clone()),
        },
        DiffBy::Stack if !row.stack.is_empty() => {
            let is_informative = |line: &&StackLine| !is_internal(&line.frame);
            // A stack that contains only uninformative frames is identified by those frames.
            let all: Vec<&Frame> = match row.stack.iter().any(|line| is_informative(&line)) {
                true => row.stack.iter().filter(is_informative).map(|line| &line.frame).collect(),
                false => row.stack.iter().map(|line| &line.frame).collect(),
            };
            GroupKey::Stack(all.into_iter().map(|frame| functions.assign_number(frame)).collect())
        }
        DiffBy::Stack | DiffBy::Phase | DiffBy::Category => GroupKey::Name(row.name.clone()),
        DiffBy::Operator | DiffBy::Module => GroupKey::Name(strip_indices(&row.name)),
    }
}
