//! The functions with which allocators and programs report to the recorder. Without the feature `record` they do nothing.
//!
//! While nothing is monitored, a report costs only a load and a branch. Report a free **before** the memory is freed
//! and an allocation **after** it was obtained: another thread may receive the same address in between.

#[cfg(feature = "record")]
use crate::{
    accounts,
    events::{Hook, marks, oom},
    switch,
};
#[cfg(feature = "record")]
use memtrack_model::event::Action;
use memtrack_model::event::{DeviceId, StreamId};

pub use memtrack_model::OutOfMemory;

/// Records that a block of `size_bytes` at `address` was allocated for a client, with the stack and the scope of the
/// calling thread.
#[inline]
pub fn record_alloc(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    #[cfg(feature = "record")]
    {
        if !switch::is_on(switch::EVENTS | switch::ACCOUNTS) {
            return;
        }
        if switch::is_on(switch::ACCOUNTS) {
            accounts::allocated(device, address, size_bytes);
        }
        if let Some(hook) = Hook::enter() {
            hook.end_segment_block(device, address);
            hook.alloc(device, stream_on(device, stream), address, size_bytes, Default::default());
        }
    }
}

/// Records that a block is about to be freed immediately. `stream` and `size_bytes` (as requested at its allocation)
/// are used only if the allocation was not recorded. If the free of the block was requested earlier, this completes it.
#[inline]
pub fn record_free(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    #[cfg(feature = "record")]
    free(device, stream, address, size_bytes, false);
}

/// Records that a block is freed while other streams may still use it: it stays active until
/// [`record_free_completed`].
#[inline]
pub fn record_free_requested(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    #[cfg(feature = "record")]
    {
        if !switch::is_on(switch::EVENTS | switch::ACCOUNTS) {
            return;
        }
        if switch::is_on(switch::ACCOUNTS) {
            accounts::free_requested(device, address);
        }
        if let Some(hook) = Hook::enter() {
            let stream = if device.is_host() { StreamId(0) } else { stream };
            hook.free_requested(device, stream, address, size_bytes);
        }
    }
}

/// Records that a free requested earlier is complete.
#[inline]
pub fn record_free_completed(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    #[cfg(feature = "record")]
    free(device, stream, address, size_bytes, true);
}

/// Returns the stream of a new block: on the host heap, which has no streams, the task that the thread polls.
#[cfg(feature = "record")]
#[inline(always)]
fn stream_on(device: DeviceId, stream: StreamId) -> StreamId {
    if device.is_host() { StreamId(crate::reentry::task()) } else { stream }
}

#[cfg(feature = "record")]
#[inline(always)]
fn free(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64, completes: bool) {
    if !switch::is_on(switch::EVENTS | switch::ACCOUNTS) {
        return;
    }
    if switch::is_on(switch::ACCOUNTS) {
        accounts::freeing(device, address);
    }
    if let Some(hook) = Hook::enter() {
        let freed = hook.begin_free(device, address);
        let stream = if device.is_host() { StreamId(0) } else { stream };
        hook.finish_free(freed, size_bytes, stream, completes);
    }
}

/// Records that a segment of `size_bytes` was allocated by the driver; blocks are allocated from it.
#[inline]
pub fn record_segment_alloc(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    #[cfg(feature = "record")]
    record_without_block(Action::SegmentAlloc, device, stream, address, size_bytes);
}

/// Records that a segment is about to be returned to the driver.
#[inline]
pub fn record_segment_free(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    #[cfg(feature = "record")]
    record_without_block(Action::SegmentFree, device, stream, address, size_bytes);
}

/// Records that pages were mapped into an expandable segment.
#[inline]
pub fn record_segment_map(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    #[cfg(feature = "record")]
    record_without_block(Action::SegmentMap, device, stream, address, size_bytes);
}

/// Records that pages are about to be unmapped from an expandable segment.
#[inline]
pub fn record_segment_unmap(device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    #[cfg(feature = "record")]
    record_without_block(Action::SegmentUnmap, device, stream, address, size_bytes);
}

/// Records that an allocation of `requested_bytes` finally failed, while the device reported `device_free_bytes` free
/// of `device_total_bytes` (0 if unknown). Call this when all retries have failed and before the error is returned.
///
/// After the event is recorded, a dump is written if [`Options::dump_on_oom`] requests it, and then the observers of
/// [`attach_out_of_memory_observer`] are called on this thread, even while nothing is monitored. So the caller must
/// hold no lock that an observer may need. This function never panics. If an observer itself runs out of memory, the
/// nested call only records the event.
///
/// [`Options::dump_on_oom`]: memtrack_model::options::Options::dump_on_oom
#[cold]
pub fn record_oom(
    device: DeviceId,
    stream: StreamId,
    requested_bytes: u64,
    device_free_bytes: u64,
    device_total_bytes: u64,
) {
    #[cfg(feature = "record")]
    {
        record_without_block(Action::Oom, device, stream, device_free_bytes, requested_bytes);
        oom::report(&OutOfMemory::new(
            device,
            stream,
            requested_bytes,
            device_free_bytes,
            device_total_bytes,
        ));
    }
}

/// A handle to an attached observer. The observer stays attached when the handle is dropped, as in PyTorch.
#[derive(Debug)]
pub struct OutOfMemoryObserver {
    #[cfg(feature = "record")]
    id: u64,
}

/// Calls `observer` whenever an allocator reports with [`record_oom`] that memory ran out. The call is
/// made on the thread that ran out of memory, after the event was recorded and before the allocator returns its error.
/// Counterpart of `torch._C._cuda_attachOutOfMemoryObserver`.
///
/// Observers are called in the order in which they were attached, whether or not anything is monitored. An observer may
/// allocate, dump a snapshot, and attach and detach observers; while it runs, it is not called again on its thread. If
/// it panics, this is reported on stderr and the others are still called (unless panics abort). A forked child begins
/// without observers. When the host's own heap fails, observers are not called, because there would be no memory for
/// them to use.
///
/// ```
/// use memtrack_core::event::{DeviceId, StreamId};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// static MISSING_BYTES: AtomicU64 = AtomicU64::new(0);
/// let observer = memtrack_core::attach_out_of_memory_observer(|oom| {
///     MISSING_BYTES.store(oom.requested_bytes - oom.device_free_bytes, Ordering::Relaxed);
/// });
/// memtrack_core::recorder::record_oom(DeviceId(0), StreamId(0), 5 << 30, 1 << 30, 8 << 30);
/// assert_eq!(MISSING_BYTES.load(Ordering::Relaxed), 4 << 30);
/// observer.detach();
/// ```
pub fn attach_out_of_memory_observer(
    observer: impl Fn(&OutOfMemory) + Send + Sync + 'static,
) -> OutOfMemoryObserver {
    OutOfMemoryObserver {
        #[cfg(feature = "record")]
        id: oom::attach(observer),
    }
}

impl OutOfMemoryObserver {
    /// Detaches the observer. A call that is in progress on another thread runs to its end.
    pub fn detach(self) {
        #[cfg(feature = "record")]
        oom::detach(self.id);
    }
}

/// Marks this moment: a step, request or other interval with this name ends here and the next one begins. `memtrack
/// leaks --per NAME` shows the memory that each interval left behind, and distinguishes memory that grows from interval
/// to interval from memory that is merely live.
///
/// Marks with the same name divide the time of the whole program: the allocations of other threads count, too. Set
/// marks where little memory is in use temporarily, such as at the end of a step. While nothing is monitored, this is a
/// load and a branch; otherwise it reads the clock, and a lock is held while one row is copied. The newest 65,536 marks
/// are kept, or all of them if the recording is streamed. Names are never freed, and at most 1 KiB of each is kept:
/// name the kind of interval, not the instance (`request`, not `request 4711`).
///
/// ```
/// # use memtrack_recorder::recorder::mark;
/// # fn train_step() {}
/// for _ in 0..100 {
///     train_step();
///     mark("step");
/// }
/// ```
#[inline]
pub fn mark(name: &str) {
    #[cfg(feature = "record")]
    if switch::is_on(switch::EVENTS) {
        marks::mark_now(name);
    }
}

#[cfg(feature = "record")]
fn record_without_block(action: Action, device: DeviceId, stream: StreamId, address: u64, size_bytes: u64) {
    if let Some(hook) = Hook::enter() {
        hook.record_without_block(action, device, stream_on(device, stream), address, size_bytes);
    }
}
