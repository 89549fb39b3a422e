//! The exact sums of the memory that each scope allocated, at no cost per allocation: a thread's running sums
//! ([`Totals`](super::totals::Totals)) are read when its current scope changes, and their growth is added to the scope
//! that was current until then.
//!
//! There is one row of two atomics per device and scope. Several threads may add to the same row, with locked
//! instructions, but only those that have allocated since their last scope change do. A collector adds the allocations
//! in scopes that are still current. The sums are exact for the collector's thread and for all threads whose scope does
//! not change meanwhile; for other threads, the blocks since their last scope change may be missing.
//!
//! **What does it cost?** Two locked additions when the scope of a thread that has allocated changes, and 1 MiB of
//! address space per device. Only the pages in use take memory. During a change the thread is marked as active, as in a
//! hook, so that sessions begin and end between changes.

#![allow(unsafe_code)]

use super::Recorder;
use super::fork::ForkCell;
use super::threads::{self, DEVICE_SLOTS, device_of};
use crate::clock;
use crate::internal_bytes;
use crate::scope::{self, SCOPE_IDS};
use crate::shared_memory::is_connected;
use crate::zeroed::Zeroed;
use memtrack_model::event::ScopeId;
use memtrack_model::snapshot::{ScopeSum, ScopeSums};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The bytes and blocks that a scope allocated.
#[derive(Default)]
struct ScopeCounters([AtomicU64; 2]);

/// The rows of a device, by [`row_of`].
enum Table {
    /// 1 MiB of address space. Only the pages in use take memory.
    Private(Zeroed<ScopeCounters>),
    /// Rows in pages of shared memory.
    Shared(shared::Pages),
}

/// The memory of a device's table.
#[cfg(test)]
pub(super) const TABLE_BYTES: usize = SCOPE_IDS * size_of::<ScopeCounters>();

/// The tables by device slot. A forked child abandons them: its scopes start at zero.
static TABLES: [ForkCell<Table>; DEVICE_SLOTS] = [const { ForkCell::new(Table::new) }; DEVICE_SLOTS];

impl Table {
    fn new() -> Self {
        if is_connected() {
            return Self::Shared(shared::Pages::new());
        }
        internal_bytes::add(SCOPE_IDS * size_of::<ScopeCounters>());
        // SAFETY: rows are integers, for which zero is valid.
        Self::Private(unsafe { Zeroed::new(SCOPE_IDS) })
    }

    /// Returns a row of the table of `slot`; `None` if there is no memory for it.
    #[inline]
    fn row(&self, slot: usize, row: usize) -> Option<&ScopeCounters> {
        match self {
            Self::Private(rows) => Some(&rows[row]),
            Self::Shared(pages) => pages.row(slot, row),
        }
    }
}

/// Rows in shared memory, which the command adds up.
mod shared {
    use super::{SCOPE_IDS, ScopeCounters};
    use crate::shared_memory::{PAGE_CONTENT_BYTES, PageKind, Purpose, arena, page_content, set_number};
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering};

    /// The number of rows in a page.
    const ROWS: usize = PAGE_CONTENT_BYTES / size_of::<ScopeCounters>();

    /// The pages of a device; null where no scope of the page has allocated yet.
    pub(super) struct Pages(Box<[AtomicPtr<ScopeCounters>]>);

    impl Pages {
        pub(super) fn new() -> Self {
            Self((0..SCOPE_IDS.div_ceil(ROWS)).map(|_| AtomicPtr::new(null_mut())).collect())
        }

        #[inline]
        pub(super) fn row(&self, slot: usize, row: usize) -> Option<&ScopeCounters> {
            let page = self.0[row / ROWS].load(Ordering::Acquire);
            let page = if page.is_null() { self.take(slot, row / ROWS) } else { page };
            // SAFETY: the pointer is null or points to the rows of a page, which stay mapped.
            unsafe { page.wrapping_add(row % ROWS).as_ref() }.filter(|_| !page.is_null())
        }

        #[cold]
        fn take(&self, slot: usize, index: usize) -> *mut ScopeCounters {
            let Some(page) = arena().and_then(|arena| arena.take_page(PageKind::None, Purpose::Device))
            else {
                return null_mut();
            };
            let rows: *mut ScopeCounters = page_content(page.as_ptr()).cast();
            // SAFETY: the page was just taken, and zero is valid for its rows.
            unsafe { rows.write_bytes(0, ROWS) };
            match self.0[index].compare_exchange(null_mut(), rows, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    set_number(page, PageKind::ScopeSums, (slot * SCOPE_IDS + index * ROWS) as u64);
                    rows
                }
                // Another thread was faster. The page stays unused.
                Err(other) => other,
            }
        }
    }
}

/// Returns the device slot and the scope of a row. Row numbers continue from one device slot to the next.
pub(crate) fn scope_of_row(number: u64) -> (usize, ScopeId) {
    let (slot, row) = (number as usize / SCOPE_IDS, number as usize % SCOPE_IDS);
    (slot, ScopeId(((row >> 2 | row << 14) % SCOPE_IDS) as u32))
}

/// Returns the index of a scope's row. Scopes with consecutive ids are on different cache lines, so that threads in
/// such scopes do not contend.
#[inline]
fn row_of(scope: ScopeId) -> usize {
    let id = scope.index() % SCOPE_IDS;
    (id << 2 | id >> 14) % SCOPE_IDS
}

/// Adds to the sums of a scope, modulo 2^64, so that negative amounts can also be added.
#[inline]
pub(super) fn add(slot: usize, scope: ScopeId, bytes: u64, blocks: u64) {
    let Some(ScopeCounters([bytes_sum, blocks_sum])) = TABLES[slot].get().row(slot, row_of(scope)) else {
        return;
    };
    bytes_sum.fetch_add(bytes, Relaxed);
    blocks_sum.fetch_add(blocks, Relaxed);
}

/// Resets the sums for a session that begins. Must be called while nothing is recorded and no hook runs.
pub(super) fn begin() {
    scope::reset_folded();
    for table in TABLES.iter().filter(|table| table.is_made()) {
        let Table::Private(rows) = table.get() else { continue };
        for scope in scope::ids() {
            rows[row_of(scope)].0.iter().for_each(|sum| sum.store(0, Relaxed));
        }
    }
    for state in threads::states() {
        state.all_totals().iter().for_each(|totals| totals.report_growth(totals.growth()));
    }
}

/// Returns the current sums of all scopes, including the open scopes.
pub(super) fn all() -> ScopeSums {
    let ticks = clock::ticks();
    let mut sums: HashMap<(usize, ScopeId), [u64; 2]> = HashMap::new();
    for (slot, table) in TABLES.iter().enumerate().filter(|(_, table)| table.is_made()) {
        for scope in scope::ids() {
            let Table::Private(rows) = table.get() else { continue };
            let [bytes, blocks] = rows[row_of(scope)].0.each_ref().map(|sum| sum.load(Relaxed));
            if bytes | blocks != 0 {
                sums.insert((slot, scope), [bytes, blocks]);
            }
        }
    }
    for state in threads::states() {
        for (slot, scope, growth) in state.growth_in_open_scope() {
            let sum = sums.entry((slot, scope)).or_default();
            sum[0] = sum[0].wrapping_add(growth[0]);
            sum[1] = sum[1].wrapping_add(growth[1]);
        }
    }
    let row = |((slot, scope), [bytes, blocks]): ((usize, ScopeId), [u64; 2])| {
        // A sum may briefly be negative, when another thread has subtracted an amount that it has not added yet.
        let [allocated_bytes, allocations] = [bytes, blocks].map(|sum| (sum as i64).max(0) as u64);
        ScopeSum { device: device_of(slot), scope, allocated_bytes, allocations }
    };
    let mut rows: Vec<ScopeSum> = sums.into_iter().map(row).collect();
    rows.retain(|row| row.allocations > 0 || row.allocated_bytes > 0);
    rows.sort_unstable();
    ScopeSums { ticks, folded: scope::folded(), rows }
}

/// The minimum number of updates of the stream thread between two writes of the sums: five seconds.
const UPDATES_BETWEEN_SUMS: usize = 10;
/// For each group of this many rows, the next write waits one more update, so that the sums of many scopes do not fill
/// the disk.
const ROWS_PER_UPDATE: usize = 1000;

/// The schedule for writing the sums to the stream, so that the recording of a killed program has recent sums.
#[derive(Default)]
pub(super) struct WriteSchedule {
    updates_left: usize,
    written: Vec<ScopeSum>,
}

impl WriteSchedule {
    /// Writes the sums if they are due and have changed. Called at each update of the stream thread.
    pub(super) fn update(&mut self, recorder: &Recorder) {
        if self.updates_left > 0 {
            self.updates_left -= 1;
            return;
        }
        let sums = all();
        // Tasks of which a killed recording has no row have ended, or began after this.
        let tasks = crate::tasks::running();
        let rows = sums.rows.len() + tasks.rows.len();
        self.updates_left = UPDATES_BETWEEN_SUMS - 1 + rows / ROWS_PER_UPDATE;
        if sums.rows == self.written {
            return;
        }
        let peak = super::counted_peak::so_far(clock::ticks());
        recorder.with_stream(|stream| {
            stream.attempt(|stream| stream.append_sums(&sums, peak.as_ref(), &tasks));
        });
        self.written = sums.rows;
    }
}
