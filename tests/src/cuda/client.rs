//! A small client of the CUDA driver, like cudarc: opens the library on first use and looks up every function by name. It
//! does not depend on memtrack, so programs that do not link memtrack can include it too.
#![allow(dead_code, missing_docs, unsafe_code)]

use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

/// The result of a driver call, with the driver's error code.
pub type Answer<T = ()> = Result<T, i32>;

/// `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: i32 = 2;

fn library() -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    *LIBRARY.get_or_init(|| {
        // SAFETY: the name is a C string, and the library may be opened at any time.
        let handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "there is no driver");
        handle as usize
    }) as *mut c_void
}

/// Looks up a function of the driver by `dlsym`.
pub fn symbol(name: &str) -> *mut c_void {
    let name = CString::new(name).expect("a name");
    // SAFETY: the handle is never closed.
    unsafe { libc::dlsym(library(), name.as_ptr()) }
}

/// Looks up a function of the driver by `cuGetProcAddress_v2`.
pub fn procedure(name: &CStr, version: i32, flags: u64) -> *mut c_void {
    let mut found = null_mut();
    let mut status = 0;
    call!(cuGetProcAddress_v2(
        name.as_ptr() => *const std::ffi::c_char,
        &mut found => *mut *mut c_void,
        version => i32,
        flags => u64,
        &mut status => *mut i32
    ))
    .expect("the name is known");
    found
}

/// Looks up a function of the driver by `cuGetProcAddress`, as programs built for CUDA 11 do.
pub fn procedure_v1(name: &CStr, version: i32, flags: u64) -> *mut c_void {
    let mut found = null_mut();
    call!(cuGetProcAddress(
        name.as_ptr() => *const std::ffi::c_char,
        &mut found => *mut *mut c_void,
        version => i32,
        flags => u64
    ))
    .expect("the name is known");
    found
}

/// Calls the function at an address with arguments of the driver's types.
macro_rules! call_at {
    ($address:expr, $($argument:expr => $kind:ty),*) => {{
        // SAFETY: the types match the driver's declaration.
        let code = unsafe {
            let function: extern "C" fn($($kind),*) -> i32 = std::mem::transmute::<*mut std::ffi::c_void, _>($address);
            function($($argument),*)
        };
        if code == 0 { Ok(()) } else { Err(code) }
    }};
}

macro_rules! call {
    ($name:ident($($argument:expr => $kind:ty),*)) => {{
        let address = $crate::client::symbol(stringify!($name));
        assert!(!address.is_null(), "{} is exported", stringify!($name));
        $crate::client::call_at!(address, $($argument => $kind),*)
    }};
}
pub(crate) use {call, call_at};

/// Returns one of the mock's counts.
pub fn count(device: i32, kind: i32, what: i32) -> i64 {
    // SAFETY: the type matches the function's declaration in the mock.
    let function: extern "C" fn(i32, i32, i32) -> i64 =
        unsafe { std::mem::transmute(symbol("memtrack_mock_count")) };
    function(device, kind, what)
}

/// Returns a device's live bytes as counted by the mock. Pass -1 for all devices together, and -2 for the host.
pub fn live_bytes(device: i32) -> u64 {
    count(device, -1, 2) as u64
}

/// Initializes the driver and makes the primary context of a device current.
pub fn begin(device: i32) -> u64 {
    call!(cuInit(0 => u32)).expect("the driver starts");
    let mut context = 0;
    call!(cuDevicePrimaryCtxRetain(&mut context => *mut u64, device => i32)).expect("a context");
    call!(cuCtxSetCurrent(context => u64)).expect("it can be current");
    context
}

/// Retains the primary context of the first device one more time, makes it current, and releases it again.
pub fn end_of_a_context() {
    begin(0);
    call!(cuDevicePrimaryCtxRelease_v2(0 => i32)).expect("it is retained");
}

#[inline(never)]
pub fn alloc(bytes: usize) -> Answer<u64> {
    let mut address = 0;
    call!(cuMemAlloc_v2(&mut address => *mut u64, bytes => usize)).map(|()| address)
}

pub fn free(address: u64) -> Answer {
    call!(cuMemFree_v2(address => u64))
}

pub fn alloc_async(bytes: usize, stream: u64) -> Answer<u64> {
    let mut address = 0;
    call!(cuMemAllocAsync(&mut address => *mut u64, bytes => usize, stream => u64)).map(|()| address)
}

pub fn free_async(address: u64, stream: u64) -> Answer {
    call!(cuMemFreeAsync(address => u64, stream => u64))
}

pub fn stream() -> u64 {
    let mut stream = 0;
    call!(cuStreamCreate(&mut stream => *mut u64, 0 => u32)).expect("a stream");
    stream
}

pub fn host_alloc(bytes: usize) -> Answer<u64> {
    let mut address = 0;
    call!(cuMemHostAlloc(&mut address => *mut u64, bytes => usize, 0 => u32)).map(|()| address)
}

pub fn host_free(address: u64) -> Answer {
    call!(cuMemFreeHost(address => u64))
}

/// Returns a `CUmemAllocationProp` or `CUmemPoolProps` for pinned memory of a device.
pub fn properties(device: i32) -> [i32; 64] {
    let mut properties = [0; 64];
    (properties[0], properties[2], properties[3]) = (1, 1, device);
    properties
}
