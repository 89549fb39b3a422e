//! NVML, loaded once where it is installed.

use super::error::GpuError;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::error::Error;
use std::sync::OnceLock;

/// Returns the library.
///
/// # Errors
/// It is not installed, its driver is not loaded, or it fails.
pub(super) fn nvml() -> Result<&'static Nvml, GpuError> {
    static NVML: OnceLock<Result<Nvml, GpuError>> = OnceLock::new();
    NVML.get_or_init(|| Nvml::init().map_err(explained)).as_ref().map_err(Clone::clone)
}

/// Converts NVML's error.
pub(super) fn explained(error: NvmlError) -> GpuError {
    match error {
        // The loader's message, not which of the crates loaded it.
        NvmlError::LibloadingError(why) => {
            GpuError::NoNvml(why.source().map_or_else(|| why.to_string(), ToString::to_string))
        }
        NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound => GpuError::NoNvml(error.to_string()),
        _ => GpuError::Nvml(error.to_string()),
    }
}
