//! Errors in queries to the driver or to NVML.

use std::error::Error;
use std::fmt;

/// The reason a query failed, displayed as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuError {
    /// The CUDA driver is not installed: `libcuda.so.1` cannot be opened. Contains the loader's message.
    NoDriver(String),
    /// The driver lacks a function because it is older than CUDA 11.4.
    OldDriver {
        /// The missing function.
        missing: &'static str,
    },
    /// The driver returned an error.
    Driver {
        /// The function that was called.
        call: &'static str,
        /// The driver's name for the error, such as `CUDA_ERROR_NO_DEVICE`.
        code: String,
    },
    /// There is no device with this number.
    NoSuchDevice {
        /// The requested number.
        device: u32,
        /// The number of devices.
        count: u32,
    },
    /// The device has no memory pools.
    NoPools {
        /// The device's number.
        device: u32,
    },
    /// NVML is not installed, or its driver is not loaded. Contains NVML's message.
    NoNvml(String),
    /// NVML returned an error. Contains its message.
    Nvml(String),
}

impl fmt::Display for GpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver(why) => write!(f, "no CUDA driver: {why}"),
            Self::OldDriver { missing } => {
                write!(f, "the CUDA driver has no {missing}: CUDA 11.4 or newer is required")
            }
            Self::Driver { call, code } => write!(f, "the CUDA driver does not answer: {call} gives {code}"),
            Self::NoSuchDevice { device, count: 0 } => {
                write!(f, "there is no CUDA device {device}, and no other")
            }
            Self::NoSuchDevice { device, count } => {
                write!(f, "there is no CUDA device {device}; there are {count}, counted from 0")
            }
            Self::NoPools { device } => write!(f, "CUDA device {device} has no memory pools"),
            Self::NoNvml(why) => write!(f, "NVML cannot be loaded: {why}"),
            Self::Nvml(why) => write!(f, "NVML does not answer: {why}"),
        }
    }
}

impl Error for GpuError {}

memtrack_model::serialize_as!(GpuError => String: ToString::to_string);
