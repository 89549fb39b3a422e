//! The memory of one device piece by piece, each from its allocation to its free.

use crate::analysis::{Action, Profile};
use crate::category::Category;
use foldhash::fast::RandomState;
use memtrack_model::optrace::{DeviceIndex, RecordId};
use memtrack_report::analysis::estimate::Sum;
use std::collections::HashMap;

/// A piece of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its size.
    pub bytes: u64,
    /// The storage, an index into [`Profile::storages`]; `None` if no tensor was seen in it.
    pub storage: Option<u32>,
    /// The time of its allocation, in ns; `None` if it existed before the trace.
    pub begin_ns: Option<i64>,
    /// The time of its free, in ns; `None` if it still exists at the end.
    pub end_ns: Option<i64>,
    /// The record that allocated it.
    pub obtained: Option<RecordId>,
    /// The record that freed it; `None` if that was not recorded, or if it still exists at the end.
    pub freed: Option<RecordId>,
    /// Its purposes, each with the time in ns at which it begins; the first entry holds from the beginning.
    pub stages: Vec<(i64, Category)>,
}

impl Piece {
    /// Returns its final category, as the recording's own events state it.
    pub(crate) fn settled_category(&self) -> Category {
        let known = |&&(_, category): &&(i64, Category)| category != Category::Unknown;
        self.stages.iter().find(known).map_or(Category::Unknown, |&(_, category)| category)
    }

    /// Adds it to sums of bytes and of blocks; a sampled block counts for all blocks that it represents.
    pub(crate) fn add_to(&self, profile: &Profile<'_>, bytes: &mut Sum, blocks: &mut Sum) {
        let record = self.obtained.or(self.freed);
        let sample = profile.attribution().and_then(|attribution| attribution.sample(record?));
        let (size_bytes, weight) =
            sample.map_or((self.bytes, 1.0), |sample| (sample.size_bytes, sample.blocks));
        bytes.add(size_bytes as f64, weight);
        blocks.add(1.0, weight);
    }

    /// Returns its category after all changes up to a time, in ns.
    pub fn category_at(&self, time_ns: i64) -> Category {
        let after = self.stages.partition_point(|&(since, _)| since <= time_ns);
        self.stages.get(after.max(1) - 1).map_or(Category::Unknown, |&(_, category)| category)
    }

    /// Returns whether it exists after all changes up to a time, in ns.
    pub fn is_live_at(&self, time_ns: i64) -> bool {
        self.begin_ns.is_none_or(|begin| begin <= time_ns) && self.end_ns.is_none_or(|end| end > time_ns)
    }
}

/// Returns all pieces of a device, in the order in which they began.
pub fn pieces(profile: &Profile<'_>, device: DeviceIndex) -> Vec<Piece> {
    /// The piece that a change is about.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum Of {
        Storage(u32),
        /// A piece without a tensor, identified by the record that allocated it, or by the one that freed it.
        Record(Option<RecordId>),
    }
    let mut pieces: Vec<Piece> = Vec::new();
    let mut places: HashMap<Of, usize, RandomState> = HashMap::default();
    for change in profile.changes().iter().filter(|change| change.device == device) {
        let of = change.storage.map_or(Of::Record(change.obtained.or(change.record)), Of::Storage);
        let category = profile.category_of(change);
        match change.action {
            Action::Preexisting | Action::Create => {
                let begin_ns = (change.action == Action::Create).then_some(change.time_ns);
                places.insert(of, pieces.len());
                pieces.push(Piece {
                    bytes: change.bytes,
                    storage: change.storage,
                    begin_ns,
                    end_ns: None,
                    obtained: change.obtained,
                    freed: None,
                    stages: vec![(change.time_ns, category)],
                });
            }
            Action::IncrementVersion => {
                let piece = places.get(&of).map(|&place| &mut pieces[place]);
                if let Some(piece) =
                    piece.filter(|piece| piece.stages.last().is_some_and(|last| last.1 != category))
                {
                    piece.stages.push((change.time_ns, category));
                }
            }
            Action::Destroy => {
                if let Some(&place) = places.get(&of) {
                    let piece = &mut pieces[place];
                    piece.end_ns = Some(change.time_ns);
                    piece.freed = change.record;
                }
            }
        }
    }
    pieces
}
