//! Observers in a build without the recorder, which are never called.

pub use memtrack_model::OutOfMemory;

/// An attached observer; without the recorder it is never called.
#[derive(Debug)]
pub struct OutOfMemoryObserver;

/// Calls `observer` when memory runs out; without the recorder it is never called.
pub fn attach_out_of_memory_observer(
    _observer: impl Fn(&OutOfMemory) + Send + Sync + 'static,
) -> OutOfMemoryObserver {
    OutOfMemoryObserver
}

impl OutOfMemoryObserver {
    /// Detaches the observer.
    pub fn detach(self) {}
}
