//! memtrack's caching allocator behind the C interface of PyTorch's pluggable allocators.
//!
//! ```python
//! import ctypes, torch
//!
//! path = "target/release/libmemtrack_allocator.so"      # cargo build --release -p memtrack-pluggable
//! allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "memtrack_malloc", "memtrack_free")
//!
//! # Further functions that PyTorch accepts. Each of them is optional.
//! library, hooks = ctypes.CDLL(path), allocator._allocator
//! address = lambda name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value
//! hooks.set_init_fn(address("memtrack_init"))
//! hooks.set_reset_fn(address("memtrack_reset"))
//! hooks.set_memory_fraction_fn(address("memtrack_memory_fraction"))
//! hooks.set_base_alloc_fn(address("memtrack_base_alloc"))
//! hooks.set_record_stream_fn(address("memtrack_record_stream"))
//! hooks.set_begin_allocate_to_pool(address("memtrack_begin_allocate_to_pool"))
//! hooks.set_end_allocate_to_pool_fn(address("memtrack_end_allocate_to_pool"))
//! hooks.set_release_pool(address("memtrack_release_pool"))
//!
//! torch.cuda.memory.change_current_allocator(allocator)  # before any CUDA memory is used
//! ```
//!
//! PyTorch provides neither statistics nor snapshots for such an allocator, so `memtrack_memory_stats`,
//! `memtrack_record_memory_history` and `memtrack_dump_snapshot` provide them (`extensions`).
//!
//! Options come from `PYTORCH_CUDA_ALLOC_CONF`, as in PyTorch. The interface cannot return errors. Where PyTorch's own
//! allocator would raise one, the message is printed on standard error and the result is null.
//!
//! **Which requests go to the pool after `memtrack_begin_allocate_to_pool`?** All requests made by the calling thread,
//! because PyTorch selects streams with a C++ function object that only C++ can call. The rules of PyTorch's graph
//! captures apply to every such pool.
#![allow(unsafe_code)]

mod extensions;

use memtrack_core::allocator::{Backend, CachingAllocator, CudaMemory, Settings};
use memtrack_core::event::{DeviceId, StreamId};
use std::ffi::{c_int, c_void};
use std::fmt::Display;
use std::ptr;
use std::sync::OnceLock;
use std::thread;

type Allocator = CachingAllocator<CudaMemory>;

/// PyTorch's `MempoolId_t`: a pair of integers that is passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MempoolId {
    /// Nonzero for the pools of CUDA graphs.
    pub first: u64,
    /// Nonzero for pools that the program creates.
    pub second: u64,
}

fn report_error(what: &str, error: &dyn Display) {
    memtrack_core::__print_as("memtrack allocator", format_args!("{what}: {error}"));
}

/// Returns the allocator for all devices, which is created by the first call, or `None` if it could not be created.
/// The failure is reported once.
fn allocator() -> Option<&'static Allocator> {
    static ALLOCATOR: OnceLock<Option<Allocator>> = OnceLock::new();
    let create = || {
        let settings = Settings::from_environment()
            .map_err(|error| report_error("PYTORCH_CUDA_ALLOC_CONF", &error))
            .ok()?;
        let memories = CudaMemory::all().map_err(|error| report_error("cannot start", &error)).ok()?;
        CachingAllocator::new(memories, &settings).map_err(|error| report_error("cannot start", &error)).ok()
    };
    ALLOCATOR.get_or_init(create).as_ref()
}

/// Converts a device number. PyTorch passes no negative numbers, but a negative one would map to a device that does
/// not exist.
fn to_device_id(ordinal: c_int) -> DeviceId {
    DeviceId(u16::try_from(ordinal).unwrap_or(u16::MAX))
}

fn to_stream_id(handle: *mut c_void) -> StreamId {
    StreamId(handle as u64)
}

/// Calls `action` with the allocator and reports any error on standard error.
fn with_allocator<T, E: Display>(what: &str, action: impl FnOnce(&Allocator) -> Result<T, E>) -> Option<T> {
    action(allocator()?).map_err(|error| report_error(what, &error)).ok()
}

/// PyTorch's `alloc_fn`: allocates memory for use on a stream. Returns null for 0 bytes or if memory ran out.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_malloc(size: isize, ordinal: c_int, queue: *mut c_void) -> *mut c_void {
    // As in PyTorch, a negative size becomes a huge unsigned one and exceeds the memory of any device.
    let allocate = |allocator: &Allocator| {
        allocator.caching_allocator_alloc(size as u64, to_device_id(ordinal), to_stream_id(queue))
    };
    with_allocator("malloc", allocate).map_or(ptr::null_mut(), |address| address as *mut c_void)
}

/// PyTorch's `free_fn`. Only the address is used, because the allocator knows the block's size, device and stream.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_free(memory: *mut c_void, _size: isize, _device: c_int, _stream: *mut c_void) {
    let _ = with_allocator("free", |allocator| allocator.caching_allocator_delete(memory as u64));
}

/// PyTorch's `init_fn`: creates the allocator on all devices.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_init(device_count: c_int) {
    let found = allocator().map_or(0, CachingAllocator::device_count);
    if c_int::try_from(found).is_ok_and(|found| found < device_count) {
        report_error("init", &format!("PyTorch sees {device_count} devices, the CUDA driver has {found}"));
    }
}

/// PyTorch's `reset_fn`: `torch.cuda.empty_cache`.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_reset() {
    let _ = with_allocator("empty_cache", CachingAllocator::empty_cache);
}

/// PyTorch's `memory_fraction_fn`: `torch.cuda.set_per_process_memory_fraction`.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_memory_fraction(fraction: f64, ordinal: c_int) {
    let _ = with_allocator("set_per_process_memory_fraction", |allocator| {
        allocator.set_per_process_memory_fraction(fraction, to_device_id(ordinal))
    });
}

/// PyTorch's `base_alloc_fn`: returns the address of the segment that contains an address and writes the segment's
/// size to `size`. Returns null if the address is not from this allocator.
///
/// # Safety
/// `size` must be null or point to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_base_alloc(memory: *mut c_void, size: *mut usize) -> *mut c_void {
    let found = with_allocator("base_alloc", |allocator| allocator.base_allocation(memory as u64));
    let Some((base, bytes)) = found else { return ptr::null_mut() };
    if !size.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { size.write(bytes as usize) };
    }
    base as *mut c_void
}

/// PyTorch's `record_stream_fn`.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_record_stream(memory: *mut c_void, queue: *mut c_void) {
    if let Some(allocator) = allocator() {
        allocator.record_stream(memory as u64, to_stream_id(queue));
    }
}

/// PyTorch's `begin_allocate_to_pool` function: from now on, the calling thread's requests go to a private pool, under
/// the rules for graph captures.
///
/// PyTorch also passes a C++ function object that selects streams. Its layout is private to the C++ library, so it is
/// ignored, and all of the thread's requests go to the pool.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_begin_allocate_to_pool(ordinal: c_int, pool: MempoolId, _filter: *const c_void) {
    let here = thread::current().id();
    let of_this_thread = move |_| thread::current().id() == here;
    let _ = with_allocator("begin_allocate_to_pool", |allocator| {
        allocator.begin_allocate_to_pool(to_device_id(ordinal), (pool.first, pool.second), of_this_thread)
    });
}

/// PyTorch's `end_allocate_to_pool_fn`.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_end_allocate_to_pool(ordinal: c_int, pool: MempoolId) {
    let pool = (pool.first, pool.second);
    let _ = with_allocator("end_allocate_to_pool", |allocator| {
        allocator.end_allocate_to_pool(to_device_id(ordinal), pool)
    });
}

/// PyTorch's `release_pool` function.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_release_pool(ordinal: c_int, pool: MempoolId) {
    let pool = (pool.first, pool.second);
    let _ = with_allocator("release_pool", |allocator| allocator.release_pool(to_device_id(ordinal), pool));
}
