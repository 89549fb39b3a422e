//! What the hook itself asks of the driver: which context and device are current, how much memory is free. The functions
//! come from the same library as the call that was hooked; one that an old driver lacks is done without.

use super::entry::look_up;
use super::wrap::CuResult;
use crate::event::DeviceId;
use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

/// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`.
const DEVICE_ORDINAL: i32 = 9;

type OutHandle = unsafe extern "C" fn(*mut u64) -> CuResult;
type OutInt = unsafe extern "C" fn(*mut i32) -> CuResult;
type MemGetInfo = unsafe extern "C" fn(*mut usize, *mut usize) -> CuResult;
type PrimaryState = unsafe extern "C" fn(i32, *mut u32, *mut i32) -> CuResult;
type PointerAttribute = unsafe extern "C" fn(*mut c_void, i32, u64) -> CuResult;

/// Functions of the driver that was hooked first.
pub(super) struct Driver {
    ctx_get_current: Option<OutHandle>,
    ctx_get_device: Option<OutInt>,
    mem_get_info: Option<MemGetInfo>,
    primary_ctx_get_state: Option<PrimaryState>,
    pointer_get_attribute: Option<PointerAttribute>,
    device_count: Option<OutInt>,
}

/// The context and the device that a call is for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    pub(super) context: u64,
    pub(super) device: u16,
}

impl Place {
    pub(super) fn device_id(self) -> DeviceId {
        DeviceId(self.device)
    }
}

impl Driver {
    /// The driver that `real`, one of its functions, belongs to.
    pub(super) fn of(real: *const c_void) -> &'static Self {
        static DRIVER: OnceLock<Driver> = OnceLock::new();
        DRIVER.get_or_init(|| Self::resolve(real))
    }

    fn resolve(real: *const c_void) -> Self {
        let mut info = libc::Dl_info {
            dli_fname: std::ptr::null(),
            dli_fbase: std::ptr::null_mut(),
            dli_sname: std::ptr::null(),
            dli_saddr: std::ptr::null_mut(),
        };
        // SAFETY: `info` is ours, and the name in it stays as long as the library is loaded; it is loaded already.
        let handle = unsafe {
            if libc::dladdr(real, &mut info) != 0 && !info.dli_fname.is_null() {
                libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
            } else {
                std::ptr::null_mut()
            }
        };
        let handle = if handle.is_null() { libc::RTLD_DEFAULT } else { handle };
        let find = |name: &CStr| look_up(handle, name);
        // SAFETY: the driver's functions with their documented signatures; null becomes `None`.
        unsafe {
            Self {
                ctx_get_current: transmute::<*mut c_void, Option<OutHandle>>(find(c"cuCtxGetCurrent")),
                ctx_get_device: transmute::<*mut c_void, Option<OutInt>>(find(c"cuCtxGetDevice")),
                mem_get_info: transmute::<*mut c_void, Option<MemGetInfo>>(find(c"cuMemGetInfo_v2")),
                primary_ctx_get_state: transmute::<*mut c_void, Option<PrimaryState>>(find(
                    c"cuDevicePrimaryCtxGetState",
                )),
                pointer_get_attribute: transmute::<*mut c_void, Option<PointerAttribute>>(find(
                    c"cuPointerGetAttribute",
                )),
                device_count: transmute::<*mut c_void, Option<OutInt>>(find(c"cuDeviceGetCount")),
            }
        }
    }

    /// The current context and its device; device 0 where there is none.
    pub(super) fn place(&self) -> Place {
        let (mut context, mut device) = (0, 0);
        // SAFETY: the out-parameters are ours; the driver allows these calls at any time.
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
        Place { context, device: u16::try_from(device).unwrap_or(0) }
    }

    /// The device that an address of the driver's lies on; `None` where it does not say.
    pub(super) fn device_of(&self, address: u64) -> Option<u16> {
        let mut device = -1_i32;
        let get = self.pointer_get_attribute?;
        // SAFETY: the attribute is an `int`, and the address was just handed out.
        let result = unsafe { get((&raw mut device).cast(), DEVICE_ORDINAL, address) };
        u16::try_from(device).ok().filter(|_| result == 0)
    }

    /// Whether there is more than one device, so that the current one need not be the one a stream or pool is of.
    pub(super) fn has_several_devices(&self) -> bool {
        static SEVERAL: OnceLock<bool> = OnceLock::new();
        *SEVERAL.get_or_init(|| {
            let mut count = 0;
            // SAFETY: the out-parameter is ours.
            self.device_count.is_some_and(|get| unsafe { get(&mut count) } == 0 && count > 1)
        })
    }

    /// Free and total bytes of the current device; 0 where it does not say.
    pub(super) fn memory_info(&self) -> (u64, u64) {
        let (mut free, mut total) = (0_usize, 0_usize);
        let Some(get) = self.mem_get_info else { return (0, 0) };
        // SAFETY: the out-parameters are ours.
        let result = unsafe { get(&mut free, &mut total) };
        if result == 0 { (free as u64, total as u64) } else { (0, 0) }
    }

    /// Whether a device's primary context is alive; taken to be where the driver does not say.
    pub(super) fn primary_is_alive(&self, device: i32) -> bool {
        let (mut flags, mut active) = (0, 1);
        let Some(get) = self.primary_ctx_get_state else { return true };
        // SAFETY: the out-parameters are ours.
        unsafe { get(device, &mut flags, &mut active) != 0 || active != 0 }
    }
}
