//! Represents a device's memory as pieces, each with its lifetime from allocation to free.

use crate::analysis::{Action, Profile};
use crate::category::Category;
use foldhash::HashMap;
use memtrack_blocks::estimate::Sum;
use memtrack_model::optrace::{DeviceIndex, RecordId};

/// A piece of memory, which is a single allocation over its whole lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The size in bytes.
    pub bytes: u64,
    /// The storage, as an index into [`Profile::storages`], or `None` if no tensor was seen in this piece.
    pub storage: Option<u32>,
    /// The time of the allocation in ns, or `None` if the piece existed before the trace.
    pub begin_ns: Option<i64>,
    /// The time of the free in ns, or `None` if the piece is still live at the end.
    pub end_ns: Option<i64>,
    /// The record that allocated this piece, or `None` if the trace has no such record.
    pub allocated_by: Option<RecordId>,
    /// The record that freed this piece, or `None` if the free was not recorded or the piece is still live at
    /// the end.
    pub freed_by: Option<RecordId>,
    /// The categories over time, each with the time in ns from which it applies. The first one applies from
    /// the allocation.
    pub stages: Vec<(i64, Category)>,
}

impl Piece {
    /// Returns the first known category, which is the one that appears in the recording's events.
    pub(crate) fn first_known_category(&self) -> Category {
        let known = |&&(_, category): &&(i64, Category)| category != Category::Unknown;
        self.stages.iter().find(known).map_or(Category::Unknown, |&(_, category)| category)
    }

    /// Adds this piece to sums of bytes and blocks. A sampled block counts for all the blocks that it
    /// represents.
    pub(crate) fn add_to(&self, profile: &Profile<'_>, bytes: &mut Sum, blocks: &mut Sum) {
        let (size_bytes, weight) = profile.weigh(self.allocated_by.or(self.freed_by), self.bytes);
        bytes.add(size_bytes, weight);
        blocks.add(1.0, weight);
    }

    /// Returns the category after all changes up to the given time in ns.
    pub fn category_at(&self, time_ns: i64) -> Category {
        let after = self.stages.partition_point(|&(since, _)| since <= time_ns);
        self.stages.get(after.max(1) - 1).map_or(Category::Unknown, |&(_, category)| category)
    }

    /// Returns whether the piece is live after all changes up to the given time in ns.
    pub fn is_live_at(&self, time_ns: i64) -> bool {
        self.begin_ns.is_none_or(|begin| begin <= time_ns) && self.end_ns.is_none_or(|end| end > time_ns)
    }
}

/// Returns all pieces of a device in the order in which they were allocated.
pub fn pieces(profile: &Profile<'_>, device: DeviceIndex) -> Vec<Piece> {
    /// Identifies the piece that a change affects.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum PieceKey {
        Storage(u32),
        /// A piece without a tensor, identified by the record that allocated it or, failing that, by the
        /// record that freed it.
        Record(Option<RecordId>),
    }
    let mut pieces: Vec<Piece> = Vec::new();
    let mut indices: HashMap<PieceKey, usize> = HashMap::default();
    for change in profile.changes_on(device) {
        let key =
            change.storage.map_or(PieceKey::Record(change.allocated_by.or(change.record)), PieceKey::Storage);
        let category = profile.category_of(change);
        match change.action {
            Action::Preexisting | Action::Create => {
                let begin_ns = (change.action == Action::Create).then_some(change.time_ns);
                indices.insert(key, pieces.len());
                pieces.push(Piece {
                    bytes: change.bytes,
                    storage: change.storage,
                    begin_ns,
                    end_ns: None,
                    allocated_by: change.allocated_by,
                    freed_by: None,
                    stages: vec![(change.time_ns, category)],
                });
            }
            Action::IncrementVersion => {
                let piece = indices.get(&key).map(|&index| &mut pieces[index]);
                if let Some(piece) =
                    piece.filter(|piece| piece.stages.last().is_some_and(|last| last.1 != category))
                {
                    piece.stages.push((change.time_ns, category));
                }
            }
            Action::Destroy => {
                if let Some(&index) = indices.get(&key) {
                    let piece = &mut pieces[index];
                    piece.end_ns = Some(change.time_ns);
                    piece.freed_by = change.record;
                }
            }
        }
    }
    pieces
}
