//! Whoever keeps memory that it could do without is asked for it before new memory is taken from the device.

use super::caching::{CachingAllocator, lock};
use super::context::Context;
use super::device::Device;
use super::device_memory::DeviceMemory;
use super::error::AllocatorError;
use super::malloc::Allocation;
use crate::event::StreamId;
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Gives memory back; whether it did.
type Callback = Arc<dyn Fn() -> bool + Send + Sync>;

/// The callbacks of an allocator.
#[derive(Default)]
pub(super) struct FreeMemoryCallbacks {
    any: AtomicBool,
    all: Mutex<Vec<Callback>>,
}

impl fmt::Debug for FreeMemoryCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeMemoryCallbacks").field("count", &lock(&self.all).len()).finish()
    }
}

thread_local! {
    /// The callbacks are being asked on this thread: what they allocate themselves does not ask again.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

impl FreeMemoryCallbacks {
    /// Whether there is one to ask.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed) && !ASKING.get()
    }

    /// Asks all of them; whether one gave something back.
    fn ask(&self) -> bool {
        struct Asking;
        impl Drop for Asking {
            fn drop(&mut self) {
                ASKING.set(false);
            }
        }
        let all = lock(&self.all).clone();
        ASKING.set(true);
        let _asking = Asking;
        all.iter().filter(|callback| callback()).count() > 0
    }
}

impl<M: DeviceMemory> CachingAllocator<M> {
    /// `callback` is asked to give memory back whenever the cache has no block for a request, before anything is taken
    /// from the device: a client with a cache of its own empties it there. It says whether it gave something back, and
    /// the cache is then searched again. No lock is held meanwhile; all callbacks are asked, in the order they were
    /// added. PyTorch's `FreeMemoryCallback`.
    pub fn add_free_memory_callback(&self, callback: impl Fn() -> bool + Send + Sync + 'static) {
        let callbacks = &self.shared.free_memory_callbacks;
        lock(&callbacks.all).push(Arc::new(callback));
        callbacks.any.store(true, Ordering::Relaxed);
    }

    /// Hands out a block as [`Device::malloc`] does, and asks the callbacks on the way. The device is unlocked while
    /// they run.
    #[cold]
    pub(super) fn malloc_asking<'a>(
        &'a self,
        mut device: MutexGuard<'a, Device<M>>,
        requested: u64,
        stream: StreamId,
    ) -> (MutexGuard<'a, Device<M>>, Result<Allocation, AllocatorError>) {
        let context = Context::of_allocation(&device.history);
        let request = match device.request(requested, stream, context) {
            Ok(request) => request,
            Err(error) => return (device, Err(error)),
        };
        if let Some(block) = device.take_cached(&request) {
            let allocation = device.hand_out(block, &request);
            return (device, Ok(allocation));
        }
        let id = device.id;
        drop(device);
        let freed = self.shared.free_memory_callbacks.ask();
        let mut device = lock(&self.shared.devices[usize::from(id.0)]);
        // Made anew: pools may have changed while the device was unlocked.
        let allocation = device.request(requested, stream, context).and_then(|mut request| {
            let cached = if freed { device.take_cached(&request) } else { None };
            let block = match cached {
                Some(block) => block,
                None => device.take_new(&mut request)?,
            };
            Ok(device.hand_out(block, &request))
        });
        (device, allocation)
    }
}
