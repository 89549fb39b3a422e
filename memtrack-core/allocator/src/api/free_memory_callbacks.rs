//! Callbacks that release memory clients can spare, called before new memory is taken from the device.

use crate::api::caching::{CachingAllocator, lock};
use crate::api::error::AllocatorError;
use crate::memory::device_memory::DeviceMemory;
use crate::state::caller::Caller;
use crate::state::device::Device;
use memtrack_model::event::StreamId;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Gives memory back; returns whether it did.
type Callback = Arc<dyn Fn() -> bool + Send + Sync>;

/// The callbacks of an allocator.
#[derive(Default)]
pub(crate) struct FreeMemoryCallbacks {
    any: AtomicBool,
    all: Mutex<Vec<Callback>>,
}

impl fmt::Debug for FreeMemoryCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeMemoryCallbacks").field("count", &lock(&self.all).len()).finish()
    }
}

thread_local! {
    /// The callbacks are running on this thread: what they allocate themselves does not call them again.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

impl FreeMemoryCallbacks {
    /// Whether there is one to call.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed) && !ASKING.get()
    }

    /// Calls all of them.
    fn ask(&self) {
        struct Asking;
        impl Drop for Asking {
            fn drop(&mut self) {
                ASKING.set(false);
            }
        }
        let all = lock(&self.all).clone();
        ASKING.set(true);
        let _asking = Asking;
        for callback in all {
            callback();
        }
    }
}

impl<M: DeviceMemory> CachingAllocator<M> {
    /// `callback` is called to give memory back whenever the cache has no block for a request, before anything is taken
    /// from the device: a client with a cache of its own empties it there. The cache is then searched again. It returns
    /// whether it gave something back, as PyTorch's do, but the result is not used here. No lock is held meanwhile; all
    /// callbacks are called, in the order they were added. PyTorch's `FreeMemoryCallback`.
    pub fn add_free_memory_callback(&self, callback: impl Fn() -> bool + Send + Sync + 'static) {
        let callbacks = &self.shared.free_memory_callbacks;
        lock(&callbacks.all).push(Arc::new(callback));
        callbacks.any.store(true, Ordering::Relaxed);
    }

    /// Calls the callbacks if the cache has no block for a request. The device is unlocked while they run.
    #[cold]
    pub(crate) fn ask_for_memory<'a>(
        &'a self,
        mut device: MutexGuard<'a, Device<M>>,
        requested: u64,
        stream: StreamId,
    ) -> Result<MutexGuard<'a, Device<M>>, AllocatorError> {
        let context = Caller::of_allocation(&device.history);
        let request = device.request(requested, stream, context)?;
        if device.find_cached(&request).is_some() {
            return Ok(device);
        }
        let id = device.id;
        drop(device);
        // The cache is searched again in any case: another thread may have given something back.
        self.shared.free_memory_callbacks.ask();
        self.device(id)
    }
}
