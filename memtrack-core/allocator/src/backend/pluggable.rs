//! An allocator loaded from a shared library with PyTorch's C interface, like
//! `torch.cuda.memory.CUDAPluggableAllocator`. The library's free function needs the memory's size, device and stream,
//! so they are stored here. Calls that the library supports are forwarded to it; all others fail, as in PyTorch.
#![allow(unsafe_code)]

use super::{Backend, OomObserver, check_fraction, unsupported_error};
use crate::recorder;
use crate::{AllocatorError, DeviceStats, HistoryOptions, MemoryInfo, OutOfMemoryError, PoolAllocator};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use libloading::Library;
use memtrack_model::OutOfMemory;
use memtrack_model::event::{Action, DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Alloc = unsafe extern "C" fn(isize, c_int, *mut c_void) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, isize, c_int, *mut c_void);
type Init = unsafe extern "C" fn(c_int);
type Reset = unsafe extern "C" fn();
type MemoryFraction = unsafe extern "C" fn(f64, c_int);
type BaseAlloc = unsafe extern "C" fn(*mut c_void, *mut usize) -> *mut c_void;
type RecordStream = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// A loaded allocator. Dropping it frees live memory, but the library stays loaded, because other code may still hold
/// memory from it.
pub struct Pluggable {
    library: ManuallyDrop<Library>,
    alloc: Alloc,
    free: Free,
    reset: Option<Reset>,
    memory_fraction: Option<MemoryFraction>,
    base_alloc: Option<BaseAlloc>,
    record_stream: Option<RecordStream>,
    live: Mutex<HashMap<u64, LiveMemory, FixedState>>,
}

#[derive(Clone, Copy, Debug)]
struct LiveMemory {
    size: u64,
    device: DeviceId,
    stream: StreamId,
    /// Whether the memory is a block that a program requested. If not, it is a segment of a `MemPool`, and the caching
    /// allocator reports its events.
    is_block: bool,
}

/// The reason a library could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluggableError(String);

impl fmt::Display for PluggableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PluggableError {}

impl fmt::Debug for Pluggable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pluggable").field("library", &self.library).finish_non_exhaustive()
    }
}

impl Pluggable {
    /// Loads a library and looks up two functions in it: `void* alloc(ssize_t size, int device, cudaStream_t stream)`
    /// and `void free(void* ptr, ssize_t size, int device, cudaStream_t stream)`.
    ///
    /// # Safety
    /// The library's initialisers run. The two functions must have these types, must be callable from any thread, and
    /// must return memory that no other code uses.
    ///
    /// # Errors
    /// Fails when the library cannot be loaded or lacks one of the functions.
    pub unsafe fn load(
        path: impl AsRef<Path>,
        alloc_fn: &str,
        free_fn: &str,
    ) -> Result<Self, PluggableError> {
        let path = path.as_ref();
        let load_error = |error: libloading::Error| {
            let why = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
            PluggableError(format!("{}: {why}", path.display()))
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            let library = Library::new(path).map_err(load_error)?;
            let (alloc, free) = (find(&library, alloc_fn)?, find(&library, free_fn)?);
            Ok(Self {
                library: ManuallyDrop::new(library),
                alloc,
                free,
                reset: None,
                memory_fraction: None,
                base_alloc: None,
                record_stream: None,
                live: Mutex::default(),
            })
        }
    }

    /// Calls the library's `void init(int device_count)`.
    ///
    /// # Safety
    /// The function must have this type.
    ///
    /// # Errors
    /// Fails when the library lacks the function.
    pub unsafe fn set_init_fn(&mut self, name: &str, devices: u16) -> Result<(), PluggableError> {
        // SAFETY: guaranteed by the caller.
        unsafe { find::<Init>(&self.library, name).map(|init| init(devices.into())) }
    }

    /// Makes [`Backend::empty_cache`] call the library's `void reset()`.
    ///
    /// # Safety
    /// The function must have this type.
    ///
    /// # Errors
    /// Fails when the library lacks the function.
    pub unsafe fn set_reset_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: guaranteed by the caller.
        self.reset = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// Makes [`Backend::set_per_process_memory_fraction`] call the library's
    /// `void fraction(double fraction, int device)`.
    ///
    /// # Safety
    /// The function must have this type.
    ///
    /// # Errors
    /// Fails when the library lacks the function.
    pub unsafe fn set_memory_fraction_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: guaranteed by the caller.
        self.memory_fraction = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// Makes [`Self::base_allocation`] call the library's `void* base(void* ptr, size_t* size)`.
    ///
    /// # Safety
    /// The function must have this type.
    ///
    /// # Errors
    /// Fails when the library lacks the function.
    pub unsafe fn set_base_alloc_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: guaranteed by the caller.
        self.base_alloc = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// Makes [`Backend::record_stream`] call the library's `void record_stream(void* ptr, cudaStream_t stream)`.
    ///
    /// # Safety
    /// The function must have this type.
    ///
    /// # Errors
    /// Fails when the library lacks the function.
    pub unsafe fn set_record_stream_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: guaranteed by the caller.
        self.record_stream = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// Returns the start and the size in bytes of the allocation that contains `address`, as reported by the library.
    /// If the library has no function for this, returns `address` and no size.
    pub fn base_allocation(&self, address: u64) -> (u64, Option<u64>) {
        let Some(base_alloc) = self.base_alloc else { return (address, None) };
        let mut size = 0;
        // SAFETY: the caller of `set_base_alloc_fn` guaranteed the type.
        let base = unsafe { base_alloc(address as *mut c_void, &raw mut size) };
        (base as u64, Some(size as u64))
    }

    fn lock_live(&self) -> MutexGuard<'_, HashMap<u64, LiveMemory, FixedState>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates memory with the library's function; returns `None` if the function returns null.
    fn allocate_from_library(
        &self,
        size: u64,
        device: DeviceId,
        stream: StreamId,
        is_block: bool,
    ) -> Option<u64> {
        let bytes = isize::try_from(size).ok()?;
        // SAFETY: the caller of `load` guaranteed the type.
        let address = unsafe { (self.alloc)(bytes, device.0.into(), stream.0 as *mut c_void) } as u64;
        if address == 0 {
            return None;
        }
        self.lock_live().insert(address, LiveMemory { size, device, stream, is_block });
        if is_block {
            recorder::report(Action::Alloc, device, stream, address, size);
        }
        Some(address)
    }

    /// Frees memory whose entry was already removed from the live allocations.
    fn free_live(&self, address: u64, LiveMemory { size, device, stream, is_block }: LiveMemory) {
        if is_block {
            // Report the free before another thread can allocate the memory.
            recorder::report(Action::FreeRequested, device, stream, address, size);
            recorder::report(Action::FreeCompleted, device, stream, address, size);
        }
        // SAFETY: the caller of `load` guaranteed the type, and the library allocated this memory with these arguments.
        unsafe {
            (self.free)(address as *mut c_void, size as isize, device.0.into(), stream.0 as *mut c_void)
        }
    }
}

/// Looks up a function in a library.
///
/// # Safety
/// The function must have the type `F`, which must be a function pointer.
unsafe fn find<F: Copy>(library: &Library, name: &str) -> Result<F, PluggableError> {
    // SAFETY: guaranteed by the caller.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| PluggableError(format!("the library has no function {name}")))
}

impl Drop for Pluggable {
    fn drop(&mut self) {
        let live = std::mem::take(&mut *self.lock_live());
        live.into_iter().for_each(|(address, live)| self.free_live(address, live));
    }
}

fn unsupported_call<T>(what: &str) -> Result<T, AllocatorError> {
    unsupported_error("CUDAPluggableAllocator", what)
}

impl Backend for Pluggable {
    fn get_allocator_backend(&self) -> &'static str {
        "pluggable"
    }

    fn caching_allocator_alloc(
        &self,
        size: u64,
        device: DeviceId,
        stream: StreamId,
    ) -> Result<u64, AllocatorError> {
        if isize::try_from(size).is_err() {
            return Err(AllocatorError::TooLarge);
        }
        if size == 0 {
            return Ok(0);
        }
        self.allocate_from_library(size, device, stream, true).ok_or_else(|| {
            let error = out_of_memory_error(size, device, stream);
            recorder::report_oom(&error);
            AllocatorError::OutOfMemory(Box::new(error))
        })
    }

    fn caching_allocator_delete(&self, address: u64) -> Result<(), AllocatorError> {
        if address == 0 {
            return Ok(());
        }
        let mut all = self.lock_live();
        let live = all.get(&address).filter(|live| live.is_block).copied();
        let unknown = || AllocatorError::Unsupported("Trying to free a pointer not allocated here".into());
        let live = live.ok_or_else(unknown)?;
        all.remove(&address);
        drop(all);
        self.free_live(address, live);
        Ok(())
    }

    fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), AllocatorError> {
        if let Some(record_stream) = self.record_stream {
            // SAFETY: the caller of `set_record_stream_fn` guaranteed the type.
            unsafe { record_stream(address as *mut c_void, stream.0 as *mut c_void) };
        }
        Ok(())
    }

    fn empty_cache(&self) -> Result<(), AllocatorError> {
        if let Some(reset) = self.reset {
            // SAFETY: the caller of `set_reset_fn` guaranteed the type.
            unsafe { reset() };
        }
        Ok(())
    }

    fn set_per_process_memory_fraction(&self, fraction: f64, device: DeviceId) -> Result<(), AllocatorError> {
        let fraction = check_fraction(fraction)?;
        if let Some(memory_fraction) = self.memory_fraction {
            // SAFETY: the caller of `set_memory_fraction_fn` guaranteed the type.
            unsafe { memory_fraction(fraction, device.0.into()) };
        }
        Ok(())
    }

    fn get_per_process_memory_fraction(&self, _device: DeviceId) -> Result<f64, AllocatorError> {
        unsupported_call("getMemoryFraction")
    }

    fn statistics(&self, _device: DeviceId) -> Result<DeviceStats, AllocatorError> {
        unsupported_call("getDeviceStats")
    }

    fn reset_peak_memory_stats(&self, _device: DeviceId) -> Result<(), AllocatorError> {
        unsupported_call("resetPeakStats")
    }

    fn reset_accumulated_memory_stats(&self, _device: DeviceId) -> Result<(), AllocatorError> {
        unsupported_call("resetAccumulatedStats")
    }

    fn mem_get_info(&self, device: DeviceId) -> Result<MemoryInfo, AllocatorError> {
        Ok(memtrack_cuda::mem_get_info(device.0.into())?)
    }

    fn record_memory_history(&self, _options: Option<&HistoryOptions>) -> Result<(), AllocatorError> {
        unsupported_call("recordHistory")
    }

    fn snapshot(&self) -> Result<PytorchSnapshot, AllocatorError> {
        unsupported_call("snapshot")
    }

    fn attach_out_of_memory_observer(&self, _observer: OomObserver) -> Result<(), AllocatorError> {
        unsupported_call("attachOutOfMemoryObserver")
    }
}

/// Allocates the segments of a `MemPool`. The caching allocator reports their events.
impl PoolAllocator for Pluggable {
    fn allocate(&self, size: u64, device: DeviceId, stream: StreamId) -> Option<u64> {
        self.allocate_from_library(size, device, stream, false)
    }

    fn release(&self, address: u64, _size: u64, _device: DeviceId, _stream: StreamId) {
        let live = self.lock_live().remove(&address);
        if let Some(live) = live {
            self.free_live(address, live);
        }
    }
}

/// Returns the error for a null pointer from the library. PyTorch would carry on with the null pointer.
fn out_of_memory_error(size: u64, device: DeviceId, stream: StreamId) -> OutOfMemoryError {
    let info = memtrack_cuda::mem_get_info(device.0.into()).unwrap_or_default();
    OutOfMemoryError {
        facts: OutOfMemory::new(device, stream, size, info.free_bytes, info.total_bytes),
        segment_bytes: size,
        limit_bytes: None,
        message: format!(
            "CUDA out of memory. Tried to allocate {} on GPU {}; the pluggable allocator returned null.",
            crate::format_size(size),
            device.0
        ),
    }
}
