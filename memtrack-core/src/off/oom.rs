//! Out-of-memory observers in builds without the recorder, where they are never called.

pub use memtrack_model::OutOfMemory;

/// An attached observer. Without the recorder, it is never called.
#[derive(Debug)]
pub struct OutOfMemoryObserver;

/// Attaches an observer that is called when memory runs out. Without the recorder, it is never called.
pub fn attach_out_of_memory_observer(
    _observer: impl Fn(&OutOfMemory) + Send + Sync + 'static,
) -> OutOfMemoryObserver {
    OutOfMemoryObserver
}

impl OutOfMemoryObserver {
    /// Detaches the observer.
    pub fn detach(self) {}
}
