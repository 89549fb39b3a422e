//! Queries that the hook itself makes to the driver, such as the current context and device, or the free memory. The
//! functions come from the same library as the hooked call; functions that an old driver lacks are not used.
//!
//! **Why not cudarc?** The hook must query the driver that the program has loaded, through the functions of that library.

use super::entry::{info_of, look_up};
use super::wrap::CuResult;
use memtrack_model::event::DeviceId;
use std::ffi::c_void;
use std::sync::OnceLock;

/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const DEVICE_ORDINAL: i32 = 9;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: the thread may make any query while another thread captures a stream.
const RELAXED: i32 = 2;

/// The driver that was hooked first.
static DRIVER: OnceLock<Driver> = OnceLock::new();

macro_rules! driver_functions {
    ($($field:ident = $symbol:literal($($parameter:ty),*);)*) => {
        /// The functions of the driver that was hooked first.
        pub(super) struct Driver {
            $($field: Option<unsafe extern "C" fn($($parameter),*) -> CuResult>,)*
        }

        impl Driver {
            fn resolve(handle: *mut c_void) -> Self {
                // SAFETY: the driver's functions with their documented signatures; null becomes `None`.
                unsafe {
                    Self { $($field: std::mem::transmute::<
                        *mut c_void,
                        Option<unsafe extern "C" fn($($parameter),*) -> CuResult>,
                    >(look_up(handle, $symbol)),)* }
                }
            }
        }
    };
}

driver_functions! {
    ctx_get_current = c"cuCtxGetCurrent"(*mut u64);
    ctx_get_device = c"cuCtxGetDevice"(*mut i32);
    mem_get_info = c"cuMemGetInfo_v2"(*mut usize, *mut usize);
    primary_ctx_get_state = c"cuDevicePrimaryCtxGetState"(i32, *mut u32, *mut i32);
    pointer_get_attribute = c"cuPointerGetAttribute"(*mut c_void, i32, u64);
    device_count = c"cuDeviceGetCount"(*mut i32);
    default_pool = c"cuDeviceGetDefaultMemPool"(*mut u64, i32);
    current_pool = c"cuDeviceGetMemPool"(*mut u64, i32);
    pool_attribute = c"cuMemPoolGetAttribute"(u64, i32, *mut c_void);
    address_range = c"cuMemGetAddressRange_v2"(*mut u64, *mut usize, u64);
    exchange_capture_mode = c"cuThreadExchangeStreamCaptureMode"(*mut i32);
}

/// The context and the device of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallContext {
    pub(super) context: u64,
    pub(super) device: u16,
}

impl CallContext {
    pub(super) fn device_id(self) -> DeviceId {
        DeviceId(self.device)
    }
}

impl Driver {
    /// Returns the driver that `real`, one of its functions, belongs to.
    pub(super) fn of(real: *const c_void) -> &'static Self {
        DRIVER.get_or_init(|| {
            let name = info_of(real).dli_fname;
            let mut handle = std::ptr::null_mut();
            if !name.is_null() {
                // SAFETY: the name is valid while the library is loaded, as it is now.
                handle = unsafe { libc::dlopen(name, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
            }
            Self::resolve(if handle.is_null() { libc::RTLD_DEFAULT } else { handle })
        })
    }

    /// Returns the driver, if a call has been hooked.
    pub(super) fn get() -> Option<&'static Self> {
        DRIVER.get()
    }

    /// Returns the current context and its device; device 0 if there is none.
    pub(super) fn current_context(&self) -> CallContext {
        let (mut context, mut device) = (0, 0);
        // SAFETY: the out-parameters are local variables; the driver allows these calls at any time.
        unsafe {
            if let Some(get) = self.ctx_get_current {
                get(&mut context);
            }
            if let Some(get) = self.ctx_get_device
                && get(&mut device) != 0
            {
                device = 0;
            }
        }
        CallContext { context, device: u16::try_from(device).unwrap_or(0) }
    }

    /// Returns the device of a device address; `None` if the driver does not report it.
    pub(super) fn device_of(&self, address: u64) -> Option<u16> {
        let mut device = -1_i32;
        let get = self.pointer_get_attribute?;
        // SAFETY: the attribute is an `int`, and the address was just allocated.
        let result = unsafe { get((&raw mut device).cast(), DEVICE_ORDINAL, address) };
        u16::try_from(device).ok().filter(|_| result == 0)
    }

    /// Returns whether there is more than one device, in which case a stream or pool may belong to a device other than
    /// the current one.
    pub(super) fn has_several_devices(&self) -> bool {
        static SEVERAL: OnceLock<bool> = OnceLock::new();
        *SEVERAL.get_or_init(|| {
            let mut count = 0;
            // SAFETY: the out-parameter is a local variable.
            self.device_count.is_some_and(|get| unsafe { get(&mut count) } == 0 && count > 1)
        })
    }

    /// Returns the free and total bytes of the current device; 0 if the driver does not report them.
    pub(super) fn memory_info(&self) -> (u64, u64) {
        let (mut free, mut total) = (0_usize, 0_usize);
        let Some(get) = self.mem_get_info else { return (0, 0) };
        // SAFETY: the out-parameters are local variables.
        let result = unsafe { get(&mut free, &mut total) };
        if result == 0 { (free as u64, total as u64) } else { (0, 0) }
    }

    /// Calls `act` in a mode in which its queries do not invalidate a stream capture that is in progress.
    pub(super) fn outside_captures<R>(&self, act: impl FnOnce() -> R) -> R {
        let mut mode = RELAXED;
        // SAFETY: the parameter is a local variable, in which the driver returns the thread's previous mode.
        let changed = self.exchange_capture_mode.is_some_and(|exchange| unsafe { exchange(&mut mode) } == 0);
        let result = act();
        if let Some(exchange) = self.exchange_capture_mode.filter(|_| changed) {
            // SAFETY: as above, with the previous mode.
            unsafe { exchange(&mut mode) };
        }
        result
    }

    /// Returns the pools that a device has in every program: its default pool, and the current pool, which
    /// `cuMemAllocAsync` uses.
    pub(super) fn pools_of(&self, device: u16) -> impl Iterator<Item = u64> {
        [self.default_pool, self.current_pool].into_iter().flatten().filter_map(move |get| {
            let mut pool = 0;
            // SAFETY: the out-parameter is a local variable; for a device without pools the driver returns an error.
            let result = unsafe { get(&mut pool, i32::from(device)) };
            (result == 0 && pool != 0).then_some(pool)
        })
    }

    /// Returns a pool attribute whose value is a 64-bit number. The pool must still exist.
    pub(super) fn pool_attribute(&self, pool: u64, attribute: i32) -> Option<u64> {
        let mut bytes = 0_u64;
        let get = self.pool_attribute?;
        // SAFETY: the attribute is a 64-bit number, and the caller guarantees that the pool exists.
        let result = unsafe { get(pool, attribute, (&raw mut bytes).cast()) };
        (result == 0).then_some(bytes)
    }

    /// Returns the size of the allocation that begins at an address; 0 if the driver does not report it.
    pub(super) fn size_of(&self, address: u64) -> u64 {
        let (mut start, mut size) = (0, 0);
        let Some(get) = self.address_range else { return 0 };
        // SAFETY: the out-parameters are local variables, and the address was just allocated.
        let result = unsafe { get(&mut start, &mut size, address) };
        if result == 0 { size as u64 } else { 0 }
    }

    /// Returns whether a device's primary context is alive; true if the driver does not report it.
    pub(super) fn primary_context_is_alive(&self, device: i32) -> bool {
        let (mut flags, mut active) = (0, 1);
        let Some(get) = self.primary_ctx_get_state else { return true };
        // SAFETY: the out-parameters are local variables.
        unsafe { get(device, &mut flags, &mut active) != 0 || active != 0 }
    }
}
