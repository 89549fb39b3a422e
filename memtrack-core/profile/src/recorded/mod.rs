//! Converts a recording to an operator trace by merging its operator log with its memory events. Also uses the
//! trace to assign a category to each event of the recording.
//!
//! **Why are categories not stored?** They are derived on request, once per snapshot, so that improved rules
//! also apply to old recordings. The recorder, snapshots and the file keep the operator log unchanged.

#[cfg_attr(not(feature = "all"), allow(dead_code, reason = "only the reports of `all` need the errors"))]
mod attribution;
mod builder;

pub use attribution::Attribution;

use crate::analysis::{Action, analyse};
use crate::category::Category;
use crate::optrace::Mode;
use builder::Builder;
use memtrack_file::operators::read_lines;
use memtrack_model::optrace::{OperatorTrace, RecordKind};
use memtrack_model::snapshot::{EventCategories, Snapshot};

/// The name of the producer ([`Header::producer`]) in traces recorded by memtrack's SDK.
///
/// [`Header::producer`]: memtrack_model::optrace::Header::producer
pub const PRODUCER: &str = "memtrack-core";

/// The prefix of a root module's identity in such traces. It distinguishes roots from other modules.
pub(crate) const ROOT_PREFIX: &str = "root ";

/// A recording's operator trace, along with the event of each memory record.
#[derive(Clone, Debug)]
pub struct RecordedTrace {
    /// The trace.
    pub trace: OperatorTrace,
    /// For each record, the row of its event in the recording, or `None` if it has no event.
    pub rows: Vec<Option<u32>>,
}

/// Returns a recording's operator trace, or `None` if the recording has no operators. Times are in ns since
/// the Unix epoch, according to the recording's clock. Stacks are omitted, because they would have to be
/// symbolized first.
///
/// The trace is marked as partial if the recording is incomplete, i.e. if the ring buffer dropped events,
/// small blocks were sampled, or the operator log reached its limit.
pub fn operator_trace(snapshot: &Snapshot) -> Option<RecordedTrace> {
    if snapshot.operators.pieces.is_empty() {
        return None;
    }
    let pieces = snapshot.operators.pieces.iter();
    let mut log: Vec<_> = pieces.flat_map(|piece| read_lines(piece.base_ticks, &piece.lines)).collect();
    log.sort_by_key(|line| line.ticks);
    let mut builder = Builder::new(snapshot);
    let mut row = 0;
    for line in &log {
        row = builder.add_events_before(row, line.ticks);
        builder.add_line(line);
    }
    builder.add_events_before(row, u64::MAX);
    Some(builder.finish())
}

/// Returns whether a recording lacks operators or events. Small blocks that were not sampled do not count as
/// missing.
pub fn lacks_records(snapshot: &Snapshot) -> bool {
    snapshot.operators.left_out > 0
        || snapshot.meta.earlier_parts > 0
        || snapshot.devices.iter().any(|device| device.dropped > 0)
}

/// Returns the category of each event in a recording, or `None` if the recording has no operators. The result
/// is computed once and cached in [`Snapshot::categories`].
pub fn categories(snapshot: &Snapshot) -> Option<&EventCategories> {
    if snapshot.categories.get().is_none() {
        // If another thread was faster, it has stored the same result.
        let _ = snapshot.categories.set(derive_categories(snapshot)?);
    }
    snapshot.categories.get()
}

fn derive_categories(snapshot: &Snapshot) -> Option<EventCategories> {
    let recorded = operator_trace(snapshot)?;
    let mut of_event = vec![0; snapshot.events.len()];
    let row = |record: Option<u32>| record.and_then(|record| recorded.rows[record as usize]);
    // If a free was not recorded, the record of the `Destroy` change is the next allocation at the same
    // address, which serves a different purpose.
    let row_of_free = |record: Option<u32>| {
        let is_free = |&record: &u32| matches!(&recorded.trace.records[record as usize].what, RecordKind::Memory(memory) if memory.is_free);
        row(record.filter(is_free))
    };
    if let Ok(profile) = analyse(&recorded.trace, Mode::Tolerant) {
        // A piece's allocation and free both get the piece's first known category.
        for change in profile.changes() {
            let category = profile.category_of(change);
            let rows = [row(change.allocated_by), row_of_free(change.record)];
            for row in rows.into_iter().flatten() {
                let place: &mut u8 = &mut of_event[row as usize];
                if *place == 0 && category != Category::Unknown {
                    *place = 1 + category as u8;
                }
            }
        }
        for change in profile.changes().iter().filter(|change| change.action == Action::Destroy) {
            if let (Some(from), Some(to)) = (row(change.allocated_by), row_of_free(change.record)) {
                of_event[to as usize] = of_event[from as usize];
            }
        }
    }
    let names = Category::labels();
    Some(EventCategories { names, of_event })
}
