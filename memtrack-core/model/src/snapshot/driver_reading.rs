//! The CUDA driver's own report on a device during the recording: the device memory in use by any process, and the
//! memory that the driver's pools keep. Compared with the recorded bytes, the report distinguishes a cache
//! from a leak and reveals the memory of other processes.

use crate::event::DeviceId;

/// The kind of moment at which a [`DriverReading`] was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum ReadingMoment {
    /// The newest reading.
    #[default]
    Last,
    /// The reading with the most device memory in use.
    Fullest,
    /// The newest reading that was taken because device memory had run out.
    OutOfMemory,
}

/// The driver's report on a device at one moment, and the bytes that memtrack had recorded by then. All sizes are in
/// bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct DriverReading {
    /// The device.
    pub device: DeviceId,
    /// The reason why this reading was kept.
    pub moment: ReadingMoment,
    /// The time of the reading, in ticks.
    pub ticks: u64,
    /// The device's free bytes (`cuMemGetInfo`).
    pub free_bytes: u64,
    /// The device's total bytes.
    pub total_bytes: u64,
    /// The bytes of device memory that memtrack had recorded as held by the program.
    pub tracked_bytes: u64,
    /// The number of pools queried: the device's default pool and those that the program created.
    pub pools: u32,
    /// The bytes of device memory that these pools reserve (`CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`).
    pub pool_reserved_bytes: u64,
    /// The sum of the peak reserved bytes of all these pools.
    pub pool_reserved_peak_bytes: u64,
    /// The reserved bytes that the program uses (`CU_MEMPOOL_ATTR_USED_MEM_CURRENT`).
    pub pool_used_bytes: u64,
    /// The sum of the peak used bytes of all these pools.
    pub pool_used_peak_bytes: u64,
    /// The number of other processes' allocations that the program has opened (CUDA IPC). These allocations count as
    /// memory of the processes that made them, not of this program.
    pub opened: u32,
    /// The bytes of these allocations.
    pub opened_bytes: u64,
}

impl DriverReading {
    /// The maximum number of readings that are read from a snapshot. It leaves room for three readings, one of each
    /// [`ReadingMoment`], for every device that can be distinguished, and for a few more.
    pub const MAX_COUNT: usize = 1024;

    /// Returns the bytes of device memory in use by any process.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.free_bytes)
    }

    /// Returns the bytes that the driver's pools keep unused.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.pool_reserved_bytes.saturating_sub(self.pool_used_bytes)
    }

    /// Returns the bytes in use that are neither recorded nor cached. They belong to contexts, modules, libraries' own
    /// memory, memory allocated before the recording started, and other processes. The result is 0 if more is recorded
    /// than in use, as with managed memory that lies on the host.
    #[must_use]
    pub fn untracked_bytes(&self) -> u64 {
        self.used_bytes().saturating_sub(self.tracked_bytes.saturating_add(self.cached_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_used_memory_add_up() {
        let reading = DriverReading {
            free_bytes: 4,
            total_bytes: 100,
            tracked_bytes: 50,
            pool_reserved_bytes: 40,
            pool_used_bytes: 30,
            ..DriverReading::default()
        };
        assert_eq!((reading.used_bytes(), reading.cached_bytes(), reading.untracked_bytes()), (96, 10, 36));
        // Managed memory need not lie on the device.
        let managed = DriverReading { tracked_bytes: u64::MAX, ..reading };
        assert_eq!(managed.untracked_bytes(), 0);
    }
}
