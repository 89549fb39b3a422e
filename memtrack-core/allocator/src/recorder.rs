//! What the allocator takes from memtrack's recorder (the clock, and the stack and scope of its caller), and what it
//! reports to it. Without the recorder, nothing is captured or reported.

use crate::error::OutOfMemoryError;
use memtrack_model::event::{Action, DeviceId, ScopeId, StackId, StreamId};
use memtrack_model::snapshot::{Clock, Snapshot};
#[cfg(not(feature = "record"))]
use std::time::{SystemTime, UNIX_EPOCH};

/// The stack and scope of the code that caused an event.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) stack: StackId,
    pub(crate) scope: ScopeId,
}

/// Returns the current time in ticks of memtrack's clock, or in nanoseconds if the recorder is not built in.
#[inline]
pub(crate) fn ticks() -> u64 {
    #[cfg(feature = "record")]
    return memtrack_recorder::recorder::ticks();
    #[cfg(not(feature = "record"))]
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// Returns the clock that converts ticks to time.
pub(crate) fn clock() -> Clock {
    #[cfg(feature = "record")]
    return memtrack_recorder::recorder::clock_so_far();
    #[cfg(not(feature = "record"))]
    Clock { first: (0, 0), last: (1, 1) }
}

/// Reports an event to memtrack's recorder if it is on.
#[inline(always)]
pub(crate) fn report(action: Action, device: DeviceId, stream: StreamId, address: u64, size: u64) {
    // Check the switch inline, so that nothing is called while the recorder is off.
    #[cfg(feature = "record")]
    if memtrack_recorder::switch::is_on(memtrack_recorder::switch::EVENTS) {
        report_event(action, device, stream, address, size);
    }
    #[cfg(not(feature = "record"))]
    let _ = (action, device, stream, address, size);
}

#[cfg(feature = "record")]
#[inline(never)]
fn report_event(action: Action, device: DeviceId, stream: StreamId, address: u64, size: u64) {
    use memtrack_recorder::recorder;
    match action {
        Action::Alloc => recorder::record_alloc(device, stream, address, size),
        Action::FreeRequested => recorder::record_free_requested(device, stream, address, size),
        Action::FreeCompleted => recorder::record_free_completed(device, stream, address, size),
        Action::SegmentAlloc => recorder::record_segment_alloc(device, stream, address, size),
        Action::SegmentFree => recorder::record_segment_free(device, stream, address, size),
        Action::SegmentMap => recorder::record_segment_map(device, stream, address, size),
        Action::SegmentUnmap => recorder::record_segment_unmap(device, stream, address, size),
        // `report_oom` reports these events once no lock is held.
        _ => {}
    }
}

/// Returns the stacks and scopes that ids in histories refer to, the loaded binaries, and a clock whose ticks are
/// nanoseconds, like the times in histories.
pub(crate) fn snapshot_names() -> Snapshot {
    #[cfg(feature = "record")]
    let names = Snapshot {
        stacks: memtrack_recorder::recorder::stacks_so_far(),
        scopes: memtrack_recorder::scope::table(),
        modules: memtrack_recorder::stack::modules::loaded_modules(),
        ..Snapshot::default()
    };
    #[cfg(not(feature = "record"))]
    let names = Snapshot::default();
    Snapshot { clock: Clock { first: (0, 0), last: (1, 1) }, ..names }
}

/// Reports to memtrack's recorder, if it is on, and to the recorder's observers that memory ran out. Must be called
/// without holding a lock.
#[cold]
pub(crate) fn report_oom(error: &OutOfMemoryError) {
    #[cfg(feature = "record")]
    {
        let memtrack_model::OutOfMemory {
            device,
            stream,
            requested_bytes,
            device_free_bytes,
            device_total_bytes,
            ..
        } = error.facts;
        memtrack_recorder::recorder::record_oom(
            device,
            stream,
            requested_bytes,
            device_free_bytes,
            device_total_bytes,
        );
    }
    #[cfg(not(feature = "record"))]
    let _ = error;
}

/// Prepares to capture stacks, if `stacks`, by reading the list of loaded binaries and selecting the best method, and
/// starts the clock.
pub(crate) fn prepare(stacks: bool) {
    #[cfg(feature = "record")]
    {
        if stacks {
            memtrack_recorder::stack::capture::prepare();
        }
        let _ = clock();
    }
    #[cfg(not(feature = "record"))]
    let _ = stacks;
}

impl Caller {
    /// Returns the caller with its captured stack, or with `stack` if none was captured.
    #[inline]
    pub(crate) fn or_stack(self, stack: StackId) -> Self {
        if self.stack.is_none() { Self { stack, ..self } } else { self }
    }

    #[cfg(feature = "record")]
    #[inline]
    pub(crate) fn capture(stack: bool) -> Self {
        let stack = if stack { memtrack_recorder::recorder::stack_here() } else { StackId::NONE };
        Self { stack, scope: memtrack_recorder::scope::current_id() }
    }

    #[cfg(not(feature = "record"))]
    pub(crate) fn capture(_stack: bool) -> Self {
        Self::default()
    }
}
