//! An allocator from a shared library with PyTorch's C interface, as `torch.cuda.memory.CUDAPluggableAllocator` loads
//! it. What the library is given back it must know by address, size, device and stream, so these are kept here.
#![allow(unsafe_code)]

use super::{Backend, OomObserver, checked_fraction};
use crate::allocator::context;
use crate::allocator::{AllocatorError, DeviceStats, HistoryOptions, MemoryInfo, OutOfMemory};
use crate::event::{Action, DeviceId, StreamId};
use crate::snapshot::Snapshot;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use libloading::Library;
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

/// A loaded allocator. What is live when it is dropped is given back; the library stays open, since others may have
/// what it handed out.
pub struct Pluggable {
    library: ManuallyDrop<Library>,
    alloc: Alloc,
    free: Free,
    reset: Option<Reset>,
    memory_fraction: Option<MemoryFraction>,
    base_alloc: Option<BaseAlloc>,
    record_stream: Option<RecordStream>,
    live: Mutex<HashMap<u64, Live, FixedState>>,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    size: u64,
    device: DeviceId,
    stream: StreamId,
}

/// Why a library could not be loaded.
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
    /// Loads a library and looks for its two functions:
    /// `void* alloc(ssize_t size, int device, cudaStream_t stream)` and
    /// `void free(void* ptr, ssize_t size, int device, cudaStream_t stream)`.
    ///
    /// # Safety
    /// The library's start-up code runs. The functions must be of these types, may be called by any thread, and must
    /// hand out memory that nobody else has.
    ///
    /// # Errors
    /// When the library cannot be loaded or lacks a function.
    pub unsafe fn load(
        path: impl AsRef<Path>,
        alloc_fn: &str,
        free_fn: &str,
    ) -> Result<Self, PluggableError> {
        let path = path.as_ref();
        let cannot = |error: libloading::Error| {
            let why = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
            PluggableError(format!("{}: {why}", path.display()))
        };
        // SAFETY: as the caller promises.
        unsafe {
            let library = Library::new(path).map_err(cannot)?;
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
    /// The function must be of that type.
    ///
    /// # Errors
    /// When the library lacks it; so do those below.
    pub unsafe fn set_init_fn(&mut self, name: &str, devices: u16) -> Result<(), PluggableError> {
        // SAFETY: as the caller promises.
        unsafe { find::<Init>(&self.library, name).map(|init| init(devices.into())) }
    }

    /// [`Backend::empty_cache`] calls the library's `void reset()`.
    ///
    /// # Safety
    /// The function must be of that type.
    ///
    /// # Errors
    /// When the library lacks it.
    pub unsafe fn set_reset_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: as the caller promises.
        self.reset = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// [`Backend::set_per_process_memory_fraction`] calls the library's `void fraction(double fraction, int device)`.
    ///
    /// # Safety
    /// The function must be of that type.
    ///
    /// # Errors
    /// When the library lacks it.
    pub unsafe fn set_memory_fraction_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: as the caller promises.
        self.memory_fraction = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// [`Self::base_allocation`] calls the library's `void* base(void* ptr, size_t* size)`.
    ///
    /// # Safety
    /// The function must be of that type.
    ///
    /// # Errors
    /// When the library lacks it.
    pub unsafe fn set_base_alloc_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: as the caller promises.
        self.base_alloc = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// [`Backend::record_stream`] calls the library's `void record_stream(void* ptr, cudaStream_t stream)`.
    ///
    /// # Safety
    /// The function must be of that type.
    ///
    /// # Errors
    /// When the library lacks it.
    pub unsafe fn set_record_stream_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: as the caller promises.
        self.record_stream = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// Where the memory begins that `address` lies in, and its bytes, which only the library can know.
    pub fn base_allocation(&self, address: u64) -> (u64, Option<u64>) {
        let Some(base_alloc) = self.base_alloc else { return (address, None) };
        let mut size = 0;
        // SAFETY: of that type, by the promise at `set_base_alloc_fn`.
        let base = unsafe { base_alloc(address as *mut c_void, &raw mut size) };
        (base as u64, Some(size as u64))
    }

    fn live(&self) -> MutexGuard<'_, HashMap<u64, Live, FixedState>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, address: u64, Live { size, device, stream }: Live) {
        context::report(Action::FreeRequested, device, stream, address, size);
        context::report(Action::FreeCompleted, device, stream, address, size);
        // SAFETY: of that type, by the promise at `load`, and it handed this memory out with these numbers.
        unsafe {
            (self.free)(address as *mut c_void, size as isize, device.0.into(), stream.0 as *mut c_void)
        }
    }
}

/// A function of a library.
///
/// # Safety
/// It must be of type `F`, a function pointer.
unsafe fn find<F: Copy>(library: &Library, name: &str) -> Result<F, PluggableError> {
    // SAFETY: as the caller promises.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| PluggableError(format!("the library has no function {name}")))
}

fn refuse<T>(what: &str) -> Result<T, AllocatorError> {
    Err(AllocatorError::Unsupported(format!(
        "CUDAPluggableAllocator does not yet support {what}. If you need it, please file an issue describing your use \
         case."
    )))
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
        let Ok(bytes) = isize::try_from(size) else { return Err(AllocatorError::TooLarge) };
        if size == 0 {
            return Ok(0);
        }
        // SAFETY: of that type, by the promise at `load`.
        let address = unsafe { (self.alloc)(bytes, device.0.into(), stream.0 as *mut c_void) } as u64;
        if address == 0 {
            let error = out_of_memory(size, device, stream);
            context::report_oom(&error);
            return Err(AllocatorError::OutOfMemory(Box::new(error)));
        }
        self.live().insert(address, Live { size, device, stream });
        context::report(Action::Alloc, device, stream, address, size);
        Ok(address)
    }

    fn caching_allocator_delete(&self, address: u64) -> Result<(), AllocatorError> {
        if address == 0 {
            return Ok(());
        }
        let live = self.live().remove(&address);
        let unknown = || AllocatorError::Unsupported("Trying to free a pointer not allocated here".into());
        self.give_back(address, live.ok_or_else(unknown)?);
        Ok(())
    }

    fn record_stream(&self, address: u64, stream: StreamId) -> Result<(), AllocatorError> {
        if let Some(record_stream) = self.record_stream {
            // SAFETY: of that type, by the promise at `set_record_stream_fn`.
            unsafe { record_stream(address as *mut c_void, stream.0 as *mut c_void) };
        }
        Ok(())
    }

    fn empty_cache(&self) -> Result<(), AllocatorError> {
        if let Some(reset) = self.reset {
            // SAFETY: of that type, by the promise at `set_reset_fn`.
            unsafe { reset() };
        }
        Ok(())
    }

    fn set_per_process_memory_fraction(&self, fraction: f64, device: DeviceId) -> Result<(), AllocatorError> {
        let fraction = checked_fraction(fraction)?;
        if let Some(memory_fraction) = self.memory_fraction {
            // SAFETY: of that type, by the promise at `set_memory_fraction_fn`.
            unsafe { memory_fraction(fraction, device.0.into()) };
        }
        Ok(())
    }

    fn get_per_process_memory_fraction(&self, _device: DeviceId) -> Result<f64, AllocatorError> {
        refuse("getMemoryFraction")
    }

    fn statistics(&self, _device: DeviceId) -> Result<DeviceStats, AllocatorError> {
        refuse("getDeviceStats")
    }

    fn reset_peak_memory_stats(&self, _device: DeviceId) -> Result<(), AllocatorError> {
        refuse("resetPeakStats")
    }

    fn reset_accumulated_memory_stats(&self, _device: DeviceId) -> Result<(), AllocatorError> {
        refuse("resetAccumulatedStats")
    }

    fn mem_get_info(&self, device: DeviceId) -> Result<MemoryInfo, AllocatorError> {
        let info = crate::cuda::mem_get_info(device.0.into())?;
        Ok(MemoryInfo { free: info.free_bytes, total: info.total_bytes })
    }

    fn record_memory_history(&self, _options: Option<&HistoryOptions>) -> Result<(), AllocatorError> {
        refuse("recordHistory")
    }

    fn snapshot(&self) -> Result<Snapshot, AllocatorError> {
        refuse("snapshot")
    }

    fn attach_out_of_memory_observer(&self, _observer: OomObserver) -> Result<(), AllocatorError> {
        refuse("attachOutOfMemoryObserver")
    }
}

/// The library said null. PyTorch would go on with it.
fn out_of_memory(size: u64, device: DeviceId, stream: StreamId) -> OutOfMemory {
    let info = crate::cuda::mem_get_info(device.0.into()).ok();
    OutOfMemory {
        device,
        stream,
        segment_size: size,
        requested: size,
        device_free: info.map_or(0, |info| info.free_bytes),
        device_total: info.map_or(0, |info| info.total_bytes),
        limit: None,
        message: format!(
            "CUDA out of memory. Tried to allocate {} on GPU {}; the pluggable allocator returned null.",
            crate::allocator::format_size(size),
            device.0
        ),
    }
}

impl Drop for Pluggable {
    fn drop(&mut self) {
        let live = std::mem::take(&mut *self.live());
        live.into_iter().for_each(|(address, live)| self.give_back(address, live));
    }
}
