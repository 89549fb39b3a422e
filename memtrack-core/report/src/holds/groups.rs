//! Adds up the held memory by scope and stack, symbolizes the stacks (starting with the largest groups) until the time
//! limit, and merges groups with the same line.

use super::{Growth, Holder, HoldsQuery, Kind, Marker};
use crate::top::strip_types;
use memtrack_blocks::estimate::{Estimate, KnownTotal, Precision, Sum};
use memtrack_blocks::lifetimes::Lifetime;
use memtrack_frames::attribution::Attributor;
use memtrack_frames::framework_operators::Patterns;
use memtrack_frames::ownership::Owners;
use memtrack_model::Frame;
use memtrack_model::event::{DeviceId, ScopeId, StackId};
use memtrack_model::snapshot::Snapshot;
use memtrack_model::units::{printable, shorten_middle};
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;
use std::time::Instant;

/// The number of the largest groups that are symbolized regardless of the time limit, because the report would be
/// useless without them.
const MIN_SYMBOLIZED_GROUPS: usize = 8;

/// The maximum number of characters in a line's or module's name.
const MAX_CHARS: usize = 90;

/// Sums over blocks, with the data needed to compute their errors.
#[derive(Clone, Copy, Debug, Default)]
struct GroupSums {
    bytes: u64,
    blocks: f64,
    byte_sum: Sum,
    block_sum: Sum,
}

impl GroupSums {
    fn add(&mut self, one: &Lifetime) {
        self.bytes = self.bytes.saturating_add(one.bytes);
        self.blocks += one.blocks;
        self.byte_sum.add(one.size_bytes as f64, one.blocks);
        self.block_sum.add(1.0, one.blocks);
    }

    fn merge(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks += other.blocks;
        self.byte_sum = self.byte_sum.with(&other.byte_sum);
        self.block_sum = self.block_sum.with(&other.block_sum);
    }
}

/// The blocks with the same scope and stack.
#[derive(Clone, Copy, Debug)]
struct Pair {
    scope: ScopeId,
    stack: StackId,
    /// Whether the blocks' allocations are known; if not, the scope and the stack are `NONE`.
    known: bool,
    held: GroupSums,
    grown: GroupSums,
}

/// The blocks with the same line.
#[derive(Debug)]
struct Group {
    kind: Kind,
    line: String,
    frame: Option<Frame>,
    held: GroupSums,
    grown: GroupSums,
    /// The bytes of each module; `phases` has the bytes of each phase.
    modules: HashMap<String, u64>,
    phases: HashMap<String, u64>,
}

/// The key by which blocks are merged into a group.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Line(Frame),
    Name(Kind, String),
}

pub(super) struct Groups<'a> {
    snapshot: &'a Snapshot,
    precision: Precision,
    /// The known total of all groups.
    total: KnownTotal,
    /// Whether the recording covers all events up to the described moment.
    is_complete: bool,
    pairs: Vec<Pair>,
    groups: Vec<Group>,
}

/// Returns the time in ticks at which a block was allocated, or `None` if it is unknown.
pub(super) fn ticks_of(snapshot: &Snapshot, one: &Lifetime) -> Option<u64> {
    match (one.from, one.block) {
        (Some(row), _) => Some(snapshot.events.ticks[row]),
        (None, Some(block)) if snapshot.pytorch.is_none() => Some(snapshot.blocks[block as usize].ticks),
        _ => None,
    }
}

impl<'a> Groups<'a> {
    /// Adds up `live`, the blocks of `all` that are held. Blocks that were allocated after `marker` count as growth.
    pub(super) fn of(
        snapshot: &'a Snapshot,
        device: DeviceId,
        all: &[Lifetime],
        live: &[&Lifetime],
        marker: Option<u64>,
    ) -> Self {
        let mut pairs: HashMap<(ScopeId, StackId, bool), Pair, foldhash::fast::RandomState> =
            HashMap::default();
        for one in live {
            let new = Pair {
                scope: one.scope,
                stack: one.stack,
                known: one.known,
                held: GroupSums::default(),
                grown: GroupSums::default(),
            };
            let pair = pairs.entry((one.scope, one.stack, one.known)).or_insert(new);
            pair.held.add(one);
            if marker.is_some_and(|marker| ticks_of(snapshot, one).is_some_and(|ticks| ticks > marker)) {
                pair.grown.add(one);
            }
        }
        let mut pairs: Vec<Pair> = pairs.into_values().collect();
        // Largest first, with a fixed order for groups of equal size.
        pairs.sort_by_key(|pair| (std::cmp::Reverse(pair.held.bytes), pair.stack, pair.scope));
        let precision = Precision::of(snapshot, device, all);
        Self { snapshot, precision, total: KnownTotal::UNKNOWN, is_complete: true, pairs, groups: Vec::new() }
    }

    /// Caps the total at `most` bytes. If `is_complete` is false, the end of the recording is missing, so more memory
    /// may have been allocated.
    pub(super) fn cap(&mut self, most: f64, is_complete: bool) {
        let all = self.pairs.iter().fold(Sum::default(), |all, pair| all.with(&pair.held.byte_sum));
        (self.total, self.is_complete) = (KnownTotal::of(most, &all), is_complete);
    }

    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Returns the bytes and blocks of all groups, with their errors.
    pub(super) fn totals(&self) -> (u64, Estimate, u64, Estimate) {
        let mut all = GroupSums::default();
        self.pairs.iter().for_each(|pair| all.merge(&pair.held));
        let (bytes, blocks) = self.errors(&all);
        (all.bytes, bytes, all.blocks.round() as u64, blocks)
    }

    fn errors(&self, sums: &GroupSums) -> (Estimate, Estimate) {
        (self.precision.bytes(&sums.byte_sum), self.precision.blocks(&sums.block_sum))
    }

    /// Looks up the lines, and merges the pairs of scope and stack into groups with the same line.
    pub(super) fn symbolize(&mut self, symbols: &mut Symbolizer, query: &HoldsQuery) {
        let begun = Instant::now();
        let patterns = Patterns::default();
        let mut owners = Owners::new(&query.rules);
        let mut attributor = Attributor::new(self.snapshot, &patterns);
        let mut known: HashMap<Key, usize> = HashMap::new();
        for (place, pair) in self.pairs.iter().enumerate() {
            let in_time = place < MIN_SYMBOLIZED_GROUPS
                || query.symbol_time_limit.is_none_or(|limit| begun.elapsed() < limit);
            let keys = self.snapshot.frame_keys(pair.stack);
            let place = self.snapshot.scopes.place(pair.scope);
            let (mut kind, mut frame) = (Kind::Line, None);
            let line = if !pair.known {
                kind = Kind::Older;
                "blocks from before recording began".to_owned()
            } else if keys.is_empty() || !in_time {
                kind = if keys.is_empty() { Kind::NoStack } else { Kind::NoTime };
                match place.operator_name() {
                    Some(operator) => operator.trim_start_matches('.').to_owned(),
                    None if keys.is_empty() => "blocks without a stack".to_owned(),
                    None => "stacks not symbolized in time".to_owned(),
                }
            } else {
                let owned = owners.owner(&keys, symbols);
                match &owned.mine {
                    Some(mine) => frame = Some(strip_types(mine.clone())),
                    None => kind = Kind::Foreign,
                }
                owned.to_string()
            };
            let key = match &frame {
                Some(frame) => Key::Line(frame.clone()),
                None => Key::Name(kind, line.clone()),
            };
            let number = *known.entry(key).or_insert_with(|| {
                let line = shorten_middle(&printable(&line), MAX_CHARS);
                let (modules, phases) = Default::default();
                let (held, grown) = Default::default();
                self.groups.push(Group { kind, line, frame, held, grown, modules, phases });
                self.groups.len() - 1
            });
            let group = &mut self.groups[number];
            group.held.merge(&pair.held);
            group.grown.merge(&pair.grown);
            // Stacks are symbolized only within the time limit, but scope names need no symbols.
            let (module, phase) = match in_time && pair.known {
                true => (
                    attributor.module(pair.scope, pair.stack, symbols),
                    attributor.phase(pair.scope, pair.stack, symbols),
                ),
                false => (place.module_path(), place.phase),
            };
            // A name in parentheses is a placeholder that stands for no module.
            if !module.is_empty() && !module.starts_with('(') {
                *group.modules.entry(module).or_default() += pair.held.bytes;
            }
            if let Some(phase) = phase {
                *group.phases.entry(phase.to_string()).or_default() += pair.held.bytes;
            }
        }
        self.groups.sort_by(|a, b| b.held.bytes.cmp(&a.held.bytes).then_with(|| a.line.cmp(&b.line)));
    }

    /// Returns the `limit` groups that hold the most memory, with their shares of `all_bytes`.
    pub(super) fn largest_holders(&self, limit: usize, all_bytes: u64) -> Vec<Holder> {
        let holder = |group: &Group| {
            let (error, _) = self.errors(&group.held);
            let error = self.total.part(error, &group.held.byte_sum).with_completeness(self.is_complete);
            let bytes = self.total.rounded(&group.held.byte_sum, group.held.bytes);
            Holder {
                line: group.line.clone(),
                frame: group.frame.clone(),
                allocated_bytes: bytes,
                count: group.held.blocks.round() as u64,
                share: (bytes as f64 / all_bytes.max(1) as f64).min(1.0),
                module: majority_name(&group.modules, group.held.bytes),
                phase: majority_name(&group.phases, group.held.bytes),
                error,
                kind: group.kind,
            }
        };
        self.groups.iter().filter(|group| group.held.bytes > 0).take(limit).map(holder).collect()
    }

    /// Adds up the memory that was allocated after the marker and is held at `ticks`.
    pub(super) fn growth_since(&self, snapshot: &Snapshot, marker: &Marker, ticks: u64) -> Option<Growth> {
        let mut all = GroupSums::default();
        self.groups.iter().for_each(|group| all.merge(&group.grown));
        let most = self.groups.iter().max_by_key(|group| group.grown.bytes);
        let most = most.filter(|group| group.grown.bytes > 0);
        let seconds =
            snapshot.clock.seconds_since_start(ticks) - snapshot.clock.seconds_since_start(marker.ticks);
        Some(Growth {
            since: marker.name.clone(),
            since_midpoint: marker.is_midpoint,
            seconds,
            allocated_bytes: self.total.rounded(&all.byte_sum, all.bytes),
            count: all.blocks.round() as u64,
            most_line: most.map(|group| group.line.clone()),
            most_bytes: most.map(|group| self.total.rounded(&group.grown.byte_sum, group.grown.bytes)),
            error: self.total.part(self.errors(&all).0, &all.byte_sum),
            most_error: most.map_or(Estimate::default(), |group| {
                self.total.part(self.errors(&group.grown).0, &group.grown.byte_sum)
            }),
        })
    }
}

/// Returns the name that accounts for more than half of the bytes, or `None` if no name does.
fn majority_name(names: &HashMap<String, u64>, of: u64) -> Option<String> {
    let (name, bytes) = names.iter().max_by_key(|(name, bytes)| (**bytes, std::cmp::Reverse(*name)))?;
    (*bytes > of / 2).then(|| shorten_middle(&printable(name), MAX_CHARS))
}
