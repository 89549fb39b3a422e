//! What a device's memory is for, at a moment and by phase of a training step: what `memtrack categories` prints.

mod json;
mod owners;
pub(crate) mod text;

pub use json::{
    CategoryAnswer, GroupAnswer, GroupsAnswer, MomentAnswer, OthersAnswer, PhaseAnswer,
    TracedCategoriesAnswer,
};

use crate::analysis::{Action, Profile};
use crate::category::Category;
use crate::pieces::{Piece, pieces};
use crate::places::{Places, When};
use crate::repairs::Repairs;
use crate::series::{Bytes, Moment, peak, span_ns, walk};
use foldhash::fast::RandomState;
use memtrack_model::optrace::DeviceIndex;
use owners::Owners;
use std::collections::HashMap;

/// A moment of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// When most was allocated.
    Peak,
    /// After the last change.
    End,
    /// After all that happened until so many ns after the trace's first record.
    After(i64),
}

/// What a group of pieces of memory holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// What they have in common: a category, a module or an operator.
    pub name: String,
    /// Their bytes.
    pub bytes: u64,
    /// How many they are.
    pub pieces: u64,
    /// Their bytes by category.
    pub by_category: Bytes,
}

/// What was allocated at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// `peak`, `end` or `time`.
    pub moment: &'static str,
    /// When, in ns after the trace's first record; 0 if it was before.
    pub after_ns: u64,
    /// Bytes allocated.
    pub bytes: u64,
    /// By category, in the order of [`Category::ALL`], without those that hold nothing.
    pub categories: Vec<Row>,
    /// By the module that obtained it or registered it, largest first.
    pub modules: Vec<Row>,
    /// By the operator that obtained it, largest first.
    pub operators: Vec<Row>,
}

/// What a phase of the training steps does to memory, over the whole trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhaseRow {
    /// Which phase.
    pub when: When,
    /// Bytes that it obtained.
    pub obtained_bytes: u64,
    /// Bytes that it freed, whoever obtained them.
    pub freed_bytes: u64,
    /// Of what it obtained, what is still there at the end of the trace, by category.
    pub left: Bytes,
    /// The most that was allocated right after something that it did; none if it did nothing to memory.
    pub highest_bytes: Option<u64>,
}

impl PhaseRow {
    /// Of what it obtained, the bytes that are still there at the end of the trace.
    pub fn left_bytes(&self) -> u64 {
        self.left.iter().map(|&bytes| bytes.max(0) as u64).sum()
    }
}

/// What a device's memory is for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CategoryReport {
    /// The device's name in the trace; of a recording, what reports call it.
    pub device: String,
    /// From the first change to the last, in ns.
    pub lasts_ns: u64,
    /// Changes of the device's memory.
    pub changes: u64,
    /// What was allocated at the moments that were asked for.
    pub held: Vec<Held>,
    /// What the phases do.
    pub phases: Vec<PhaseRow>,
    /// What had to be put right in the trace.
    pub repairs: Repairs,
    /// Whether the answer is PyTorch's own.
    pub is_compat: bool,
}

impl CategoryReport {
    /// Makes the report of one device, for these moments. `repairs` are the ones to report.
    pub fn of(profile: &Profile<'_>, device: DeviceIndex, moments: &[At], repairs: Repairs) -> Self {
        let places = Places::of(profile.trace());
        let owners = Owners::of(profile, &places);
        let pieces = pieces(profile, device);
        let held = moments.iter().map(|&at| held(profile, device, at, &pieces, &places, &owners)).collect();
        let span = span_ns(profile, device);
        Self {
            device: profile.device_name(device).to_owned(),
            lasts_ns: span.map_or(0, |(first, last)| last.abs_diff(first)),
            changes: profile.changes().iter().filter(|change| change.device == device).count() as u64,
            held,
            phases: phases(profile, device, &pieces, &places),
            repairs,
            is_compat: profile.is_compat(),
        }
    }
}

fn held(
    profile: &Profile<'_>,
    device: DeviceIndex,
    at: At,
    pieces: &[Piece],
    places: &Places,
    owners: &Owners,
) -> Held {
    let begin = profile.trace().records.first().map_or(0, |record| record.time_ns);
    let (moment, time_ns) = match at {
        At::Peak => ("peak", peak(profile, device).map_or(begin, |peak| peak.time_ns)),
        At::End => ("end", i64::MAX),
        At::After(ns) => ("time", begin.saturating_add(ns)),
    };
    let mut by_category: Vec<Row> =
        Category::ALL.iter().map(|category| named(category.name().to_owned())).collect();
    let mut by_module: Groups<Option<u32>> = Groups::default();
    let mut by_operator: Groups<String> = Groups::default();
    let mut bytes = 0_u64;
    for piece in pieces.iter().filter(|piece| piece.is_live_at(time_ns)) {
        let category = piece.category_at(time_ns);
        bytes = bytes.saturating_add(piece.bytes);
        add(&mut by_category[category as usize], piece.bytes, category);
        let place = piece.obtained.map(|record| places.get(record));
        let registered = piece.storage.and_then(|storage| owners.module(storage));
        let module = registered.or_else(|| place.and_then(|place| place.module));
        by_module.add(module, piece.bytes, category, || {
            module.map_or_else(|| "(outside of modules)".to_owned(), |module| places.full_name(module))
        });
        let operator = match place {
            None => "(before the trace)".to_owned(),
            Some(place) => place
                .operator
                .map_or_else(|| "(outside of operators)".to_owned(), |record| profile.operator_name(record)),
        };
        by_operator.add(operator.clone(), piece.bytes, category, || operator);
    }
    by_category.retain(|row| row.pieces > 0);
    let last = span_ns(profile, device).map_or(begin, |(_, last)| last);
    Held {
        moment,
        after_ns: u64::try_from(time_ns.min(last).saturating_sub(begin)).unwrap_or(0),
        bytes,
        categories: by_category,
        modules: by_module.largest_first(),
        operators: by_operator.largest_first(),
    }
}

fn named(name: String) -> Row {
    Row { name, ..Row::default() }
}

fn add(row: &mut Row, bytes: u64, category: Category) {
    row.bytes = row.bytes.saturating_add(bytes);
    row.pieces += 1;
    let slot = &mut row.by_category[category as usize];
    *slot = slot.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX));
}

/// Rows by what their pieces have in common.
struct Groups<K>(HashMap<K, Row, RandomState>);

impl<K> Default for Groups<K> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<K: std::hash::Hash + Eq> Groups<K> {
    fn add(&mut self, key: K, bytes: u64, category: Category, name: impl FnOnce() -> String) {
        add(self.0.entry(key).or_insert_with(|| named(name())), bytes, category);
    }

    fn largest_first(self) -> Vec<Row> {
        let mut rows: Vec<Row> = self.0.into_values().collect();
        rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
        rows
    }
}

fn phases(profile: &Profile<'_>, device: DeviceIndex, pieces: &[Piece], places: &Places) -> Vec<PhaseRow> {
    let mut rows = When::ALL.map(|when| PhaseRow { when, ..PhaseRow::default() });
    for piece in pieces {
        let row_of = |record: Option<u32>| record.map(|record| places.get(record).when as usize);
        if let Some(row) = row_of(piece.obtained) {
            rows[row].obtained_bytes = rows[row].obtained_bytes.saturating_add(piece.bytes);
            if piece.end_ns.is_none() {
                let slot = &mut rows[row].left[piece.category_at(i64::MAX) as usize];
                *slot = slot.saturating_add(i64::try_from(piece.bytes).unwrap_or(i64::MAX));
            }
        }
        if let Some(row) = row_of(piece.freed) {
            rows[row].freed_bytes = rows[row].freed_bytes.saturating_add(piece.bytes);
        }
    }
    // Who did something at each moment; of several the last one.
    let mut changes = profile.changes().iter().filter(|change| change.device == device).peekable();
    walk(profile, device, |moment: &Moment| {
        while let Some(change) = changes.next_if(|change| change.time_ns <= moment.time_ns) {
            let memory = matches!(change.action, Action::Create | Action::Destroy);
            if let Some(record) = change.record.filter(|_| memory) {
                let highest = &mut rows[places.get(record).when as usize].highest_bytes;
                let total = u64::try_from(moment.total()).unwrap_or(0);
                *highest = Some(highest.map_or(total, |before| before.max(total)));
            }
        }
    });
    rows.into_iter().filter(|row| row.highest_bytes.is_some()).collect()
}
