//! The caching allocator for all devices: its locks, its callbacks and its public methods.

use crate::error::{AllocatorError, OomRejection, OutOfMemoryError};
use crate::memory::DeviceMemory;
use crate::memory::simulated::SimulatedMemory;
use crate::recorder;
use crate::settings::{AllocatorBackend, AllocatorSettings, Settings};
use crate::state::device::Device;
use crate::steps::malloc::Allocation;
use memtrack_model::event::{DeviceId, StreamId};
use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A callback for failed allocations.
type Observer = Arc<dyn Fn(&OutOfMemoryError) + Send + Sync>;

/// A callback for rejected requests.
type RejectionObserver = Arc<dyn Fn(&OomRejection) + Send + Sync>;

/// A callback that frees memory and returns whether it freed any.
type Callback = Arc<dyn Fn() -> bool + Send + Sync>;

/// An allocator's callbacks.
#[derive(Default)]
struct FreeMemoryCallbacks {
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
    fn should_call(&self) -> bool {
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

/// PyTorch's caching allocator for all devices of a process. Clones share one allocator.
///
/// Each device has its own lock, which is held while the device's memory is allocated or freed.
pub struct CachingAllocator<M: DeviceMemory> {
    pub(crate) shared: Arc<SharedState<M>>,
}

pub(crate) struct SharedState<M: DeviceMemory> {
    devices: Box<[Mutex<Device<M>>]>,
    settings: Mutex<Settings>,
    observers: Mutex<Vec<Observer>>,
    rejection_observers: Mutex<Vec<RejectionObserver>>,
    free_memory_callbacks: FreeMemoryCallbacks,
    pub(crate) pools_created: AtomicU64,
    pub(crate) captures_created: AtomicU64,
}

impl<M: DeviceMemory> Clone for CachingAllocator<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<M: DeviceMemory> fmt::Debug for CachingAllocator<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachingAllocator")
            .field("devices", &self.device_count())
            .field("settings", &self.lock_settings().text())
            .finish()
    }
}

/// Locks a mutex even if it is poisoned. No code that holds one of these locks panics in the middle of a change, so the
/// state is always consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CachingAllocator<SimulatedMemory> {
    /// Creates an allocator over `devices` simulated devices of `total` bytes each.
    ///
    /// # Errors
    /// Never fails for a simulated device.
    ///
    /// # Panics
    /// Panics if there are more than 63 devices.
    pub fn simulated(devices: u16, total: u64, settings: &Settings) -> Result<Self, AllocatorError> {
        Self::new((0..devices).map(|device| SimulatedMemory::new(device, total)), settings)
    }
}

impl<M: DeviceMemory> CachingAllocator<M> {
    /// Creates an allocator over the memory of several devices; the first item of `memories` is device 0.
    ///
    /// # Errors
    /// Fails when a device's total memory cannot be queried, or when the settings request another backend (use
    /// `cuda_backend` for that).
    pub fn new(memories: impl IntoIterator<Item = M>, settings: &Settings) -> Result<Self, AllocatorError> {
        if settings.backend() != AllocatorBackend::Native {
            let text = "backend:cudaMallocAsync is not a caching allocator; allocator::cuda_backend creates the requested \
                        backend";
            return Err(AllocatorError::Unsupported(text.into()));
        }
        let devices: Result<Box<[_]>, AllocatorError> = memories
            .into_iter()
            .enumerate()
            .map(|(ordinal, memory)| Device::new(DeviceId(ordinal as u16), memory, settings).map(Mutex::new))
            .collect();
        Ok(Self {
            shared: Arc::new(SharedState {
                devices: devices?,
                settings: Mutex::new(settings.clone()),
                observers: Mutex::default(),
                rejection_observers: Mutex::default(),
                free_memory_callbacks: FreeMemoryCallbacks::default(),
                pools_created: AtomicU64::new(0),
                captures_created: AtomicU64::new(0),
            }),
        })
    }

    /// Returns the number of devices.
    pub fn device_count(&self) -> usize {
        self.shared.devices.len()
    }

    #[inline]
    pub(crate) fn lock_device(&self, device: DeviceId) -> Result<MutexGuard<'_, Device<M>>, AllocatorError> {
        let devices = &self.shared.devices;
        let invalid_device = || AllocatorError::InvalidDevice { device: device.0, devices: devices.len() };
        devices.get(usize::from(device.0)).map(lock).ok_or_else(invalid_device)
    }

    /// Locks and returns each device in turn.
    pub(crate) fn lock_devices(&self) -> impl Iterator<Item = MutexGuard<'_, Device<M>>> {
        self.shared.devices.iter().map(lock)
    }

    pub(crate) fn lock_settings(&self) -> MutexGuard<'_, Settings> {
        lock(&self.shared.settings)
    }

    /// Allocates a block of at least `size` bytes for work on `stream`. A request for 0 bytes allocates nothing
    /// and returns the address 0, which may be passed to [`Self::free`].
    ///
    /// The allocator identifies a stream only by its handle. The stream must stay alive for as long as the
    /// allocator has allocated or cached memory for it, or has recorded a use on it. Otherwise the driver may give
    /// the same handle to another stream, which would then receive memory that the destroyed stream's work still
    /// uses. (`DeviceBuffer` ensures this itself.) If the driver detects that a stream was destroyed, the
    /// allocator waits for the whole device.
    ///
    /// # Errors
    /// [`AllocatorError::OutOfMemory`] when there is not enough memory, even after releasing the cache;
    /// [`AllocatorError::OomRejection`] when the settings reject the request. Observers are called in both cases.
    /// [`AllocatorError::TooLarge`] for requests of 1 EiB or more.
    #[inline]
    pub fn allocate(
        &self,
        size: u64,
        device: DeviceId,
        stream: StreamId,
    ) -> Result<Allocation, AllocatorError> {
        if size == 0 {
            return Ok(Allocation { address: 0, size: 0 });
        }
        let mut locked = self.lock_device(device)?;
        if self.shared.free_memory_callbacks.should_call() {
            locked = self.request_memory(locked, size, stream)?;
        }
        let context = locked.history.capture_allocation();
        let allocation = locked.malloc(size, stream, context);
        let reports = locked.reports;
        drop(locked);
        match &allocation {
            Err(AllocatorError::OutOfMemory(error)) => self.notify_observers(error, reports),
            Err(AllocatorError::OomRejection(rejection)) => self.report_rejection(rejection),
            _ => {}
        }
        allocation
    }

    #[cold]
    fn notify_observers(&self, error: &OutOfMemoryError, reports: bool) {
        if reports {
            recorder::report_oom(error);
        }
        // Hold no lock here, because an observer may attach another observer or take a snapshot.
        let observers = lock(&self.shared.observers).clone();
        for observer in observers {
            observer(error);
        }
    }

    /// Frees a block. If other streams use the block ([`Self::record_stream`]), its memory becomes free once those
    /// streams are done with it.
    ///
    /// # Errors
    /// [`AllocatorError::InvalidPointer`] when no allocated block starts at `address`.
    #[inline]
    pub fn free(&self, address: u64) -> Result<(), AllocatorError> {
        if address == 0 {
            return Ok(());
        }
        for device in &self.shared.devices {
            let mut device = lock(device);
            let context = device.history.capture_free();
            if device.free(address, context)? {
                return Ok(());
            }
        }
        Err(AllocatorError::InvalidPointer(address))
    }

    /// Records that `stream` also uses the block at `address`. Once the block is freed, its memory is not reused
    /// until the work queued on `stream` at that time is done. An address that is not from this allocator is
    /// ignored, as in PyTorch.
    pub fn record_stream(&self, address: u64, stream: StreamId) {
        // Stop at the device that allocated the block.
        let _ = address != 0 && self.lock_devices().any(|mut device| device.record_stream(address, stream));
    }

    /// Returns PyTorch's text about the processes that use the device. The text identifies the device by its NVML
    /// index. If NVML is missing, the text states this.
    ///
    /// # Errors
    /// Fails when there is no such device or NVML fails.
    pub fn list_gpu_processes(&self, device: DeviceId) -> Result<String, AllocatorError> {
        Ok(self.lock_device(device)?.memory.list_gpu_processes(device)?)
    }

    /// Changes settings at run time according to PyTorch's rules; see [`Settings::apply`](crate::Settings::apply).
    ///
    /// # Errors
    /// Fails when the string is invalid. Settings that precede the error may still take effect; see
    /// [`Settings::apply`](crate::Settings::apply).
    pub fn set_allocator_settings(&self, text: &str) -> Result<(), AllocatorError> {
        let mut settings = self.lock_settings();
        let applied = settings.apply(text);
        for mut device in self.lock_devices() {
            device.options = *settings.options();
        }
        Ok(applied?)
    }

    /// Returns the current settings.
    pub fn allocator_settings(&self) -> AllocatorSettings {
        self.lock_settings().report()
    }

    /// Attaches an observer that is called each time memory runs out, after all observers attached earlier. No
    /// lock is held during the call, so the observer may take a snapshot.
    pub fn attach_out_of_memory_observer(
        &self,
        observer: impl Fn(&OutOfMemoryError) + Send + Sync + 'static,
    ) {
        lock(&self.shared.observers).push(Arc::new(observer));
    }

    /// Attaches an observer that is called each time `throw_on_cudamalloc_oom` causes a request to be rejected.
    /// No lock is held during the call.
    pub fn attach_oom_rejection_observer(&self, observer: impl Fn(&OomRejection) + Send + Sync + 'static) {
        lock(&self.shared.rejection_observers).push(Arc::new(observer));
    }

    #[cold]
    fn report_rejection(&self, rejection: &OomRejection) {
        let observers = lock(&self.shared.rejection_observers).clone();
        for observer in observers {
            observer(rejection);
        }
    }

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
    fn request_memory<'a>(
        &'a self,
        mut device: MutexGuard<'a, Device<M>>,
        requested: u64,
        stream: StreamId,
    ) -> Result<MutexGuard<'a, Device<M>>, AllocatorError> {
        let context = device.history.capture_allocation();
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
