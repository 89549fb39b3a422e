//! Loads NVML once, if it is installed.

use super::error::GpuError;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::error::Error;
use std::sync::OnceLock;

/// Returns NVML, which is loaded by the first call.
///
/// # Errors
/// Fails when NVML is not installed or fails, or when its driver is not loaded.
pub(super) fn nvml() -> Result<&'static Nvml, GpuError> {
    static NVML: OnceLock<Result<Nvml, GpuError>> = OnceLock::new();
    NVML.get_or_init(|| Nvml::init().map_err(nvml_error)).as_ref().map_err(Clone::clone)
}

/// Converts an NVML error.
pub(super) fn nvml_error(error: NvmlError) -> GpuError {
    match error {
        // The source is the loader's own message.
        NvmlError::LibloadingError(error) => {
            GpuError::NoNvml(error.source().map_or_else(|| error.to_string(), ToString::to_string))
        }
        NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound => GpuError::NoNvml(error.to_string()),
        _ => GpuError::Nvml(error.to_string()),
    }
}
