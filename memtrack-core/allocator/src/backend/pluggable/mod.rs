//! An allocator from a shared library with PyTorch's C interface, as
//! `torch.cuda.memory.CUDAPluggableAllocator` loads it. The library needs the address, size, device and
//! stream of memory that is freed, so these are kept here.
#![allow(unsafe_code)]

mod answers;

#[cfg(doc)]
use super::Backend;
use crate::state::caller;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use libloading::Library;
use memtrack_model::event::{Action, DeviceId, StreamId};
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

/// A loaded allocator. Live memory is freed when it is dropped; the library stays open, because other code
/// may have memory from it.
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
    /// Whether it is a block, and not a segment, which the caching allocator reports.
    is_block: bool,
}

/// The reason why a library could not be loaded.
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
    /// Loads a library and looks up its two functions: `void* alloc(ssize_t size, int device, cudaStream_t
    /// stream)` and `void free(void* ptr, ssize_t size, int device, cudaStream_t stream)`.
    ///
    /// # Safety
    /// The library's start-up code runs. The functions must be of these types, may be called by any thread,
    /// and must return memory that no other code uses.
    ///
    /// # Errors
    /// Fails when the library cannot be loaded or lacks a function.
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
    /// Fails when the library lacks the function; so do the functions below.
    pub unsafe fn set_init_fn(&mut self, name: &str, devices: u16) -> Result<(), PluggableError> {
        // SAFETY: as the caller promises.
        unsafe { find::<Init>(&self.library, name).map(|init| init(devices.into())) }
    }

    /// Makes [`Backend::empty_cache`] call the library's `void reset()`.
    ///
    /// # Safety
    /// The function must be of that type.
    ///
    /// # Errors
    /// Fails when the library lacks it.
    pub unsafe fn set_reset_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: as the caller promises.
        self.reset = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// Makes [`Backend::set_per_process_memory_fraction`] call the library's `void fraction(double fraction,
    /// int device)`.
    ///
    /// # Safety
    /// The function must be of that type.
    ///
    /// # Errors
    /// Fails when the library lacks it.
    pub unsafe fn set_memory_fraction_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: as the caller promises.
        self.memory_fraction = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// Makes [`Self::base_allocation`] call the library's `void* base(void* ptr, size_t* size)`.
    ///
    /// # Safety
    /// The function must be of that type.
    ///
    /// # Errors
    /// Fails when the library lacks it.
    pub unsafe fn set_base_alloc_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: as the caller promises.
        self.base_alloc = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// Makes [`Backend::record_stream`] call the library's `void record_stream(void* ptr, cudaStream_t
    /// stream)`.
    ///
    /// # Safety
    /// The function must be of that type.
    ///
    /// # Errors
    /// Fails when the library lacks it.
    pub unsafe fn set_record_stream_fn(&mut self, name: &str) -> Result<(), PluggableError> {
        // SAFETY: as the caller promises.
        self.record_stream = Some(unsafe { find(&self.library, name)? });
        Ok(())
    }

    /// Returns the start and size in bytes of the memory that contains `address`, which only the library
    /// knows.
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

    /// Requests memory from the library; `None` if it returns null.
    fn take(&self, size: u64, device: DeviceId, stream: StreamId, is_block: bool) -> Option<u64> {
        let bytes = isize::try_from(size).ok()?;
        // SAFETY: of that type, by the promise at `load`.
        let address = unsafe { (self.alloc)(bytes, device.0.into(), stream.0 as *mut c_void) } as u64;
        if address == 0 {
            return None;
        }
        self.live().insert(address, Live { size, device, stream, is_block });
        if is_block {
            caller::report(Action::Alloc, device, stream, address, size);
        }
        Some(address)
    }

    /// Frees memory that was removed from the live ones.
    fn free_live(&self, address: u64, Live { size, device, stream, is_block }: Live) {
        if is_block {
            // Reported before another thread can get the memory.
            caller::report(Action::FreeRequested, device, stream, address, size);
            caller::report(Action::FreeCompleted, device, stream, address, size);
        }
        // SAFETY: of that type, by the promise at `load`, and it allocated this memory with these numbers.
        unsafe {
            (self.free)(address as *mut c_void, size as isize, device.0.into(), stream.0 as *mut c_void)
        }
    }
}

/// Looks up a function of a library.
///
/// # Safety
/// It must be of type `F`, a function pointer.
unsafe fn find<F: Copy>(library: &Library, name: &str) -> Result<F, PluggableError> {
    // SAFETY: as the caller promises.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| PluggableError(format!("the library has no function {name}")))
}

impl Drop for Pluggable {
    fn drop(&mut self) {
        let live = std::mem::take(&mut *self.live());
        live.into_iter().for_each(|(address, live)| self.free_live(address, live));
    }
}
