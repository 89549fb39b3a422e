//! The recorder: receives alloc and free events from any thread and keeps the newest events, the live blocks, and exact
//! sums. Allocators report with the functions in [`record`](crate::record); the host heap's allocator and the CUDA hooks
//! use [`Hook`].

mod allocated;
mod barrier;
mod binaries;
#[cfg(all(test, target_arch = "x86_64"))]
mod bounds;
mod caller;
mod chunk;
mod collect;
pub(crate) mod counted_peak;
mod current_thread;
#[cfg(feature = "cuda")]
pub mod driver_memory;
#[cfg(feature = "cuda")]
pub mod driver_readings;
pub mod exit;
mod filling;
pub(crate) mod fork;
mod hook_stacks;
mod hooks;
mod inherit;
mod kits;
mod live;
pub(crate) mod marks;
mod merge;
pub(crate) mod oom;
pub(crate) mod operators;
mod order;
mod pace;
#[doc(hidden)]
pub mod parts;
pub mod report_hook;
pub(crate) mod resident;
mod resident_reading;
mod ring;
mod running_sums;
mod same_memory;
mod scope_sums;
mod segments;
pub mod session;
mod stream_file;
mod stream_thread;
mod streaming;
mod sync;
mod thread_names;
mod thread_sums;
mod threads;
mod totals;
#[cfg(all(target_env = "gnu", not(test)))]
mod unload;

pub use crate::record::*;
pub use memtrack_model::options::{Context, Enabled, Options, UnknownOption, parse_actions};
pub(crate) use oom::report_heap_refusal;

pub use crate::clock::{reading as clock_now, ticks};
pub use allocated::{Allocated, allocated_at};
pub use barrier::wait_for_hooks;
pub use caller::{clock_so_far, stack_here, stacks_so_far};
pub(crate) use caller::{loaded_binaries, prepare_for_accounts};
pub use collect::{meta_of_process, statistics_of};
pub(crate) use current_thread::{CurrentThread, thread_outside_hooks};
pub use current_thread::{key_of_thread_end, note_scope_change, with_room};
pub use fork::{ForkCell, generation, watch as watch_forks};
pub use hooks::{FreeInProgress, Hook, HookContext};
pub use pace::Pace;
pub use resident::{recent_resident_bytes, virtual_and_resident_bytes};
pub use resident_reading::read_pages;
pub use running_sums::{DeviceSums, RunningSums, running_sums};
pub(crate) use same_memory::is_copy;
pub(crate) use scope_sums::scope_of_row;
pub(crate) use thread_names::name_of as name_of_thread;
pub(crate) use threads::add_shared_sums;
pub use threads::{DEVICE_SLOTS, device_of, observed_sums, slot_of, sums};
pub(crate) use threads::{ThreadState, states};
pub use totals::Sums;
#[cfg(all(target_env = "gnu", not(test)))]
pub use unload::closed_libraries;

use crate::settings;
use crate::shared_memory;
use crate::stack::intern::StackInterner;
use chunk::Chunk;
use live::LiveTable;
use memtrack_model::event::{DeviceId, Event};
use ring::Ring;
use same_memory::SameMemory;
use segments::Segments;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Returns whether the `memtrack` command records this program, so that its events are not kept here.
pub fn is_recorded_by_command() -> bool {
    shared_memory::is_connected()
}

/// The process's only recorder. A forked child creates a new one.
pub static RECORDER: ForkCell<Recorder> = ForkCell::new(Recorder::new);

/// Returns the number of bytes that memtrack itself holds, as [`own_bytes`](crate::allocator::own_bytes) documents.
pub(crate) fn own_bytes() -> i64 {
    crate::internal_bytes::total() + table_bytes() as i64
}

/// Returns the number of blocks in the live table. Visits each shard, which takes a microsecond or two.
fn live_blocks() -> u64 {
    RECORDER.get().live.len() as u64
}

/// The state that all threads share.
#[doc(hidden)]
pub struct Recorder {
    same_memory: SameMemory,
    pub(crate) live: LiveTable,
    pub(crate) stacks: StackInterner,
    segments: Segments,
    #[cfg(feature = "cuda")]
    pub driver: driver_memory::DriverTable,
    #[cfg(feature = "cuda")]
    pub readings: driver_readings::Readings,
    store: Mutex<Store>,
    /// The stream, locked by the thread that writes it; never locked while the store is locked.
    target: streaming::TargetLock,
    /// Whether the stream was abandoned because writes to its disk did not complete.
    stalled: AtomicU8,
    stream_thread: stream_thread::StreamThread,
    /// The total capacity, in events, of the chunks that are being filled.
    filling_events: AtomicU64,
    /// The lowest device that was omitted because there are too many devices; [`NONE_OMITTED`] if no device has been
    /// omitted since this was last reported.
    lowest_omitted: AtomicU16,
}

/// The value of [`Recorder::lowest_omitted`] for no device: the number of the host heap, which is never omitted.
const NONE_OMITTED: u16 = DeviceId::HOST.0;

/// The full chunks, including those that wait for the stream. Locked only briefly.
struct Store {
    rings: [Ring; DEVICE_SLOTS],
    /// Set while a snapshot is taken, so that no chunk is dropped.
    keeps_all: bool,
    /// Present while a stream is open.
    queue: Option<streaming::Queue>,
}

impl Recorder {
    fn new() -> Self {
        let is_streaming_child = session::is_streaming_child();
        if generation() > 0 && shared_memory::is_connected() {
            shared_memory::log_command_line();
            binaries::log_all();
            crate::scope::log_all();
        }
        Self {
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
            filling_events: AtomicU64::new(0),
            lowest_omitted: AtomicU16::new(NONE_OMITTED),
        }
    }

    fn store(&self) -> std::sync::MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a thread's full chunk; `replace` installs the thread's next chunk while the store is locked, so that a
    /// collector visits each event exactly once. If there is a stream, the chunk is then passed to it.
    fn store_full_chunk(&self, device: DeviceId, full: Option<Arc<Chunk<Event>>>, replace: impl FnOnce()) {
        let slot = slot_of(device);
        // Memory is allocated before the store is locked, and freed after it is unlocked.
        let (mut dropped, mut memory) = (ring::DroppedChunks::new(), Ring::allocate(0));
        let mut store = self.store();
        while let Some(needed) = slot.and_then(|slot| store.rings[slot].needed_capacity()) {
            drop(store);
            memory = Ring::allocate(needed);
            store = self.store();
            slot.iter().for_each(|&slot| store.rings[slot].grow(&mut memory));
        }
        replace();
        let (Some(full), Some(slot)) = (full, slot) else { return };
        let must_wait = store.queue.as_mut().map(|queue| queue.push(Arc::clone(&full)));
        let bound = if store.keeps_all { u64::MAX } else { settings::ring_entries() };
        store.rings[slot].push(full, settings::start_ticks(), bound, &mut dropped);
        drop(store);
        drop((dropped, memory));
        if let Some(must_wait) = must_wait {
            self.stream_full_chunks(must_wait);
        }
    }

    /// Notes a device that is omitted because there are too many devices. Called inside a hook, where nothing may be
    /// printed, so the device is reported at the end.
    #[cold]
    fn note_omitted_device(&self, device: DeviceId) {
        self.lowest_omitted.fetch_min(device.0, Ordering::Relaxed);
    }

    /// Returns the message about devices that were omitted; `None` if none was omitted since the last call.
    fn omitted_devices_message(&self) -> Option<String> {
        let lowest = self.lowest_omitted.swap(NONE_OMITTED, Ordering::Relaxed);
        let device = (lowest != NONE_OMITTED).then_some(DeviceId(lowest))?;
        Some(format!("{device} is not recorded: at most 31 devices (0 to 30) can be told apart"))
    }
}

/// Returns the total memory of the tables that can report their size, in bytes.
fn table_bytes() -> usize {
    if !RECORDER.is_made() {
        return 0;
    }
    let recorder = RECORDER.get();
    let _inside = crate::reentry::enter();
    #[cfg(feature = "cuda")]
    let driver_bytes = recorder.driver.bytes();
    #[cfg(not(feature = "cuda"))]
    let driver_bytes = 0;
    let segments = recorder.segments.bytes() + driver_bytes;
    let names = thread_names::names_bytes() + binaries::list_bytes();
    recorder.live.table_bytes() + segments + recorder.stacks.table_bytes() + names
}
