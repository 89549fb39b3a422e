//! memtrack's allocator library, called as a C program would call it.
#![allow(unsafe_code)]

use crate::mock_cuda;
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::ptr;

/// The library's file name.
pub const LIBRARY: &str = "libmemtrack_allocator.so";

/// PyTorch's `alloc_fn`.
pub type Malloc = unsafe extern "C" fn(isize, c_int, *mut c_void) -> *mut c_void;
/// PyTorch's `free_fn`.
pub type Free = unsafe extern "C" fn(*mut c_void, isize, c_int, *mut c_void);
/// PyTorch's `base_alloc_fn`.
pub type BaseAlloc = unsafe extern "C" fn(*mut c_void, *mut usize) -> *mut c_void;
/// A device and the two halves of a pool's id.
pub type Pool = (c_int, u64, u64);

/// The opened library.
#[derive(Debug)]
pub struct Client(Library);

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// Opens the library from the test's folder.
    ///
    /// # Panics
    /// When the library cannot be opened.
    pub fn new() -> Self {
        // SAFETY: the library does nothing before a function is called.
        Self(unsafe { Library::new(mock_cuda::beside_the_test(LIBRARY)) }.unwrap())
    }

    /// Looks up a function of the library.
    ///
    /// # Safety
    /// `F` must be the type of the function of that name.
    ///
    /// # Panics
    /// When the library lacks the function.
    pub unsafe fn get<F: Copy>(&self, name: &str) -> F {
        // SAFETY: upheld by the caller.
        *unsafe { self.0.get::<F>(name.as_bytes()) }.unwrap()
    }

    /// Allocates memory on device 0 for stream 0.
    ///
    /// # Panics
    /// When the library lacks the function.
    pub fn malloc(&self, size: usize) -> *mut c_void {
        // SAFETY: the function has the type of PyTorch's `alloc_fn`.
        unsafe { self.get::<Malloc>("memtrack_malloc")(size as isize, 0, ptr::null_mut()) }
    }

    /// Frees memory.
    ///
    /// # Panics
    /// When the library lacks the function.
    // The library only looks up the address and never dereferences it.
    #[allow(clippy::not_unsafe_ptr_arg_deref)]
    pub fn free(&self, memory: *mut c_void) {
        // SAFETY: the function has the type of PyTorch's `free_fn`.
        unsafe { self.get::<Free>("memtrack_free")(memory, 0, 0, ptr::null_mut()) };
    }

    /// Calls a function without arguments.
    ///
    /// # Panics
    /// When the library lacks the function.
    pub fn call(&self, name: &str) {
        // SAFETY: only functions without arguments are called this way.
        unsafe { self.get::<unsafe extern "C" fn()>(name)() };
    }

    /// Calls a function that takes a device and a pool's id. The id is a C struct that is passed by value like two integers.
    ///
    /// # Panics
    /// When the library lacks the function.
    pub fn pool(&self, name: &str, (device, first, second): Pool) {
        type OfPool = unsafe extern "C" fn(c_int, u64, u64, *const c_void);
        // SAFETY: only `memtrack_begin_allocate_to_pool` takes the last argument, and it never dereferences it.
        unsafe { self.get::<OfPool>(name)(device, first, second, ptr::null()) };
    }

    /// Returns `memory_stats` of device 0.
    ///
    /// # Panics
    /// When the library lacks the function.
    pub fn stats(&self) -> serde_json::Value {
        type Stats = unsafe extern "C" fn(c_int, *mut u8, usize) -> usize;
        // SAFETY: the function has this type; the buffers have the sizes that are passed.
        unsafe {
            let stats = self.get::<Stats>("memtrack_memory_stats");
            let mut text = vec![0; stats(0, ptr::null_mut(), 0)];
            assert_eq!(stats(0, text.as_mut_ptr(), text.len()), text.len());
            let mut short = [1u8; 4];
            stats(0, short.as_mut_ptr(), 4);
            assert_eq!(short, [text[0], text[1], text[2], 0], "a short buffer gets the beginning");
            serde_json::from_slice(&text[..text.len() - 1]).unwrap()
        }
    }

    /// Returns one of the statistics.
    ///
    /// # Panics
    /// When the library lacks the function.
    pub fn number(&self, key: &str) -> u64 {
        self.stats()[key].as_u64().unwrap()
    }
}
