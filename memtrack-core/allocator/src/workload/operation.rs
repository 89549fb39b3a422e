//! The operations of a workload.

use serde::Deserialize;
use serde_json::{Number, Value};

/// The first line of a workload, which describes the devices.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Config {
    /// The number of devices.
    #[serde(default = "one_device")]
    pub devices: u16,
    /// The memory of each device, in bytes.
    pub total_bytes: u64,
    /// The initial settings string.
    #[serde(default)]
    pub settings: String,
    /// The share of each device's memory that may be used, or `None` to use the share from the settings.
    #[serde(default)]
    pub fraction: Option<f64>,
}

fn one_device() -> u16 {
    1
}

/// A line of a workload after the first. The device and stream default to 0.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Operation {
    /// Allocates a block.
    Alloc {
        /// The name by which later operations refer to the block.
        id: Value,
        /// The requested size in bytes.
        size: Number,
        /// The stream for which the block is allocated.
        #[serde(default)]
        stream: u64,
        /// The device on which the block is allocated.
        #[serde(default)]
        device: u16,
    },
    /// Frees a block.
    Free {
        /// The name of the block.
        id: Value,
    },
    /// Records that another stream also uses a block.
    RecordStream {
        /// The name of the block.
        id: Value,
        /// The stream that uses the block.
        #[serde(default)]
        stream: u64,
    },
    /// Sets whether work on all streams counts as done from now on.
    EventsReady {
        /// Whether the work counts as done.
        ready: bool,
    },
    /// Releases cached memory.
    EmptyCache,
    /// Resets peaks to the current values on every device.
    ResetPeak,
    /// Resets sums to 0 on every device.
    ResetAccumulated,
    /// Limits memory use to a share of the device's memory.
    SetFraction {
        /// The device.
        #[serde(default)]
        device: u16,
        /// The share of the device's memory.
        fraction: Number,
    },
    /// Changes settings.
    Settings {
        /// The settings string.
        value: String,
    },
    /// Reports the statistics of every device.
    Stats,
    /// Reports segments, blocks and settings.
    Snapshot {
        /// The name of the file to which other programs that run the workload may write the snapshot.
        #[serde(default)]
        file: Option<String>,
    },
    /// Routes requests on a device to a pool, which is created if it does not exist.
    BeginPool {
        /// The pool's name.
        pool: Value,
        /// The device.
        #[serde(default)]
        device: u16,
        /// Whether the pool may serve requests for the default pool when memory runs out.
        #[serde(default)]
        use_on_oom: bool,
        /// Whether the pool's blocks are never split.
        #[serde(default)]
        no_split: bool,
    },
    /// Ends the innermost route to a pool.
    EndPool {
        /// The pool's name.
        pool: Value,
        /// The device.
        #[serde(default)]
        device: u16,
    },
    /// Drops a pool.
    DeletePool {
        /// The pool's name.
        pool: Value,
    },
}

impl Operation {
    /// Returns the value of `op` for this operation.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Alloc { .. } => "alloc",
            Self::Free { .. } => "free",
            Self::RecordStream { .. } => "record_stream",
            Self::EventsReady { .. } => "events_ready",
            Self::EmptyCache => "empty_cache",
            Self::ResetPeak => "reset_peak",
            Self::ResetAccumulated => "reset_accumulated",
            Self::SetFraction { .. } => "set_fraction",
            Self::Settings { .. } => "settings",
            Self::Stats => "stats",
            Self::Snapshot { .. } => "snapshot",
            Self::BeginPool { .. } => "begin_pool",
            Self::EndPool { .. } => "end_pool",
            Self::DeletePool { .. } => "delete_pool",
        }
    }

    /// Returns the fields that this operation may have in addition to `op`.
    pub fn fields(&self) -> &'static [&'static str] {
        match self {
            Self::Alloc { .. } => &["id", "size", "stream", "device"],
            Self::Free { .. } => &["id"],
            Self::RecordStream { .. } => &["id", "stream"],
            Self::EventsReady { .. } => &["ready"],
            Self::EmptyCache | Self::ResetPeak | Self::ResetAccumulated | Self::Stats => &[],
            Self::SetFraction { .. } => &["device", "fraction"],
            Self::Settings { .. } => &["value"],
            Self::Snapshot { .. } => &["file"],
            Self::BeginPool { .. } => &["pool", "device", "use_on_oom", "no_split"],
            // `delete_pool` accepts a device but ignores it, because a pool has the device for which it was created.
            Self::EndPool { .. } | Self::DeletePool { .. } => &["pool", "device"],
        }
    }

    /// Returns the stream of this operation, or 0 if it has none.
    pub fn stream(&self) -> u64 {
        match self {
            Self::Alloc { stream, .. } | Self::RecordStream { stream, .. } => *stream,
            _ => 0,
        }
    }

    /// Returns the id of the block that this operation concerns, or `None` if it concerns no block.
    pub fn id(&self) -> Option<&Value> {
        match self {
            Self::Alloc { id, .. } | Self::Free { id } | Self::RecordStream { id, .. } => Some(id),
            _ => None,
        }
    }
}
