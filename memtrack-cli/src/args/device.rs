//! A device on the command line.

use clap::Args;
use std::fmt;

/// The device that a report covers.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Only this device: its number, host (the heap) or pinned (pinned host memory)
    #[arg(long, value_name = "DEVICE", value_parser = parse_device, allow_hyphen_values = true)]
    pub(crate) device: Option<DeviceSelector>,
}

/// The requested device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceSelector {
    /// The device with this number in reports.
    Ordinal(u16),
    /// The host heap.
    Host,
    /// Pinned host memory.
    Pinned,
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordinal(ordinal) => write!(f, "device {ordinal}"),
            Self::Host => f.write_str("host heap"),
            Self::Pinned => f.write_str("pinned host memory"),
        }
    }
}

/// Parses a device, ignoring case. Also accepts the form that reports print.
pub(crate) fn parse_device(text: &str) -> Result<DeviceSelector, String> {
    let lower = text.trim().to_ascii_lowercase();
    match lower.as_str() {
        "host" | "host heap" => Ok(DeviceSelector::Host),
        "pinned" | "pinned host memory" => Ok(DeviceSelector::Pinned),
        other => {
            let number = other.strip_prefix("device ").unwrap_or(other);
            number
                .parse()
                .map(DeviceSelector::Ordinal)
                .map_err(|_| "write a device's number, host or pinned".into())
        }
    }
}
