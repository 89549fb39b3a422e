//! Data that devices report: their memory and the processes that use it.

/// The memory of a device, across all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// The free bytes of the device.
    pub free_bytes: u64,
    /// The total bytes of the device.
    pub total_bytes: u64,
}

impl MemoryInfo {
    /// Creates the reading for a device with `free_bytes` of `total_bytes` free.
    #[must_use]
    pub const fn new(free_bytes: u64, total_bytes: u64) -> Self {
        Self { free_bytes, total_bytes }
    }

    /// Returns the bytes in use by any process.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.free_bytes)
    }

    /// Returns the bytes in use that are not among the `tracked_bytes`. They belong to contexts, modules, libraries'
    /// workspaces, rounding, pools' unused memory and other processes. The result is 0 if more is tracked than in use,
    /// as with managed memory that is on the host.
    #[must_use]
    pub fn untracked_bytes(&self, tracked_bytes: u64) -> u64 {
        self.used_bytes().saturating_sub(tracked_bytes)
    }
}

/// A process that uses a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DeviceProcess {
    /// The process id. Inside a container, this is the host's id for the process.
    pub pid: u32,
    /// The device memory that the process uses, including its context, or null if NVML does not report it.
    pub used_bytes: Option<u64>,
}

impl DeviceProcess {
    /// Creates a process that uses `used_bytes` of the device, if known.
    #[must_use]
    pub const fn new(pid: u32, used_bytes: Option<u64>) -> Self {
        Self { pid, used_bytes }
    }
}
