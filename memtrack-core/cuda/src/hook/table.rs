//! The hooked functions by exact name, and their wrappers. A wrapper must know which function it replaces, and one name
//! may have several addresses (two copies of a driver, legacy and per-thread streams). Each address that the driver
//! returns therefore occupies a slot, and each slot has its own wrapper.

use super::entry::look_up;
use super::wrap::arrays::{self, ArrayDescriptor, ArrayDescriptor3d};
use super::wrap::memory::{PINNED, PLAIN};
use super::wrap::{Call, CuResult, Properties, contexts, ipc, memory, physical, pools, procedures};
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// The maximum number of addresses per name; further addresses are not hooked.
const SLOTS: usize = 4;
/// The slot for programs that are linked against the driver.
const LINKED_SLOT: usize = SLOTS;

/// `CUDA_ERROR_NOT_INITIALIZED`: the result of the exported functions, which programs that are linked against the driver
/// call, if there is no driver.
const NOT_INITIALIZED: CuResult = 3;

/// A hooked function.
pub(super) struct HookedFunction {
    /// The symbol in the driver.
    symbol: &'static str,
    /// The name by which `cuGetProcAddress` finds the function.
    base: &'static str,
    /// The first CUDA version (`major * 1000 + minor * 10`) in which `base` means this function.
    since: i32,
    /// Whether the function takes a stream and treats 0 as the per-thread default stream.
    per_thread: bool,
    wrappers: [*const c_void; SLOTS],
    /// The function that a program linked against the driver calls.
    export: *const c_void,
    /// The driver's functions behind the wrappers, and behind the export.
    real: [AtomicPtr<c_void>; SLOTS + 1],
}

// SAFETY: the pointers are those of functions.
unsafe impl Sync for HookedFunction {}

/// Calls a wrapper with the call of the driver's function `real`, and with those of its arguments that the wrapper needs.
macro_rules! call_driver {
    ($real:ident, ($($argument:ident : $type:ty),*) => $module:ident :: $wrapper:ident ($($passed:expr),*)) => {{
        let function =
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> CuResult>($real);
        $module::$wrapper(Call { real: $real, run: || function($($argument),*) }, $($passed),*)
    }};
}

macro_rules! hooks {
    ($($symbol:ident($($argument:ident : $type:ty),*) $base:literal $since:literal $($per_thread:ident)? =>
        $module:ident :: $wrapper:ident ($($passed:expr),*);)*) => {
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        enum Index { $($symbol),* }

        /// The wrappers: each calls the driver's function in its slot.
        #[allow(non_snake_case)]
        mod slots {
            use super::*;
            $(pub(super) unsafe extern "C" fn $symbol<const SLOT: usize>($($argument: $type),*) -> CuResult {
                let real = HOOKS[Index::$symbol as usize].real[SLOT].load(Ordering::Acquire);
                // SAFETY: the slot was filled with the address of this function before the wrapper was returned to a
                // program, and the arguments are the caller's.
                unsafe { call_driver!(real, ($($argument: $type),*) => $module::$wrapper($($passed),*)) }
            })*
        }

        /// Functions with the driver's own names, for programs that are linked against the driver.
        #[allow(non_snake_case)]
        mod exports {
            use super::*;
            $(#[unsafe(no_mangle)]
            pub(super) unsafe extern "C" fn $symbol($($argument: $type),*) -> CuResult {
                let real = HOOKS[Index::$symbol as usize].linked_function();
                if real.is_null() {
                    return NOT_INITIALIZED;
                }
                // SAFETY: the next library's function of this name, and the caller's arguments.
                unsafe { call_driver!(real, ($($argument: $type),*) => $module::$wrapper($($passed),*)) }
            })*
        }

        static HOOKS: [HookedFunction; [$(Index::$symbol),*].len()] = [$(HookedFunction {
            symbol: stringify!($symbol),
            base: $base,
            since: $since,
            per_thread: hooks!(@flag $($per_thread)?),
            wrappers: [
                slots::$symbol::<0> as *const c_void,
                slots::$symbol::<1> as *const c_void,
                slots::$symbol::<2> as *const c_void,
                slots::$symbol::<3> as *const c_void,
            ],
            export: exports::$symbol as *const c_void,
            real: [const { AtomicPtr::new(std::ptr::null_mut()) }; SLOTS + 1],
        }),*];
    };
    (@flag per_thread) => { true };
    (@flag) => { false };
}

// The function, its name and the CUDA version that introduced it, and the wrapper with the arguments that it needs.
hooks! {
    cuMemAlloc_v2(out: *mut u64, size: usize) "cuMemAlloc" 3020 => memory::allocate(out, size as u64, PLAIN);
    cuMemAllocPitch_v2(out: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32)
        "cuMemAllocPitch" 3020 => memory::allocate_pitch(out, pitch, width, height);
    cuMemAllocManaged(out: *mut u64, size: usize, flags: u32)
        "cuMemAllocManaged" 6000 => memory::allocate(out, size as u64, PLAIN);
    cuMemFree_v2(address: u64) "cuMemFree" 3020 => memory::free(address);
    cuMemAllocAsync(out: *mut u64, size: usize, stream: u64)
        "cuMemAllocAsync" 11020 => memory::allocate(out, size as u64, pools::from_current(stream));
    cuMemAllocAsync_ptsz(out: *mut u64, size: usize, stream: u64) "cuMemAllocAsync" 11020 per_thread =>
        memory::allocate(out, size as u64, pools::from_current(pools::per_thread(stream)));
    cuMemAllocFromPoolAsync(out: *mut u64, size: usize, pool: u64, stream: u64)
        "cuMemAllocFromPoolAsync" 11020 => memory::allocate(out, size as u64, pools::from_pool(pool, stream));
    cuMemAllocFromPoolAsync_ptsz(out: *mut u64, size: usize, pool: u64, stream: u64)
        "cuMemAllocFromPoolAsync" 11020 per_thread =>
        memory::allocate(out, size as u64, pools::from_pool(pool, pools::per_thread(stream)));
    cuMemFreeAsync(address: u64, stream: u64) "cuMemFreeAsync" 11020 => memory::free(address);
    cuMemFreeAsync_ptsz(address: u64, stream: u64) "cuMemFreeAsync" 11020 per_thread => memory::free(address);
    cuMemPoolCreate(out: *mut u64, properties: *const Properties)
        "cuMemPoolCreate" 11020 => pools::create(out, properties);
    cuMemPoolDestroy(pool: u64) "cuMemPoolDestroy" 11020 => pools::destroy(pool);
    cuMemHostAlloc(out: *mut u64, size: usize, flags: u32)
        "cuMemHostAlloc" 2020 => memory::allocate(out, size as u64, PINNED);
    cuMemAllocHost_v2(out: *mut u64, size: usize)
        "cuMemAllocHost" 3020 => memory::allocate(out, size as u64, PINNED);
    cuMemFreeHost(address: u64) "cuMemFreeHost" 2000 => memory::free(address);
    cuMemHostRegister_v2(address: u64, size: usize, flags: u32)
        "cuMemHostRegister" 6050 => memory::register(address, size);
    cuMemHostUnregister(address: u64) "cuMemHostUnregister" 4000 => memory::free(address);
    cuMemCreate(out: *mut u64, size: usize, properties: *const Properties, flags: u64)
        "cuMemCreate" 10020 => physical::create(out, size, properties);
    cuMemRelease(handle: u64) "cuMemRelease" 10020 => physical::release(handle);
    cuMemAddressReserve(out: *mut u64, size: usize, alignment: usize, wanted: u64, flags: u64)
        "cuMemAddressReserve" 10020 => physical::reserve(out, size);
    cuMemAddressFree(address: u64, size: usize) "cuMemAddressFree" 10020 => physical::unreserve(address);
    cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64)
        "cuMemMap" 10020 => physical::map(address, size, handle);
    cuMemUnmap(address: u64, size: usize) "cuMemUnmap" 10020 => physical::unmap(address, size);
    cuMemImportFromShareableHandle(out: *mut u64, shared: *mut c_void, kind: i32)
        "cuMemImportFromShareableHandle" 10020 => physical::import(out);
    cuIpcOpenMemHandle_v2(out: *mut u64, handle: ipc::Handle, flags: u32)
        "cuIpcOpenMemHandle" 11000 => ipc::open(out);
    cuIpcCloseMemHandle(address: u64) "cuIpcCloseMemHandle" 4010 => ipc::close(address);
    cuArrayCreate_v2(out: *mut u64, descriptor: *const ArrayDescriptor)
        "cuArrayCreate" 3020 => memory::allocate(out, arrays::bytes(descriptor), PLAIN);
    cuArray3DCreate_v2(out: *mut u64, descriptor: *const ArrayDescriptor3d)
        "cuArray3DCreate" 3020 => memory::allocate(out, arrays::bytes_of_levels(descriptor, 1), PLAIN);
    cuArrayDestroy(handle: u64) "cuArrayDestroy" 2000 => memory::free(handle);
    cuMipmappedArrayCreate(out: *mut u64, descriptor: *const ArrayDescriptor3d, levels: u32)
        "cuMipmappedArrayCreate" 5000 =>
        memory::allocate(out, arrays::bytes_of_levels(descriptor, levels), PLAIN);
    cuMipmappedArrayDestroy(handle: u64) "cuMipmappedArrayDestroy" 5000 => memory::free(handle);
    cuDevicePrimaryCtxRetain(out: *mut u64, device: i32)
        "cuDevicePrimaryCtxRetain" 7000 => contexts::retain(out, device);
    cuDevicePrimaryCtxReset_v2(device: i32) "cuDevicePrimaryCtxReset" 11000 => contexts::reset(device);
    cuDevicePrimaryCtxRelease_v2(device: i32) "cuDevicePrimaryCtxRelease" 11000 => contexts::release(device);
    cuCtxDestroy_v2(context: u64) "cuCtxDestroy" 4000 => contexts::destroy(context);
    cuGetProcAddress(name: *const c_char, out: *mut *mut c_void, version: i32, flags: u64)
        "cuGetProcAddress" 11030 => procedures::get(name, out, version, flags);
    cuGetProcAddress_v2(name: *const c_char, out: *mut *mut c_void, version: i32, flags: u64, status: *mut i32)
        "cuGetProcAddress" 12000 => procedures::get(name, out, version, flags);
}

/// Returns the hooked function with this symbol.
pub(super) fn find_by_symbol(symbol: &[u8]) -> Option<&'static HookedFunction> {
    HOOKS.iter().find(|hooked| hooked.symbol.as_bytes() == symbol)
}

/// Returns the hooked function that `cuGetProcAddress` finds by a name, for a CUDA version and kind of default stream.
pub(super) fn find_by_base(base: &[u8], version: i32, per_thread: bool) -> Option<&'static HookedFunction> {
    let known = |wanted: bool| {
        let named = HOOKS.iter().filter(move |hooked| hooked.base.as_bytes() == base);
        named
            .filter(move |hooked| hooked.since <= version && hooked.per_thread == wanted)
            .max_by_key(|hooked| hooked.since)
    };
    let found = if per_thread { known(true).or_else(|| known(false)) } else { known(false) };
    // A name with a version suffix is accepted too.
    found.or_else(|| find_by_symbol(base).filter(|hooked| hooked.since <= version))
}

/// Returns the wrapper for a function of the driver. The wrapper for a given address is always the same. Returns `real`
/// unchanged if it is already a wrapper, or if its name has too many addresses.
pub(super) fn wrap(hooked: &'static HookedFunction, real: *mut c_void) -> *const c_void {
    if hooked.is_export(real) || hooked.wrappers.contains(&real.cast_const()) {
        return real;
    }
    for (slot, wrapper) in hooked.real[..SLOTS].iter().zip(hooked.wrappers) {
        let taken = slot.compare_exchange(std::ptr::null_mut(), real, Ordering::AcqRel, Ordering::Acquire);
        if taken.is_ok() || taken == Err(real) {
            return wrapper;
        }
    }
    real
}

impl HookedFunction {
    /// Returns whether `address` is the function that is exported for programs that are linked against the driver.
    pub(super) fn is_export(&self, address: *const c_void) -> bool {
        std::ptr::eq(address, self.export)
    }

    /// Returns the function that a program linked against the driver would call without the hook; null if there is
    /// none.
    fn linked_function(&self) -> *mut c_void {
        let known = self.real[LINKED_SLOT].load(Ordering::Acquire);
        if !known.is_null() {
            return known;
        }
        let mut name = [0_u8; 64];
        name[..self.symbol.len()].copy_from_slice(self.symbol.as_bytes());
        let name = CStr::from_bytes_until_nul(&name).unwrap_or(c"");
        let mut found = look_up(libc::RTLD_NEXT, name);
        if found.is_null() {
            // The driver may be loaded, but outside the scope in which the program's names are searched.
            // SAFETY: a C string; this call does not load the library.
            let driver =
                unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            if !driver.is_null() {
                found = look_up(driver, name);
            }
        }
        self.real[LINKED_SLOT].store(found, Ordering::Release);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(base: &str, version: i32, per_thread: bool) -> Option<&'static str> {
        find_by_base(base.as_bytes(), version, per_thread).map(|hooked| hooked.symbol)
    }

    #[test]
    fn function_names_are_matched_exactly() {
        assert!(find_by_symbol(b"cuMemAlloc_v2").is_some());
        for other in ["cuMemAlloc", "cuMemAlloc_v22", "cudaMalloc", "cudnnCreate", "cu", ""] {
            assert!(find_by_symbol(other.as_bytes()).is_none(), "{other}");
        }
    }

    #[test]
    fn a_base_name_resolves_to_the_function_of_its_version() {
        assert_eq!(symbol("cuMemAlloc", 12080, false), Some("cuMemAlloc_v2"));
        // In CUDA 3.0, `cuMemAlloc` is a function with 32-bit sizes, which is not hooked.
        assert_eq!(symbol("cuMemAlloc", 3000, false), None);
        assert_eq!(symbol("cuGetProcAddress", 11060, false), Some("cuGetProcAddress"));
        assert_eq!(symbol("cuGetProcAddress", 12000, true), Some("cuGetProcAddress_v2"));
        assert_eq!(symbol("cuMemAllocAsync", 12000, true), Some("cuMemAllocAsync_ptsz"));
        assert_eq!(symbol("cuMemAllocAsync", 12000, false), Some("cuMemAllocAsync"));
        assert_eq!(symbol("cuMemFreeHost", 2000, true), Some("cuMemFreeHost"));
        assert_eq!(symbol("cuMemFree_v2", 12000, false), Some("cuMemFree_v2"));
        assert_eq!(symbol("", 12000, false), None);
    }

    #[test]
    fn each_address_has_its_own_wrapper() {
        let hooked = find_by_symbol(b"cuMemPoolDestroy").expect("it is hooked");
        let mut addresses = [0_u8; SLOTS + 1];
        let address = |slot: usize, bytes: &mut [u8]| (&raw mut bytes[slot]).cast::<c_void>();
        let wrappers: Vec<_> = (0..SLOTS).map(|slot| wrap(hooked, address(slot, &mut addresses))).collect();
        assert!((1..SLOTS).all(|slot| !wrappers[..slot].contains(&wrappers[slot])));
        assert_eq!(wrap(hooked, address(1, &mut addresses)), wrappers[1]);
        // A wrapper is not wrapped again, and a fifth address is returned unchanged.
        assert_eq!(wrap(hooked, wrappers[0].cast_mut()), wrappers[0]);
        assert_eq!(wrap(hooked, hooked.export.cast_mut()), hooked.export);
        let fifth = address(SLOTS, &mut addresses);
        assert_eq!(wrap(hooked, fifth), fifth.cast_const());
    }
}
