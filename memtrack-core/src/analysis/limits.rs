//! Limits for a gate: does a snapshot stay below the peak, the leak and the fragmentation that it may have?

use super::held::Held;
use super::lifetimes::{is_estimate, lifetimes};
use super::net::net;
use super::peak::Peak;
use super::units::{counted, estimated_bytes, human_bytes, human_share};
use crate::snapshot::Snapshot;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// With fewer events a verdict says so.
const FEW_EVENTS: u64 = 10;

/// What a device may come to; `None`: anything.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The highest requested bytes.
    pub peak: Option<u64>,
    /// Requested bytes live at the end that were allocated within the trace.
    pub leak: Option<u64>,
    /// Free bytes in split segments as a share of reserved ones, 0 to 1.
    pub fragmentation: Option<f64>,
}

/// What the worst device comes to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The highest requested bytes, and the device.
    pub peak: (u64, u16),
    /// Whether the peak is an estimate from samples.
    pub peak_estimated: bool,
    /// Requested bytes live at the end that were allocated within the trace, and the device.
    pub leak: (u64, u16),
    /// Whether those are an estimate from samples.
    pub leak_estimated: bool,
    /// The fragmentation, and the device.
    pub fragmentation: (f64, u16),
    /// What the devices are called, by their ordinals.
    pub names: BTreeMap<u16, String>,
    /// Events of all devices.
    pub events: u64,
    /// Blocks that are live at the end, and segments.
    pub held: u64,
    /// Older events that the recorder dropped.
    pub dropped: u64,
    /// Whether there is nothing but the heap, which cannot be fragmented as segments are.
    pub heap_alone: bool,
}

impl Found {
    /// The worst of all devices of a snapshot in PyTorch's form.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut found = Self {
            events: snapshot.events.len() as u64,
            held: (snapshot.blocks.len() + snapshot.segments.len()) as u64,
            dropped: snapshot.devices.iter().map(|device| device.dropped).sum(),
            heap_alone: snapshot.device_ids().into_iter().all(|device| snapshot.is_heap(device)),
            ..Self::default()
        };
        for device in snapshot.device_ids() {
            let (lifetimes, ordinal) = (lifetimes(snapshot, device), snapshot.ordinal(device));
            found.names.insert(ordinal, snapshot.device_name(device));
            let estimated = is_estimate(snapshot, device, &lifetimes);
            // What was handed out and not given back by the recorder's own count is there for certain.
            let certain =
                if estimated { net(snapshot, device).map_or(0, |net| net.bytes.max(0) as u64) } else { 0 };
            let peak = Peak::of(snapshot, &lifetimes).bytes.max(certain);
            let leaked = lifetimes.iter().filter(|lifetime| lifetime.from.is_some() && lifetime.to.is_none());
            let leak = leaked.fold(0u64, |sum, lifetime| sum.saturating_add(lifetime.bytes)).max(certain);
            // A heap's blocks lie in no segments that could be fragmented.
            let is_heap = snapshot.is_heap(device);
            let fragmentation = if is_heap { 0.0 } else { Held::of(snapshot, device).fragmentation() };
            if peak > found.peak.0 {
                (found.peak, found.peak_estimated) = ((peak, ordinal), estimated);
            }
            if leak > found.leak.0 {
                (found.leak, found.leak_estimated) = ((leak, ordinal), estimated);
            }
            if fragmentation > found.fragmentation.0 {
                found.fragmentation = (fragmentation, ordinal);
            }
        }
        found
    }

    /// Peak, leak and fragmentation in words.
    pub fn to_text(&self) -> String {
        let fragmentation = match self.heap_alone {
            true => String::new(),
            false => format!(", fragmentation {}", human_share(self.fragmentation.0)),
        };
        let peak = estimated_bytes(self.peak.0, self.peak_estimated);
        let leak = estimated_bytes(self.leak.0, self.leak_estimated);
        format!("peak {peak} requested, leak {leak} requested{fragmentation}")
    }

    /// Why one of the limits cannot be judged at all: there is nothing in the file that could exceed it. A gate must not
    /// open for that.
    pub fn blind(&self, limits: &Limits) -> Option<&'static str> {
        match (self.events, self.held) {
            (0, 0) => Some("it holds no events and no memory, so that there is nothing to check"),
            (0, _) if limits.leak.is_some() => {
                Some("it holds no events, so that a leak cannot be seen; record the history of memory")
            }
            _ if limits.fragmentation.is_some() && self.heap_alone => {
                Some("it holds nothing but the heap, which lies in no segments that could be fragmented")
            }
            _ => None,
        }
    }

    /// What a reader of the verdict should know: how little it may rest on.
    pub fn caveats(&self, limits: &Limits) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.events == 0 && limits.peak.is_some() {
            caveats.push("there are no events: the peak is what is live at the end".to_owned());
        } else if self.events < FEW_EVENTS && (limits.peak.is_some() || limits.leak.is_some()) {
            caveats.push(format!("there is little to judge by: {}", counted(self.events, "event")));
        }
        let judged = [(limits.peak, self.peak_estimated, "peak"), (limits.leak, self.leak_estimated, "leak")];
        for (_, _, name) in judged.into_iter().filter(|(limit, estimated, _)| limit.is_some() && *estimated) {
            caveats.push(format!(
                "the {name} is an estimate from samples of small blocks; record with Options::exact() to judge it to \
                 the byte"
            ));
        }
        if self.dropped > 0 {
            caveats.push(format!(
                "{} did not fit the ring: what they did is not judged",
                counted(self.dropped, "older event")
            ));
        }
        caveats
    }

    /// A line for each limit that is exceeded.
    pub fn exceeded(&self, limits: &Limits) -> Vec<String> {
        let mut lines = Vec::new();
        let called =
            |device: u16| self.names.get(&device).cloned().unwrap_or_else(|| format!("device {device}"));
        let bytes = |name, (found, device): (u64, u16), estimated, limit: Option<u64>| {
            let limit = limit.filter(|&limit| found > limit)?;
            let (shown, most) = (estimated_bytes(found, estimated), human_bytes(limit));
            let device = called(device);
            let mark = if estimated { "~" } else { "" };
            Some(format!(
                "{name} of {device}: {shown} requested ({mark}{found} bytes), limit {most} ({limit} bytes)"
            ))
        };
        lines.extend(bytes("peak", self.peak, self.peak_estimated, limits.peak));
        lines.extend(bytes("leak", self.leak, self.leak_estimated, limits.leak));
        let (share, device) = self.fragmentation;
        if let Some(limit) = limits.fragmentation.filter(|&limit| share > limit) {
            let (share, limit) = (human_share(share), human_share(limit));
            let device = called(device);
            lines.push(format!("fragmentation of {device}: {share}, limit {limit}"));
        }
        lines
    }

    /// The numbers beside their limits as JSON. Peak and leak are requested bytes.
    pub fn to_json(&self, limits: &Limits) -> Value {
        let bytes = |(found, device): (u64, u16), estimated: bool, limit: Option<u64>| {
            json!({
                "requested_bytes": found,
                "estimated": estimated,
                "device": device,
                "limit_bytes": limit,
            })
        };
        json!({
            "peak": bytes(self.peak, self.peak_estimated, limits.peak),
            "leak": bytes(self.leak, self.leak_estimated, limits.leak),
            "fragmentation": {
                "share": (!self.heap_alone).then_some(self.fragmentation.0),
                "device": self.fragmentation.1,
                "limit": limits.fragmentation,
            },
            "exceeded": self.exceeded(limits),
            "events": self.events,
            "caveats": self.caveats(limits),
        })
    }
}
