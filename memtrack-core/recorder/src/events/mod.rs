//! The recorder: takes alloc and free events from any thread and keeps the newest events, the live blocks, and exact
//! sums. This module is the interface for allocators that report to it; the host heap's allocator and the CUDA hooks
//! use the same one.
//!
//! While nothing is monitored, a report costs only a load and a branch. Report a free **before** the memory is freed
//! and an allocation **after** it was obtained: another thread may receive the same address in between.

mod allocated;
mod barrier;
mod binaries;
#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod bounds;
mod caller;
mod chunk;
mod clock;
mod collect;
mod current_thread;
#[cfg(feature = "cuda")]
pub mod driver_memory;
#[cfg(feature = "cuda")]
pub mod driver_readings;
pub mod exit;
mod fork;
mod hooks;
mod inherit;
mod kits;
mod live;
pub(crate) mod marks;
mod merge;
mod oom;
pub(crate) mod operators;
mod order;
mod pace;
mod parts;
pub mod report_hook;
mod ring;
mod same_memory;
mod scope_sums;
mod segments;
pub mod session;
mod settings;
mod stream_file;
mod stream_thread;
mod streaming;
mod sync;
mod thread_names;
mod thread_sums;
mod threads;
mod totals;
#[cfg(all(target_os = "linux", target_env = "gnu", not(test)))]
mod unload;

pub use memtrack_model::options::{Context, Enabled, Options, UnknownOption, parse_actions};
pub(crate) use oom::report_heap_refusal;
pub use oom::{OutOfMemory, OutOfMemoryObserver, attach_out_of_memory_observer};

pub use allocated::{Allocated, allocated_at};
pub use barrier::wait_for_hooks;
pub(crate) use caller::{begin_accounts, loaded_binaries};
pub use caller::{clock_so_far, stack_here, stacks_so_far};
pub use clock::{ns_per_tick, ticks};
pub(crate) use current_thread::{CurrentThread, without_hook};
pub use current_thread::{scope_changed, with_room};
pub use fork::{ForkCell, generation, watch as watch_forks};
pub use hooks::{Freed, Hook, Inside};
#[cfg(all(feature = "cuda", target_os = "linux", target_env = "gnu"))]
pub use inherit::may_write_file;
pub use marks::mark;
#[cfg(all(feature = "cuda", target_os = "linux", target_env = "gnu"))]
pub use pace::Pace;
#[cfg(feature = "cuda")]
pub use settings::set_internal_code;
pub use settings::{sample_threshold_bytes, sampling, session as session_number};
pub(crate) use thread_names::name_of as name_of_thread;
pub(crate) use thread_sums::{Bounds, bounds};
pub use threads::{DEVICE_SLOTS, device_of, observed_sums, slot_of, sums};
pub(crate) use threads::{ThreadState, states};
pub use totals::Sums;

use crate::stack::intern::StackInterner;
use crate::{accounts, switch};
use chunk::Chunk;
use live::LiveTable;
use memtrack_model::event::{Action, DeviceId, Event, StreamId};
use ring::Ring;
use same_memory::SameMemory;
use segments::Segments;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The process's one recorder; a forked child makes its own.
pub static RECORDER: ForkCell<Recorder> = ForkCell::new(Recorder::new);

/// Returns how many blocks the live table holds. Visits each shard: a microsecond or two.
pub(crate) fn live_blocks() -> u64 {
    RECORDER.get().live.len() as u64
}

/// The state that all threads share.
#[doc(hidden)]
pub struct Recorder {
    /// The process that it records. A process with another id that sees it shares this one's memory until it calls
    /// `exec`.
    #[cfg(feature = "cuda")]
    process: u32,
    same_memory: SameMemory,
    pub(crate) live: LiveTable,
    pub(crate) stacks: StackInterner,
    segments: Segments,
    #[cfg(feature = "cuda")]
    pub driver: driver_memory::DriverTable,
    #[cfg(feature = "cuda")]
    pub readings: driver_readings::Readings,
    store: Mutex<Store>,
    /// The stream, locked by the thread that writes it; never locked under the store's lock.
    target: streaming::TargetLock,
    /// Whether the stream was given up because writes to its disk did not complete.
    stalled: AtomicU8,
    stream_thread: stream_thread::StreamThread,
    /// The capacity, in events, of the chunks that are being filled.
    being_filled: AtomicU64,
    /// The lowest device beyond those that can be distinguished, until it was reported.
    lowest_omitted: AtomicU16,
}

/// The heap's number, which is always recorded: no device was omitted.
const NONE_OMITTED: u16 = DeviceId::HOST.0;

/// Full chunks, and those that wait for the stream. Locked only briefly.
struct Store {
    rings: [Ring; DEVICE_SLOTS],
    /// Set while a snapshot is being taken: then no chunk is dropped.
    keeps_all: bool,
    /// Present while a stream is open.
    queue: Option<streaming::Queue>,
}

impl Recorder {
    fn new() -> Self {
        let is_streaming_child = session::is_streaming_child();
        Self {
            #[cfg(feature = "cuda")]
            process: std::process::id(),
            same_memory: SameMemory::new(),
            live: LiveTable::new(),
            stacks: StackInterner::new(),
            segments: Segments::default(),
            #[cfg(feature = "cuda")]
            driver: driver_memory::DriverTable::default(),
            #[cfg(feature = "cuda")]
            readings: driver_readings::Readings::default(),
            store: Mutex::new(Store {
                rings: std::array::from_fn(|_| Ring::default()),
                keeps_all: false,
                queue: is_streaming_child.then(streaming::Queue::for_child),
            }),
            target: Mutex::new(match is_streaming_child {
                true => streaming::Target::ForkedChild,
                false => streaming::Target::None,
            }),
            stalled: AtomicU8::new(streaming::NOT_STALLED),
            stream_thread: stream_thread::StreamThread::default(),
            being_filled: AtomicU64::new(0),
            lowest_omitted: AtomicU16::new(NONE_OMITTED),
        }
    }

    fn store(&self) -> std::sync::MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a thread's full chunk; `replace` puts the next one in its place while the store is locked, so that a
    /// collector sees each event exactly once. If there is a stream, the chunk is passed to it afterwards.
    fn take_over(&self, device: DeviceId, full: Option<Arc<Chunk<Event>>>, replace: impl FnOnce()) {
        let slot = slot_of(device);
        // Memory is allocated before the store is locked, and freed after it is unlocked.
        let (mut dropped, mut room) = (ring::Dropped::new(), Ring::room(0));
        let mut store = self.store();
        while let Some(needed) = slot.and_then(|slot| store.rings[slot].needs_room()) {
            drop(store);
            room = Ring::room(needed);
            store = self.store();
            slot.iter().for_each(|&slot| store.rings[slot].grow(&mut room));
        }
        replace();
        let (Some(full), Some(slot)) = (full, slot) else { return };
        let must_wait = store.queue.as_mut().map(|queue| queue.push(Arc::clone(&full)));
        let bound = if store.keeps_all { u64::MAX } else { settings::ring_entries() };
        store.rings[slot].push(full, settings::start_ticks(), bound, &mut dropped);
        drop(store);
        drop((dropped, room));
        if let Some(must_wait) = must_wait {
            self.stream_full_chunks(must_wait);
        }
    }

    /// Notes a device beyond those that can be distinguished. Called inside a hook, where nothing may be printed: it
    /// is reported at the end.
    #[cold]
    fn too_many_devices(&self, device: DeviceId) {
        self.lowest_omitted.fetch_min(device.0, Ordering::Relaxed);
    }

    /// Returns the message about devices that were not recorded, once; `None` if there are none.
    fn omitted_devices(&self) -> Option<String> {
        let lowest = self.lowest_omitted.swap(NONE_OMITTED, Ordering::Relaxed);
        let device = (lowest != NONE_OMITTED).then_some(DeviceId(lowest))?;
        Some(format!("{device} is not recorded: at most 31 devices (0 to 30) can be told apart"))
    }
}

/// Records that a block of `size_bytes` at `address` was allocated for a client. The stack and the scope are the
/// caller's.
#[inline]
pub fn record_alloc(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    if !switch::is_on(switch::EVENTS | switch::ACCOUNTS) {
        return;
    }
    if switch::is_on(switch::ACCOUNTS) {
        accounts::allocated(device, address, size_bytes);
    }
    if let Some(hook) = Hook::enter() {
        hook.end_segment_block(device, address);
        hook.alloc(device, stream, address, size_bytes, Default::default());
    }
}

/// Records that a block is about to be freed at once. `stream` and `size_bytes` (as requested at its allocation) are
/// used only if the allocation was not recorded. Completes the free of a block whose free was requested earlier.
#[inline]
pub fn record_free(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    free(device, stream, address, size_bytes, false);
}

/// Records that a block is freed while other streams may still use it: it stays active until
/// [`record_free_completed`].
#[inline]
pub fn record_free_requested(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    if !switch::is_on(switch::EVENTS | switch::ACCOUNTS) {
        return;
    }
    if switch::is_on(switch::ACCOUNTS) {
        accounts::free_requested(device, address);
    }
    if let Some(hook) = Hook::enter() {
        hook.free_requested(device, stream, address, size_bytes);
    }
}

/// Records that a free requested earlier is complete.
#[inline]
pub fn record_free_completed(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    free(device, stream, address, size_bytes, true);
}

#[inline(always)]
fn free(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64, completes: bool) {
    if !switch::is_on(switch::EVENTS | switch::ACCOUNTS) {
        return;
    }
    if switch::is_on(switch::ACCOUNTS) {
        accounts::freeing(device, address);
    }
    if let Some(hook) = Hook::enter() {
        let freed = hook.free(device, address);
        hook.freed(freed, size_bytes, stream, completes);
    }
}

/// Records that a segment of `size_bytes` was allocated by the driver; blocks are allocated from it.
#[inline]
pub fn record_segment_alloc(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    other(Action::SegmentAlloc, device, stream, address, size_bytes);
}

/// Records that a segment is about to be returned to the driver.
#[inline]
pub fn record_segment_free(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    other(Action::SegmentFree, device, stream, address, size_bytes);
}

/// Records that pages were mapped into an expandable segment.
#[inline]
pub fn record_segment_map(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    other(Action::SegmentMap, device, stream, address, size_bytes);
}

/// Records that pages are about to be unmapped from an expandable segment.
#[inline]
pub fn record_segment_unmap(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    other(Action::SegmentUnmap, device, stream, address, size_bytes);
}

/// Records that an allocation of `requested_bytes` failed for good, while the device reported `device_free_bytes`
/// free of `device_total_bytes` (0 if unknown). Call it when all retries have failed and before the error is
/// returned.
///
/// After the event is recorded, [`Options::dump_on_oom`] is obeyed, and then the observers of
/// [`attach_out_of_memory_observer`] are called on this thread, also while nothing is monitored. So hold no lock that
/// they may need. It never panics, and only records the event when an observer itself runs out of memory.
#[cold]
pub fn record_oom(
    device: DeviceId,
    stream: StreamId,
    requested_bytes: u64,
    device_free_bytes: u64,
    device_total_bytes: u64,
) {
    other(Action::Oom, device, stream, device_free_bytes, requested_bytes);
    oom::report(&OutOfMemory::new(device, stream, requested_bytes, device_free_bytes, device_total_bytes));
}

/// Returns the bytes of the tables that know their own size.
pub(crate) fn table_bytes() -> usize {
    if !RECORDER.is_made() {
        return 0;
    }
    let recorder = RECORDER.get();
    let _inside = crate::reentry::enter();
    #[cfg(feature = "cuda")]
    let of_driver = recorder.driver.bytes();
    #[cfg(not(feature = "cuda"))]
    let of_driver = 0;
    let segments = recorder.segments.bytes() + of_driver;
    let names = thread_names::names_bytes() + binaries::list_bytes();
    recorder.live.table_bytes() + segments + recorder.stacks.table_bytes() + names
}

fn other(action: Action, device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    if let Some(hook) = Hook::enter() {
        hook.other(action, device, stream, address, size_bytes);
    }
}
