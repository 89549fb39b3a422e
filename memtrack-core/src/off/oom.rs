//! Observers that are never called.

pub use memtrack_model::OutOfMemory;

/// An observer that was attached; without the recorder it is never called.
#[derive(Debug)]
pub struct OutOfMemoryObserver;

/// Has `observer` called when memory runs out; without the recorder nobody says so.
pub fn attach_out_of_memory_observer(
    _observer: impl Fn(&OutOfMemory) + Send + Sync + 'static,
) -> OutOfMemoryObserver {
    OutOfMemoryObserver
}

impl OutOfMemoryObserver {
    /// Has the observer called no more.
    pub fn detach(self) {}
}
