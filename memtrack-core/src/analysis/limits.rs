//! Limits for a gate: does a snapshot stay below the peak, the leak and the fragmentation that it may have?

use super::held::Held;
use super::lifetimes::lifetimes;
use super::peak::Peak;
use super::units::{human_bytes, human_share};
use crate::snapshot::Snapshot;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a device may come to; `None`: anything.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The highest allocated bytes.
    pub peak: Option<u64>,
    /// Bytes live at the end that were allocated within the trace.
    pub leak: Option<u64>,
    /// Free bytes in split segments as a share of reserved ones, 0 to 1.
    pub fragmentation: Option<f64>,
}

/// What the worst device comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The highest allocated bytes, and the device.
    pub peak: (u64, u16),
    /// Bytes live at the end that were allocated within the trace, and the device.
    pub leak: (u64, u16),
    /// The fragmentation, and the device.
    pub fragmentation: (f64, u16),
    /// What the devices are called, by their ordinals.
    pub names: BTreeMap<u16, String>,
}

impl Found {
    /// The worst of all devices of a snapshot in PyTorch's form.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut found = Self::default();
        for device in snapshot.device_ids() {
            let (lifetimes, ordinal) = (lifetimes(snapshot, device), snapshot.ordinal(device));
            found.names.insert(ordinal, snapshot.device_name(device));
            let peak = Peak::of(snapshot, &lifetimes).bytes;
            let leaked = lifetimes.iter().filter(|lifetime| lifetime.from.is_some() && lifetime.to.is_none());
            let leak = leaked.fold(0u64, |sum, lifetime| sum.saturating_add(lifetime.bytes));
            let fragmentation = Held::of(snapshot, device).fragmentation();
            if peak > found.peak.0 {
                found.peak = (peak, ordinal);
            }
            if leak > found.leak.0 {
                found.leak = (leak, ordinal);
            }
            if fragmentation > found.fragmentation.0 {
                found.fragmentation = (fragmentation, ordinal);
            }
        }
        found
    }

    /// A line for each limit that is exceeded.
    pub fn exceeded(&self, limits: &Limits) -> Vec<String> {
        let mut lines = Vec::new();
        let called =
            |device: u16| self.names.get(&device).cloned().unwrap_or_else(|| format!("device {device}"));
        let bytes = |name, (found, device): (u64, u16), limit: Option<u64>| {
            let limit = limit.filter(|&limit| found > limit)?;
            let (shown, most) = (human_bytes(found), human_bytes(limit));
            let device = called(device);
            Some(format!("{name} of {device}: {shown} ({found} bytes), limit {most} ({limit} bytes)"))
        };
        lines.extend(bytes("peak", self.peak, limits.peak));
        lines.extend(bytes("leak", self.leak, limits.leak));
        let (share, device) = self.fragmentation;
        if let Some(limit) = limits.fragmentation.filter(|&limit| share > limit) {
            let (share, limit) = (human_share(share), human_share(limit));
            let device = called(device);
            lines.push(format!("fragmentation of {device}: {share}, limit {limit}"));
        }
        lines
    }

    /// The numbers beside their limits as JSON.
    pub fn to_json(&self, limits: &Limits) -> Value {
        json!({
            "peak": { "bytes": self.peak.0, "device": self.peak.1, "limit_bytes": limits.peak },
            "leak": { "bytes": self.leak.0, "device": self.leak.1, "limit_bytes": limits.leak },
            "fragmentation": {
                "share": self.fragmentation.0,
                "device": self.fragmentation.1,
                "limit": limits.fragmentation,
            },
            "exceeded": self.exceeded(limits),
        })
    }
}
