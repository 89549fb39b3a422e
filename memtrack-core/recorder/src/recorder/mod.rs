//! The recorder: takes alloc and free events from any thread and keeps the newest of them, what is live, and exact sums.
//! This page is the door for allocators that report to it; the host heap's allocator and the CUDA hooks use the same.
//!
//! A report costs nothing but a load and a branch while nothing is monitored. Report a free **before** the memory is
//! given back and an allocation **after** it was obtained: another thread may be given the same address in between.

mod allocated;
mod barrier;
mod binaries;
#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod bounds;
mod chunk;
mod clock;
mod collect;
#[cfg(feature = "cuda")]
pub mod driver_memory;
#[cfg(feature = "cuda")]
pub mod driver_readings;
pub mod ending;
mod fork;
mod hooks;
mod inherit;
mod keeper;
mod kits;
mod live;
mod living;
pub(crate) mod marks;
mod merge;
mod mine;
mod of_caller;
mod oom;
pub(crate) mod operators;
mod order;
mod pace;
mod parts;
mod ring;
mod same_memory;
mod scope_sums;
mod segments;
pub mod session;
mod settings;
mod stream_file;
mod streaming;
mod sync;
pub mod telling;
mod thread_names;
mod threads;
mod totals;
#[cfg(all(target_os = "linux", target_env = "gnu", not(test)))]
mod unload;

pub use memtrack_model::options::{Context, Enabled, Options, UnknownOption, parse_actions};
pub(crate) use oom::refused_by_heap;
pub use oom::{OutOfMemory, OutOfMemoryObserver, attach_out_of_memory_observer};

pub use allocated::{Allocated, allocated_at};
pub use barrier::wait_for_hooks as hooks_have_ended;
pub use clock::{ns_per_tick, ticks};
pub use fork::{ForkCell, generation, watch as watch_forks};
pub use hooks::{Freed, Hook, Inside};
#[cfg(all(feature = "cuda", target_os = "linux", target_env = "gnu"))]
pub use inherit::may_leave_a_file;
pub(crate) use living::{Bounds, bounds};
pub use marks::mark;
pub(crate) use mine::{Mine, without_hook};
pub use mine::{scope_changed, with_room};
pub(crate) use of_caller::{begin_accounts, loaded_binaries};
pub use of_caller::{clock_so_far, stack_here, stacks_so_far};
#[cfg(all(feature = "cuda", target_os = "linux", target_env = "gnu"))]
pub use pace::Pace;
#[cfg(feature = "cuda")]
pub use settings::set_own_code;
pub use settings::{sample_threshold_bytes, sampling, session as session_number};
pub(crate) use thread_names::name_of as name_of_thread;
pub use threads::{DEVICE_SLOTS, device_of, slot_of, sums, sums_seen};
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

/// How many blocks the live table holds. Looks at each shard: a microsecond or two.
pub(crate) fn live_blocks() -> u64 {
    RECORDER.get().live.len() as u64
}

/// What all threads share.
#[doc(hidden)]
pub struct Recorder {
    /// The process that it records; another one that sees it shares this one's memory until it becomes a program.
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
    /// The stream, locked by who writes it; never asked for under the store's lock.
    target: streaming::TargetLock,
    /// Whether the stream was given up because its disk takes nothing.
    stalled: AtomicU8,
    keeper: keeper::Keeper,
    /// How many events the chunks take that are being filled.
    being_filled: AtomicU64,
    /// The lowest device that was met beyond those that can be told apart, until that was told.
    beyond: AtomicU16,
}

/// The heap's number, which is always recorded: there was no device beyond.
const NOT_BEYOND: u16 = DeviceId::HOST.0;

/// Full chunks, and those that wait for the stream. Locked for moments only.
struct Store {
    rings: [Ring; DEVICE_SLOTS],
    /// While a snapshot is being taken nothing is dropped.
    drops_nothing: bool,
    /// While a stream is open.
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
                drops_nothing: false,
                queue: is_streaming_child.then(streaming::Queue::of_child),
            }),
            target: Mutex::new(match is_streaming_child {
                true => streaming::Target::OfChild,
                false => streaming::Target::None,
            }),
            stalled: AtomicU8::new(streaming::NOT_STALLED),
            keeper: keeper::Keeper::default(),
            being_filled: AtomicU64::new(0),
            beyond: AtomicU16::new(NOT_BEYOND),
        }
    }

    fn store(&self) -> std::sync::MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a thread's full chunk; `replace` puts the next one in its place while the store is locked, so that a
    /// collector sees each event exactly once. Where there is a stream, it has it written when that is done.
    fn take_over(&self, device: DeviceId, full: Option<Arc<Chunk<Event>>>, replace: impl FnOnce()) {
        let slot = slot_of(device);
        // What memory is taken and given back for is made before the store is locked, and dropped after that.
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
        let outruns = store.queue.as_mut().map(|queue| queue.push(Arc::clone(&full)));
        let bound = if store.drops_nothing { u64::MAX } else { settings::ring_entries() };
        store.rings[slot].push(full, settings::start_ticks(), bound, &mut dropped);
        drop(store);
        drop((dropped, room));
        if let Some(outruns) = outruns {
            self.stream_full_chunks(outruns);
        }
    }

    /// A device is beyond those that can be told apart. Inside a hook, where nothing is said: it is told at the end.
    #[cold]
    fn too_many_devices(&self, device: DeviceId) {
        self.beyond.fetch_min(device.0, Ordering::Relaxed);
    }

    /// What is to be told of devices that were not recorded, once; `None` for nothing.
    fn devices_left_out(&self) -> Option<String> {
        let beyond = self.beyond.swap(NOT_BEYOND, Ordering::Relaxed);
        let device = (beyond != NOT_BEYOND).then_some(DeviceId(beyond))?;
        Some(format!("{device} is not recorded: at most 31 devices (0 to 30) can be told apart"))
    }
}

/// A block of `size_bytes` at `address` was handed out to a client. The stack and the scope are the caller's.
#[inline]
pub fn record_alloc(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    if !switch::is_on(switch::EVENTS | switch::ACCOUNTS) {
        return;
    }
    if switch::is_on(switch::ACCOUNTS) {
        accounts::allocated(device, address, size_bytes);
    }
    if let Some(hook) = Hook::enter() {
        hook.make_room(device, address);
        hook.alloc(device, stream, address, size_bytes, Default::default());
    }
}

/// A block is given back and free at once. `stream` and `size_bytes` (as requested at its allocation) count only when
/// the allocation was not recorded. A block whose free was requested earlier is completed.
#[inline]
pub fn record_free(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    free(device, stream, address, size_bytes, false);
}

/// A block is given back, but other streams may still use it: it stays active until [`record_free_completed`].
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

/// A free requested earlier is complete.
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

/// A segment of `size_bytes` was taken from the driver; blocks are handed out of it.
#[inline]
pub fn record_segment_alloc(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    other(Action::SegmentAlloc, device, stream, address, size_bytes);
}

/// A segment is given back to the driver.
#[inline]
pub fn record_segment_free(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    other(Action::SegmentFree, device, stream, address, size_bytes);
}

/// Pages were mapped into an expandable segment.
#[inline]
pub fn record_segment_map(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    other(Action::SegmentMap, device, stream, address, size_bytes);
}

/// Pages are unmapped from an expandable segment.
#[inline]
pub fn record_segment_unmap(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    other(Action::SegmentUnmap, device, stream, address, size_bytes);
}

/// An allocation of `requested_bytes` failed for good, while the device reported `device_free_bytes` free of
/// `device_total_bytes` (0 where that is unknown). Call it when all retries have failed and before the error is returned.
///
/// The event is recorded, [`Options::dump_on_oom`] is obeyed, and then the observers of
/// [`attach_out_of_memory_observer`] are told on this thread, these also while nothing is monitored. So hold no lock
/// that they may need. It never panics, and does nothing but record the event when an observer runs out of memory
/// itself.
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

/// Bytes of tables that know their own size.
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
