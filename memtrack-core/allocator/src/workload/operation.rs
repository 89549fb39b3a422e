//! The operations of a workload.

use serde::Deserialize;
use serde_json::{Number, Value};

/// The first line: the devices.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Config {
    /// The number of devices.
    #[serde(default = "one")]
    pub devices: u16,
    /// Bytes of memory of each.
    pub total_bytes: u64,
    /// The settings at the start.
    #[serde(default)]
    pub settings: String,
    /// The share of each device's memory that may be used.
    #[serde(default)]
    pub fraction: Option<f64>,
}

fn one() -> u16 {
    1
}

/// One line after the first. A missing device or stream is 0.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Operation {
    /// Allocates.
    Alloc {
        /// Its name from now on.
        id: Value,
        /// Bytes.
        size: Number,
        /// For work on this stream.
        #[serde(default)]
        stream: u64,
        /// On this device.
        #[serde(default)]
        device: u16,
    },
    /// Frees.
    Free {
        /// The block.
        id: Value,
    },
    /// Records that another stream uses a block too.
    RecordStream {
        /// Which block.
        id: Value,
        /// Which stream.
        #[serde(default)]
        stream: u64,
    },
    /// Sets whether all streams' work counts as done from now on.
    EventsReady {
        /// Whether it is done.
        ready: bool,
    },
    /// Releases cached memory.
    EmptyCache,
    /// Resets peaks to the current values, on every device.
    ResetPeak,
    /// Resets sums to 0, on every device.
    ResetAccumulated,
    /// Limits the share of a device that may be used.
    SetFraction {
        /// The device.
        #[serde(default)]
        device: u16,
        /// The share.
        fraction: Number,
    },
    /// Changes settings.
    Settings {
        /// The string.
        value: String,
    },
    /// Reports the statistics of every device.
    Stats,
    /// Reports segments, blocks and settings.
    Snapshot {
        /// A name, for programs that write files.
        #[serde(default)]
        file: Option<String>,
    },
    /// Routes requests on a device to a pool, which is created the first time.
    BeginPool {
        /// The pool's name.
        pool: Value,
        /// The device.
        #[serde(default)]
        device: u16,
        /// Whether the default pool may use it when memory runs out.
        #[serde(default)]
        use_on_oom: bool,
        /// Whether its blocks are never split.
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
    /// Returns its name in the language.
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

    /// Returns the fields it may have in addition to `op`.
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
            // Its device is the one it was made for.
            Self::EndPool { .. } | Self::DeletePool { .. } => &["pool", "device"],
        }
    }

    /// Returns the stream it is for, or 0.
    pub fn stream(&self) -> u64 {
        match self {
            Self::Alloc { stream, .. } | Self::RecordStream { stream, .. } => *stream,
            _ => 0,
        }
    }

    /// Returns the id it names, if it names one.
    pub fn id(&self) -> Option<&Value> {
        match self {
            Self::Alloc { id, .. } | Self::Free { id } | Self::RecordStream { id, .. } => Some(id),
            _ => None,
        }
    }
}
