//! Finds the allocations of the blocks that events free.

use foldhash::HashMap;
use memtrack_model::event::{Action, DeviceId};
use memtrack_model::snapshot::Snapshot;
use std::ops::Range;

/// The allocations that are live after the events visited so far, as rows, keyed by device and address.
#[derive(Default)]
pub(crate) struct Allocations {
    live: HashMap<(DeviceId, u64), usize>,
}

impl Allocations {
    /// Visits the events in `rows` and returns, for each event that frees a block or requests its free, the row of the
    /// block's allocation. The result is `None` for other events, and if the allocation is not in the trace. The ranges
    /// of successive calls must be contiguous.
    pub(crate) fn find_allocation_rows(
        &mut self,
        snapshot: &Snapshot,
        rows: Range<usize>,
    ) -> Vec<Option<i64>> {
        let events = &snapshot.events;
        rows.map(|row| {
            let place = (events.device[row], events.address[row]);
            let allocated = match events.action[row] {
                Action::Alloc => {
                    self.live.insert(place, row);
                    None
                }
                Action::FreeRequested => self.live.get(&place).copied(),
                Action::Free | Action::FreeCompleted => self.live.remove(&place),
                _ => None,
            };
            allocated.map(|row| row as i64)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::Event;

    #[test]
    fn free_refers_to_latest_allocation_at_its_address() {
        let mut snapshot = Snapshot::default();
        let actions = [
            Action::FreeCompleted,
            Action::Alloc,
            Action::FreeRequested,
            Action::FreeCompleted,
            Action::Alloc,
            Action::Free,
        ];
        for action in actions {
            snapshot.events.push(&Event { action, address: 512, ..Event::BLANK });
        }
        let mut allocations = Allocations::default();
        let mut found = allocations.find_allocation_rows(&snapshot, 0..2);
        found.extend(allocations.find_allocation_rows(&snapshot, 2..6));
        assert_eq!(found, [None, None, Some(1), Some(1), None, Some(4)]);
    }
}
