//! Sums up the memory that is live at a moment, by category, module and operator.

use super::owners::Owners;
use super::{
    CategorySums, MomentMemory, OtherGroups, PieceGroup, PieceGroups, PieceSums, ReportMoment, estimate_error,
};
use crate::analysis::Profile;
use crate::category::Category;
use crate::names::Names;
use crate::pieces::Piece;
use crate::recorded::Attribution;
use crate::series::{Bytes, peak, span_ns};
use foldhash::HashMap;
use memtrack_blocks::estimate::{Estimate, KnownTotal, Sum};
use memtrack_model::optrace::{DeviceIndex, RecordId};

pub(super) fn memory_at(
    profile: &Profile<'_>,
    device: DeviceIndex,
    at: ReportMoment,
    pieces: &[Piece],
    owners: &Owners,
    names: &mut Names<'_>,
) -> MomentMemory {
    let begin = profile.begin_ns();
    let attribution = profile.attribution();
    // All reports on a recording place its peak at the same moment.
    let record = attribution
        .filter(|_| at == ReportMoment::Peak)
        .and_then(|attribution| attribution.peak_record(device));
    let time_ns = match at {
        ReportMoment::Peak => match record {
            Some(record) => profile.trace().records[record as usize].time_ns,
            None => peak(profile, device).map_or(begin, |peak| peak.time_ns),
        },
        ReportMoment::End => i64::MAX,
        ReportMoment::After(ns) => begin.saturating_add(ns),
    };
    let is_live = |piece: &&Piece| match record {
        Some(record) => is_live_after(piece, record, time_ns),
        None => piece.is_live_at(time_ns),
    };
    let mut all = Tally::default();
    let mut by_category = [Tally::default(); Category::ALL.len()];
    let mut by_module: Groups<(Option<u32>, Option<String>)> = Groups(HashMap::default());
    let mut by_operator: Groups<String> = Groups(HashMap::default());
    for piece in pieces.iter().filter(is_live) {
        let category =
            if names.has_scope_names() { piece.first_known_category() } else { piece.category_at(time_ns) };
        let add = |tally: &mut Tally| tally.add(profile, piece, category);
        add(&mut all);
        add(&mut by_category[category as usize]);
        let registered = piece.storage.and_then(|storage| owners.module(storage));
        match (registered, names.has_scope_names()) {
            (None, true) => {
                let name = names.module(piece.allocated_by);
                add(by_module.get_or_add((None, Some(name.clone())), || name));
            }
            (registered, _) => {
                let module = registered.or_else(|| names.enclosing_module(piece.allocated_by?));
                add(by_module.get_or_add((module, None), || names.module_name(module)));
            }
        }
        let operator = names.operator(piece.allocated_by);
        add(by_operator.get_or_add(operator.clone(), || operator));
    }
    // As in the reports on allocations, the estimated parts are capped at the total, which is known more
    // precisely.
    let whole = match (at, attribution) {
        (ReportMoment::Peak, Some(attribution)) => {
            attribution.peak_error(device).map(|peak| KnownTotal::of(peak.high, &all.bytes))
        }
        (ReportMoment::End, Some(attribution)) => {
            attribution.count_at_end(device).map(|counted| KnownTotal::of(counted.bytes as f64, &all.bytes))
        }
        _ => None,
    };
    let whole = whole.unwrap_or(KnownTotal::UNKNOWN);
    let finish = |tally: &Tally| tally.finish(attribution, device, &whole);
    let last = span_ns(profile, device).map_or(begin, |(_, last)| last);
    let all = finish(&all);
    let categories = Category::ALL.into_iter().zip(&by_category).filter(|(_, tally)| tally.pieces() > 0);
    let mut memory = MomentMemory {
        moment: at.name(),
        after_ns: u64::try_from(time_ns.min(last).saturating_sub(begin)).unwrap_or(0),
        bytes: all.bytes,
        error: all.error,
        categories: categories.map(|(category, of)| CategorySums { category, sums: finish(of) }).collect(),
        modules: by_module.largest_first(finish),
        operators: by_operator.largest_first(finish),
    };
    match at {
        ReportMoment::Peak => {
            if let Some(peak) = attribution.and_then(|attribution| attribution.peak_error(device)) {
                memory.replace_sum((peak.value as u64, peak), None);
            }
        }
        ReportMoment::End => {
            if let Some(counted) = attribution.and_then(|attribution| attribution.count_at_end(device)) {
                memory.replace_sum((counted.bytes, counted.bytes_error), Some(counted.blocks));
            }
        }
        ReportMoment::After(_) => {}
    }
    memory
}

/// Returns whether a piece is live right after the given record, whose time is `time_ns`.
fn is_live_after(piece: &Piece, record: RecordId, time_ns: i64) -> bool {
    let has_begun = match piece.allocated_by {
        Some(allocated_by) => allocated_by <= record,
        None => piece.begin_ns.is_none_or(|begin_ns| begin_ns <= time_ns),
    };
    has_begun
        && match piece.freed_by {
            Some(freed) => freed > record,
            None => piece.end_ns.is_none_or(|end_ns| end_ns > time_ns),
        }
}

impl MomentMemory {
    /// Replaces the total with the recorder's count or with the estimate of the peak, and caps each part at
    /// the new total.
    fn replace_sum(&mut self, (bytes, error): (u64, Estimate), blocks: Option<u64>) {
        (self.bytes, self.error) = (bytes, error);
        let categories = self.categories.iter_mut().map(|row| &mut row.sums);
        let groups = self.modules.rows.iter_mut().chain(&mut self.operators.rows).map(|row| &mut row.sums);
        for sums in categories.chain(groups) {
            sums.bytes = sums.bytes.min(error.high as u64);
            sums.error = sums.error.at_most(error.high);
            if let Some(blocks) = blocks {
                sums.pieces = sums.pieces.min(blocks);
                sums.count_error = sums.count_error.at_most(blocks as f64);
            }
        }
    }
}

/// Running sums over pieces.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    requested_bytes: u64,
    by_category: Bytes,
    /// The sums of bytes and of blocks, in which a sampled block counts for all that it represents.
    bytes: Sum,
    blocks: Sum,
}

impl Tally {
    fn add(&mut self, profile: &Profile<'_>, piece: &Piece, category: Category) {
        self.requested_bytes = self.requested_bytes.saturating_add(piece.bytes);
        let slot = &mut self.by_category[category as usize];
        *slot = slot.saturating_add(i64::try_from(piece.bytes).unwrap_or(i64::MAX));
        piece.add_to(profile, &mut self.bytes, &mut self.blocks);
    }

    fn pieces(&self) -> u64 {
        self.blocks.value().round() as u64
    }

    fn finish(
        &self,
        attribution: Option<&Attribution>,
        device: DeviceIndex,
        whole: &KnownTotal,
    ) -> PieceSums {
        let (bytes, pieces) = (whole.rounded(&self.bytes, self.requested_bytes), self.pieces());
        let error = attribution.map(|of| whole.part(of.bytes(device, &self.bytes), &self.bytes));
        let count_error = attribution.map(|of| of.blocks(device, &self.blocks));
        PieceSums {
            bytes,
            error: estimate_error(bytes, error),
            pieces,
            count_error: estimate_error(pieces, count_error),
        }
    }
}

/// The name and the running sums of each group of pieces, keyed by what the pieces have in common.
struct Groups<K>(HashMap<K, (String, Tally)>);

impl<K: std::hash::Hash + Eq> Groups<K> {
    fn get_or_add(&mut self, key: K, name: impl FnOnce() -> String) -> &mut Tally {
        &mut self.0.entry(key).or_insert_with(|| (name(), Tally::default())).1
    }

    fn largest_first(self, finish: impl Fn(&Tally) -> PieceSums) -> PieceGroups {
        let group = |(name, tally): (String, Tally)| PieceGroup {
            name,
            sums: finish(&tally),
            by_category: tally.by_category,
        };
        let mut rows: Vec<PieceGroup> = self.0.into_values().map(group).collect();
        rows.sort_by(|a, b| b.sums.bytes.cmp(&a.sums.bytes).then_with(|| a.name.cmp(&b.name)));
        PieceGroups { rows, others: OtherGroups::default() }
    }
}
