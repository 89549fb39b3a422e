//! A device on the command line.

use clap::Args;
use memtrack_core::event::DeviceKind;
use std::fmt;

/// The device that a report covers.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Only this device: its number, host (the heap), mapped (memory that the program mapped itself) or
    /// pinned (pinned host memory)
    #[arg(long, value_name = "DEVICE", value_parser = parse_device, allow_hyphen_values = true)]
    pub(crate) device: Option<DeviceSelector>,
}

/// The requested device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeviceSelector {
    /// The device with this number in reports.
    Ordinal(u16),
    /// The only device of this kind.
    Kind(DeviceKind),
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ordinal(ordinal) => write!(f, "device {ordinal}"),
            Self::Kind(kind) => f.write_str(kind.name().unwrap_or("device")),
        }
    }
}

/// Returns the name of the only device of a kind on the command line; `None` for devices that are numbered.
pub(crate) fn selector_name(kind: DeviceKind) -> Option<&'static str> {
    match kind {
        DeviceKind::Device => None,
        DeviceKind::Host => Some("host"),
        DeviceKind::Mapped => Some("mapped"),
        DeviceKind::Pinned => Some("pinned"),
    }
}

/// Parses a device, ignoring case. Also accepts the form that reports print.
pub(crate) fn parse_device(text: &str) -> Result<DeviceSelector, String> {
    let lower = text.trim().to_ascii_lowercase();
    let is_named = |kind: &DeviceKind| {
        let names = [selector_name(*kind), kind.name()];
        names.into_iter().flatten().any(|name| name == lower)
    };
    if let Some(kind) = DeviceKind::ALL.into_iter().find(is_named) {
        return Ok(DeviceSelector::Kind(kind));
    }
    let number = lower.strip_prefix("device ").unwrap_or(&lower).parse();
    number.map(DeviceSelector::Ordinal).map_err(|_| "write a device's number, host, mapped or pinned".into())
}
