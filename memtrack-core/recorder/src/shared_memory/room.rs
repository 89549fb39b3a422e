//! The pages that are left for events (their *room*), and which events may take them.
//!
//! A program can allocate faster than the command reads, above all when other programs use all processors. The thread
//! that allocates must not wait, so the pages may run out. As they become few, events are omitted in three steps.
//! First, small blocks are sampled at wider intervals ([`min_class`](Room::min_class)), so that sums are still
//! estimated without bias. Next, allocations of small blocks may not take one of the last pages. Finally, no event of
//! the heap may take one, because events of devices are few and matter more. Events that are omitted are counted.

use super::layout::{EXTENT_PAGES, ProcessHeader, RegionHeader};
use crate::host;
use memtrack_model::event::{Action, DeviceId, Event};
use std::sync::atomic::Ordering;

/// The number of extents at the beginning of a region that are taken only by processes that begin, and for the sums of
/// threads, because events may take all other extents very quickly.
pub(super) const RESERVED_FIRST_EXTENTS: usize = 8;

/// The purpose for which a page is taken, from the most to the least important.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The sums of a thread. Without them, it is unknown how much was omitted.
    Sums,
    /// Events of devices, and the records that events refer to.
    Device,
    /// Frees of the heap and allocations of large blocks: without its free, a block seems live forever.
    Heap,
    /// Allocations of small blocks.
    Small,
}

impl Purpose {
    /// Returns the purpose of a page for this event. Blocks below `threshold_bytes` are small.
    pub(crate) fn of(event: &Event, threshold_bytes: u64) -> Self {
        match event.action {
            _ if event.device != DeviceId::HOST => Self::Device,
            Action::Alloc if event.size_bytes < threshold_bytes => Self::Small,
            _ => Self::Heap,
        }
    }

    /// Returns the purpose of a page that the next events on a device will use, regardless of their action and size.
    pub(crate) fn of_next(device: DeviceId) -> Self {
        if device == DeviceId::HOST { Self::Small } else { Self::Device }
    }

    /// Returns how many pages must be left for more important purposes.
    fn kept_pages(self) -> u64 {
        match self {
            Self::Sums | Self::Device => 0,
            Self::Heap => 15,
            Self::Small => 30,
        }
    }
}

/// The approximate number of pages that are left for the events of a process. Other threads and the command may change
/// it at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    /// The number of pages that can be taken.
    free_pages: u64,
    /// The number of pages that the command has not read yet.
    unread_pages: u64,
}

impl Room {
    /// Returns the room of a process that has this many extents.
    pub(super) fn of(region: &RegionHeader, process: &ProcessHeader, extents: usize) -> Self {
        let per_extent = EXTENT_PAGES as u64 - 1;
        let passed = process.pages_completed.load(Ordering::Relaxed);
        let taken = process.pages_taken.load(Ordering::Relaxed);
        let freed = process.pages_freed.load(Ordering::Relaxed);
        let own = (extents as u64 * per_extent).saturating_sub(taken.saturating_sub(freed));
        let others = u64::from(region.free_extents.load(Ordering::Relaxed))
            .saturating_sub(RESERVED_FIRST_EXTENTS as u64);
        Self { free_pages: own + others * per_extent, unread_pages: passed.saturating_sub(freed) }
    }

    /// Returns whether enough pages are free that one may be taken for this purpose.
    pub(super) fn suffices(&self, purpose: Purpose) -> bool {
        self.free_pages >= purpose.kept_pages()
    }

    /// Returns the lowest sampling class, which has the shortest interval, for which enough pages are left.
    pub(super) fn min_class(&self) -> u8 {
        let free_pages = self.free_pages.saturating_sub(Purpose::Small.kept_pages());
        host::min_class(self.unread_pages, self.unread_pages + free_pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_important_events_leave_room_for_more_important_ones() {
        let room = |free_pages| Room { free_pages, unread_pages: 0 };
        let all = [Purpose::Sums, Purpose::Device, Purpose::Heap, Purpose::Small];
        let allowed = |free_pages| all.iter().filter(|purpose| room(free_pages).suffices(**purpose)).count();
        assert_eq!([0, 14, 15, 29, 30].map(allowed), [2, 2, 3, 3, 4]);
    }

    #[test]
    fn sampling_widens_before_the_room_runs_out() {
        let class = |unread_pages, free_pages| Room { free_pages, unread_pages }.min_class();
        assert_eq!(class(0, 4000), 0);
        // Many threads fill a page each; the command has read everything.
        assert_eq!(class(0, 100), 0);
        assert_eq!(class(2900, 1060), 0);
        let classes = [1000, 900, 600, 300, 30].map(|free_pages| class(4060 - free_pages, free_pages));
        assert!(classes.is_sorted() && classes[0] > 0 && classes[4] == 15, "{classes:?}");
        // There is no room at all. The events that are omitted in that case are counted.
        assert_eq!(class(0, 0), class(0, 30));
    }
}
