//! The driver's status codes: those that the mock returns, and the names and texts of the common ones.

use std::ffi::CStr;

/// A `CUresult` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(pub i32);

/// The result of an entry point.
pub(crate) type CuResult<T = ()> = Result<T, Status>;

impl Status {
    pub const INVALID_VALUE: Self = Self(1);
    pub const OUT_OF_MEMORY: Self = Self(2);
    pub const NOT_INITIALIZED: Self = Self(3);
    pub const NO_DEVICE: Self = Self(100);
    pub const INVALID_DEVICE: Self = Self(101);
    pub const INVALID_CONTEXT: Self = Self(201);
    pub const INVALID_HANDLE: Self = Self(400);
    pub const NOT_FOUND: Self = Self(500);
    pub const NOT_READY: Self = Self(600);
    pub const PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    pub const PEER_ACCESS_NOT_ENABLED: Self = Self(705);
    pub const PRIMARY_CONTEXT_ACTIVE: Self = Self(708);
    pub const CONTEXT_IS_DESTROYED: Self = Self(709);
    pub const HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    pub const HOST_MEMORY_NOT_REGISTERED: Self = Self(713);
    pub const NOT_SUPPORTED: Self = Self(801);
    pub const UNKNOWN: Self = Self(999);

    /// Returns the status's name and description, as the driver words them.
    pub fn known(self) -> Option<(&'static CStr, &'static CStr)> {
        Some(match self.0 {
            0 => (c"CUDA_SUCCESS", c"no error"),
            1 => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
            2 => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
            3 => (c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
            4 => (c"CUDA_ERROR_DEINITIALIZED", c"driver shutting down"),
            34 => (c"CUDA_ERROR_STUB_LIBRARY", c"the loaded driver is a stub library"),
            100 => (c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"),
            101 => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
            200 => (c"CUDA_ERROR_INVALID_IMAGE", c"invalid kernel image"),
            201 => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
            205 => (c"CUDA_ERROR_MAP_FAILED", c"mapping failed"),
            400 => (c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
            500 => (c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
            600 => (c"CUDA_ERROR_NOT_READY", c"device not ready"),
            700 => (c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered"),
            704 => (c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", c"peer access is already enabled"),
            705 => (c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", c"peer access has not been enabled"),
            708 => (c"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", c"the primary context is active"),
            709 => (c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed"),
            712 => (c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"host memory is already registered"),
            713 => (c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"host memory is not registered"),
            719 => (c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
            801 => (c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported"),
            802 => (c"CUDA_ERROR_SYSTEM_NOT_READY", c"system not yet initialized"),
            803 => (c"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", c"driver and libraries do not match"),
            999 => (c"CUDA_ERROR_UNKNOWN", c"unknown error"),
            _ => return None,
        })
    }
}
