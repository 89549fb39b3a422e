//! Callbacks that let clients release spare memory before new memory is allocated from the device.

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

/// A callback that frees memory and returns whether it freed any.
type Callback = Arc<dyn Fn() -> bool + Send + Sync>;

/// An allocator's callbacks.
#[derive(Default)]
pub(crate) struct FreeMemoryCallbacks {
    has_callbacks: AtomicBool,
    callbacks: Mutex<Vec<Callback>>,
}

impl fmt::Debug for FreeMemoryCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeMemoryCallbacks").field("count", &lock(&self.callbacks).len()).finish()
    }
}

thread_local! {
    /// Whether the callbacks are running on this thread. If they are, the thread's own allocations do not
    /// call them again.
    static IN_CALLBACKS: Cell<bool> = const { Cell::new(false) };
}

impl FreeMemoryCallbacks {
    /// Returns whether the callbacks need to be called: at least one exists, and they are not already running
    /// on this thread.
    #[inline]
    pub(crate) fn should_call(&self) -> bool {
        self.has_callbacks.load(Ordering::Relaxed) && !IN_CALLBACKS.get()
    }

    /// Calls all callbacks.
    fn call_all(&self) {
        struct InCallbacks;
        impl Drop for InCallbacks {
            fn drop(&mut self) {
                IN_CALLBACKS.set(false);
            }
        }
        let callbacks = lock(&self.callbacks).clone();
        IN_CALLBACKS.set(true);
        let _in_callbacks = InCallbacks;
        for callback in callbacks {
            callback();
        }
    }
}

impl<M: DeviceMemory> CachingAllocator<M> {
    /// Adds a callback that is called to free memory whenever the cache has no block for a request, before memory is
    /// allocated from the device. A client with its own cache can empty that cache in the callback. The allocator then
    /// searches its own cache again. As in PyTorch, the callback returns whether it freed anything, but the allocator
    /// ignores this result. All callbacks are called in the order in which they were added, and no lock is held during
    /// the calls. This is PyTorch's `FreeMemoryCallback`.
    pub fn add_free_memory_callback(&self, callback: impl Fn() -> bool + Send + Sync + 'static) {
        let callbacks = &self.shared.free_memory_callbacks;
        lock(&callbacks.callbacks).push(Arc::new(callback));
        callbacks.has_callbacks.store(true, Ordering::Relaxed);
    }

    /// Calls the callbacks if the cache has no block for a request. The device is unlocked while they run.
    #[cold]
    pub(crate) fn request_memory<'a>(
        &'a self,
        mut device: MutexGuard<'a, Device<M>>,
        requested: u64,
        stream: StreamId,
    ) -> Result<MutexGuard<'a, Device<M>>, AllocatorError> {
        let context = Caller::capture_allocation(&device.history);
        let request = device.prepare_request(requested, stream, context)?;
        if device.find_cached(&request).is_some() {
            return Ok(device);
        }
        let id = device.id;
        drop(device);
        // Ignore what the callbacks return: the caller searches the cache again in any case, because another thread may
        // have freed memory.
        self.shared.free_memory_callbacks.call_all();
        self.lock_device(id)
    }
}
