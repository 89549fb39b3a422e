//! Who asks: the stack and the scope of the calling thread, and memtrack's recorder, which hears of events too.

use super::history::{History, HistoryOptions, KeptStacks};
use crate::event::{Action, DeviceId, ScopeId, StackId, StreamId};
use std::time::{SystemTime, UNIX_EPOCH};

/// Who caused an event.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Context {
    pub(super) stack: StackId,
    pub(super) scope: ScopeId,
}

/// Nanoseconds since the Unix epoch.
pub(super) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64)
}

/// Tells memtrack's recorder, if it is on.
#[inline]
pub(super) fn report(action: Action, device: DeviceId, stream: StreamId, address: u64, size: u64) {
    #[cfg(feature = "record")]
    {
        use crate::recorder;
        match action {
            Action::Alloc => recorder::record_alloc(device, stream, address, size),
            Action::FreeRequested => recorder::record_free_requested(device, stream, address, size),
            Action::FreeCompleted => recorder::record_free_completed(device, stream, address, size),
            Action::SegmentAlloc => recorder::record_segment_alloc(device, stream, address, size),
            Action::SegmentFree => recorder::record_segment_free(device, stream, address, size),
            Action::SegmentMap => recorder::record_segment_map(device, stream, address, size),
            Action::SegmentUnmap => recorder::record_segment_unmap(device, stream, address, size),
            Action::Oom => recorder::record_oom(device, stream, size, address),
            _ => {}
        }
    }
    #[cfg(not(feature = "record"))]
    let _ = (action, device, stream, address, size);
}

impl Context {
    /// Of an allocation, as far as the history keeps it.
    #[inline]
    pub(super) fn of_allocation(history: &History) -> Self {
        Self::here(history, history.stacks != KeptStacks::None)
    }

    /// Of a free.
    #[inline]
    pub(super) fn of_free(history: &History) -> Self {
        Self::here(history, history.stacks == KeptStacks::All)
    }

    #[inline]
    fn here(history: &History, stack: bool) -> Self {
        if !history.enabled && !stack {
            return Self::default();
        }
        Self { stack: StackId::NONE, scope: ScopeId::NONE }
    }

    /// Before stacks are taken for the first time.
    pub(super) fn prepare(options: Option<&HistoryOptions>) {
        let _ = options;
    }
}
