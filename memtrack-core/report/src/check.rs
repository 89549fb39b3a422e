//! Checks a snapshot against limits on its peak, leak and fragmentation, for `memtrack check`, a gate for CI. For a
//! number estimated from samples, the check takes the error into account: if the limit lies within the error, the
//! result is uncertain and the gate must not pass.

use crate::diff::PeakComparison;
use crate::process_memory::ProcessMemory;
use memtrack_blocks::estimate::{Estimate, Precision, Sum};
use memtrack_blocks::held::HeldMemory;
use memtrack_blocks::lifetimes::{Lifetime, is_estimate, lifetimes};
use memtrack_blocks::moment::Moment;
use memtrack_blocks::net::net;
use memtrack_blocks::peak::Peak;
use memtrack_blocks::reserved::has_held_bytes;
use memtrack_model::answer::{DeviceAnswer, DeviceKind, ErrorAnswer};
use memtrack_model::snapshot::Snapshot;
use memtrack_model::units::{counted, human_bytes, human_share};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// With fewer events than this, the verdict comes with a caveat.
const FEW_EVENTS: u64 = 10;

/// The number that stands for the heap and mapped memory together, and its name.
const WHOLE_PROCESS: u16 = u16::MAX;
const WHOLE_PROCESS_NAME: &str = "heap and mapped memory together";

/// With fewer unrecorded bytes than this, or a smaller share of the resident bytes, a process counts as recorded as a whole:
/// every process has stacks, data of libraries, and free memory that allocators keep.
const FEW_UNRECORDED_BYTES: u64 = 16 << 20;
const SMALL_UNRECORDED_SHARE: f64 = 0.25;

/// Limits that apply to each device; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Limits {
    /// The limit on the peak of requested bytes.
    pub peak: Option<u64>,
    /// The limit on requested bytes that are live at the end and were allocated within the trace.
    pub leak: Option<u64>,
    /// The limit on the free bytes in split segments, as a share of the reserved bytes from 0 to 1.
    pub fragmentation: Option<f64>,
}

impl Limits {
    /// Returns limits that are all unset.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the highest requested bytes of each device; `None` means no limit.
    #[must_use]
    pub fn peak(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.peak = bytes.into();
        self
    }

    /// Limits the requested bytes of each device that are live at the end and were allocated within the trace; `None`
    /// means no limit.
    #[must_use]
    pub fn leak(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.leak = bytes.into();
        self
    }

    /// Limits the free bytes in split segments, as a share of the reserved bytes from 0 to 1; `None` means no limit.
    #[must_use]
    pub fn fragmentation(mut self, share: impl Into<Option<f64>>) -> Self {
        self.fragmentation = share.into();
        self
    }
}

/// The result of comparing a number with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The number does not exceed the limit. For an estimate, the whole interval that contains the true value with 95 %
    /// confidence must be within the limit.
    Within,
    /// It is uncertain whether the number exceeds the limit, because the limit lies inside an estimate's interval or
    /// data is missing from the file.
    CannotTell,
    /// The number exceeds the limit. For an estimate, so does the whole interval.
    Exceeded,
}

impl Verdict {
    /// Returns the name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::CannotTell => "cannot_tell",
            Self::Exceeded => "exceeded",
        }
    }
}

/// A number of requested bytes measured for one device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Measurement {
    /// The device's ordinal in reports; 65,535 for the heap and mapped memory together.
    pub device: u16,
    /// The number of requested bytes, live at the peak or leaked.
    pub bytes: u64,
    /// The error of the requested bytes.
    pub error: Estimate,
}

impl Measurement {
    /// Compares the bytes with a limit.
    pub fn against(&self, limit: u64) -> Verdict {
        let (low, high) = self.interval();
        match (low > limit, high > limit) {
            (true, _) => Verdict::Exceeded,
            (_, true) => Verdict::CannotTell,
            _ => Verdict::Within,
        }
    }

    /// Returns the interval that contains the true value with 95 % confidence. For an exact number, both ends equal
    /// that number.
    fn interval(&self) -> (u64, u64) {
        match self.error.is_exact() {
            true => (self.bytes, self.bytes),
            false => (self.error.low.floor() as u64, self.error.high.ceil() as u64),
        }
    }

    /// Formats the interval as text.
    fn format_range(&self) -> String {
        let (low, high) = self.interval();
        if self.error.counted || self.error.high.is_infinite() {
            return self.error.as_bytes(self.bytes);
        }
        format!("{} to {} with 95 % confidence", human_bytes(low), human_bytes(high))
    }
}

/// The numbers from a snapshot that the limits apply to.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Measurements {
    /// The highest requested bytes of each device.
    pub peaks: Vec<Measurement>,
    /// For each device, the requested bytes that are live at the end and were allocated within the trace.
    pub leaks: Vec<Measurement>,
    /// The highest fragmentation of any device, and that device's ordinal.
    pub fragmentation: (f64, u16),
    /// The device names by ordinal.
    pub names: BTreeMap<u16, String>,
    /// The total number of events across all devices.
    pub events: u64,
    /// The number of blocks that are live at the end plus the number of segments.
    pub stored_items: u64,
    /// The number of blocks that were allocated during the recording.
    pub allocations: u64,
    /// Requested bytes that are live at the end and older than the recording.
    pub older_bytes: u64,
    /// The number of older events that the recorder dropped.
    pub dropped: u64,
    /// Whether any device has segments, which can be fragmented; the heap and mapped memory have none.
    pub has_segments: bool,
    /// Whether the recording is complete. If not, the true peaks and leaks are at least as large as these numbers.
    pub complete: bool,
    /// The bytes of the process that were resident and are neither recorded nor pages of files, and the highest number of
    /// resident bytes that are not pages of files; zeros if they are unknown.
    pub unrecorded: (u64, u64),
    /// Whether the file omits a device's segments, so that the device's fragmentation is unknown.
    pub segments_missing: bool,
}

impl Measurements {
    /// Measures every device in a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let mut found = Self {
            stored_items: (snapshot.blocks.len() + snapshot.segments.len()) as u64,
            dropped: snapshot.devices.iter().map(|device| device.dropped).sum(),
            complete: snapshot.meta.complete,
            has_segments: snapshot
                .device_ids()
                .into_iter()
                .any(|device| snapshot.device_kind(device).has_segments()),
            ..Self::default()
        };
        if let Some(memory) = ProcessMemory::of(snapshot) {
            if memory.heap.is_some() && memory.mapped.is_some() {
                let (bytes, error) = (memory.together.bytes, memory.together.error);
                found.peaks.push(Measurement { device: WHOLE_PROCESS, bytes, error });
                found.names.insert(WHOLE_PROCESS, WHOLE_PROCESS_NAME.to_owned());
            }
            let resident = memory.max_anonymous_bytes.unwrap_or(0);
            found.unrecorded = (memory.unrecorded_bytes().unwrap_or(0), resident);
        }
        for id in snapshot.devices_by_ordinal() {
            found.events += Moment::events(snapshot, id) as u64;
            let (lifetimes, device) = (lifetimes(snapshot, id), snapshot.ordinal(id));
            found.names.insert(device, snapshot.device_name(id));
            let precision = Precision::of(snapshot, id, &lifetimes);
            // The recorder's net count (all allocations minus all frees) is a lower bound on the memory that is held.
            let estimated = is_estimate(snapshot, id, &lifetimes);
            let certain =
                if estimated { net(snapshot, id).map_or(0, |net| net.bytes.max(0) as u64) } else { 0 };
            let measured = |bytes: u64, error: Estimate| Measurement {
                device,
                bytes: bytes.max(certain),
                error: error.at_least(certain as f64),
            };
            let peak = Peak::of(snapshot, id, &lifetimes);
            found.peaks.push(Measurement { device, bytes: peak.bytes, error: peak.error });
            let is_leaked = |one: &&Lifetime| one.from.is_some() && one.to.is_none();
            found.allocations += lifetimes.iter().filter(|one| one.from.is_some()).count() as u64;
            let is_older = |one: &&Lifetime| one.from.is_none() && one.to.is_none();
            let older = lifetimes.iter().filter(is_older).map(|one| one.bytes);
            found.older_bytes = older.fold(found.older_bytes, u64::saturating_add);
            let (mut bytes, mut sum) = (0u64, Sum::default());
            for one in lifetimes.iter().filter(is_leaked) {
                bytes = bytes.saturating_add(one.bytes);
                sum.add(one.size_bytes as f64, one.blocks);
            }
            // Leaked bytes cannot exceed the most bytes that were ever live.
            let most = if estimated { peak.recorded.high } else { f64::INFINITY };
            let error = precision.bytes(&sum).at_most(most);
            let bytes = if most.is_finite() { bytes.min(most.ceil() as u64) } else { bytes };
            let mut leak = measured(bytes, error);
            leak.error = leak.error.with_completeness(found.complete);
            found.leaks.push(leak);
            let has_segments = snapshot.device_kind(id).has_segments();
            found.segments_missing |= has_segments && !has_held_bytes(snapshot, id);
            let fragmentation = if has_segments { HeldMemory::of(snapshot, id).fragmentation() } else { 0.0 };
            if fragmentation > found.fragmentation.0 {
                found.fragmentation = (fragmentation, device);
            }
        }
        found
    }

    /// Returns whether the highest fragmentation is known.
    fn knows_fragmentation(&self) -> bool {
        self.has_segments && (!self.segments_missing || self.fragmentation.0 > 0.0)
    }

    /// Returns the peak of the worst device. Without a limit, that is the device with the highest peak. With a limit,
    /// it is the one with the worst verdict.
    pub fn peak(&self, limit: Option<u64>) -> Measurement {
        worst_measurement(&self.peaks, limit)
    }

    /// Returns the leak of the worst device, chosen as for [`Self::peak`].
    pub fn leak(&self, limit: Option<u64>) -> Measurement {
        worst_measurement(&self.leaks, limit)
    }

    /// Formats the peak, the leak and the fragmentation.
    pub fn to_text(&self) -> String {
        let fragmentation = match self.knows_fragmentation() {
            false => String::new(),
            true => format!(", fragmentation {}", human_share(self.fragmentation.0)),
        };
        let shown = |found: Measurement| found.error.as_bytes(found.bytes);
        let (peak, leak) = (shown(self.peak(None)), shown(self.leak(None)));
        format!("peak {peak} requested, leak {leak} requested{fragmentation}")
    }

    /// Returns the reason why a limit cannot be checked: the data that the file lacks. Returns `None` if all limits can
    /// be checked. If one cannot, a gate must not pass.
    pub fn unchecked_reason(&self, limits: &Limits) -> Option<&'static str> {
        match (self.events, self.stored_items) {
            (0, 0) => Some("it holds no events and no memory, so there is nothing to check"),
            (0, _) if limits.leak.is_some() => {
                Some("it holds no events, so leaks cannot be detected; record the memory history")
            }
            _ if limits.leak.is_some() && self.allocations == 0 && self.older_bytes > 0 => Some(
                "nothing in it was allocated while it was recorded, so leaks cannot be detected; record \
                 for longer",
            ),
            _ if limits.fragmentation.is_some() && !self.has_segments => {
                Some("it holds only memory without segments, which cannot be fragmented")
            }
            _ if limits.fragmentation.is_some() && self.segments_missing => {
                Some("it has no segments, so fragmentation is unknown")
            }
            _ => None,
        }
    }

    /// Returns caveats about the data on which the verdict is based.
    pub fn caveats(&self, limits: &Limits) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.events == 0 && limits.peak.is_some() {
            caveats.push("there are no events: the peak is what is live at the end".to_owned());
        } else if self.events < FEW_EVENTS && (limits.peak.is_some() || limits.leak.is_some()) {
            caveats.push(format!("there is little to judge by: {}", counted(self.events, "event")));
        }
        if self.older_bytes > 0 && limits.leak.is_some() {
            let older = human_bytes(self.older_bytes);
            caveats.push(format!("{older} are older than the recording: whether they leak is not checked"));
        }
        if !self.complete {
            caveats.push(
                "the recording was not ended (the program was killed or still runs, or the file is \
                 truncated): later events are missing, so the true numbers may be higher"
                    .to_owned(),
            );
        }
        let judged =
            [(limits.peak, self.peak(limits.peak), "peak"), (limits.leak, self.leak(limits.leak), "leak")];
        for (_, found, name) in
            judged.iter().filter(|(limit, found, _)| limit.is_some() && !found.error.is_exact())
        {
            // This number has no upper bound because the end of the recording is missing. There is a caveat about that
            // already.
            if found.error.high.is_infinite() && !found.error.counted {
                continue;
            }
            if found.error.counted {
                caveats.push(format!(
                    "small blocks were sampled, so the {name} is the recorder's count: {}; record with \
                     Options::exact() to check it to the byte",
                    found.format_range()
                ));
                continue;
            }
            caveats.push(format!(
                "the {name} is an estimate from samples of small blocks, {}; record with Options::exact() \
                 to check it to the byte",
                found.format_range()
            ));
        }
        if self.dropped > 0 {
            caveats.push(format!(
                "{} did not fit the ring: their effect is not checked",
                counted(self.dropped, "older event")
            ));
        }
        caveats
    }

    /// Returns a line for each limit that is exceeded.
    pub fn exceeded(&self, limits: &Limits) -> Vec<String> {
        let mut lines = self.verdict_lines(limits, Verdict::Exceeded);
        let (share, device) = self.fragmentation;
        if let Some(limit) = limits.fragmentation.filter(|&limit| share > limit) {
            let (share, limit) = (human_share(share), human_share(limit));
            let device = self.device_name(device);
            lines.push(format!("fragmentation of {device}: {share}, limit {limit}"));
        }
        lines
    }

    /// Returns a line for each limit that may be exceeded, either because it lies within an estimate's error or because
    /// the recording is incomplete.
    pub fn cannot_tell(&self, limits: &Limits) -> Vec<String> {
        let mut lines = self.verdict_lines(limits, Verdict::CannotTell);
        lines.extend(self.unseen_line(limits));
        let (share, device) = self.fragmentation;
        if let Some(limit) = limits.fragmentation.filter(|&limit| share <= limit && !self.complete) {
            let (share, limit) = (human_share(share), human_share(limit));
            let device = self.device_name(device);
            lines.push(format!(
                "fragmentation of {device}: {share} so far, limit {limit}; the recording was not ended"
            ));
        }
        lines
    }

    /// Returns the line about memory of the process that the recording does not contain, if this memory decides whether the
    /// limit on the peak is met.
    fn unseen_line(&self, limits: &Limits) -> Option<String> {
        let limit = limits.peak?;
        let (unrecorded, resident) = self.unrecorded;
        let is_much = unrecorded >= FEW_UNRECORDED_BYTES
            && unrecorded as f64 >= resident as f64 * SMALL_UNRECORDED_SHARE;
        let decides = resident > limit && self.peak(Some(limit)).against(limit) != Verdict::Exceeded;
        (is_much && decides).then(|| {
            let [unrecorded, resident, limit_text] = [unrecorded, resident, limit].map(human_bytes);
            format!(
                "peak of the process: {unrecorded} of {resident} resident outside of files are not recorded (memory that an \
                 allocator took without the C library, stacks, or free memory that allocators keep), limit {limit_text} \
                 ({limit} bytes)"
            )
        })
    }

    /// Returns a line for each byte limit for which the worst device has the given verdict.
    fn verdict_lines(&self, limits: &Limits, verdict: Verdict) -> Vec<String> {
        let line = |name: &str, found: Measurement, limit: Option<u64>| {
            let limit = limit.filter(|&limit| found.against(limit) == verdict)?;
            let device = self.device_name(found.device);
            let shown = match verdict {
                Verdict::Exceeded => found.error.format_at_least_bytes(found.bytes),
                _ => found.error.as_bytes(found.bytes),
            };
            let lacks_end = verdict == Verdict::CannotTell && found.error.high.is_infinite();
            let more = match (found.error.is_exact(), verdict) {
                (true, _) => format!(" ({} bytes)", found.bytes),
                (_, Verdict::CannotTell) if !found.error.counted && !lacks_end => {
                    format!(", {}", found.format_range())
                }
                _ => String::new(),
            };
            let why = if lacks_end && !self.complete { "; the recording was not ended" } else { "" };
            Some(format!(
                "{name} of {device}: {shown} requested{more}, limit {} ({limit} bytes){why}",
                human_bytes(limit)
            ))
        };
        let peak = line("peak", self.peak(limits.peak), limits.peak);
        peak.into_iter().chain(line("leak", self.leak(limits.leak), limits.leak)).collect()
    }

    fn device_name(&self, device: u16) -> String {
        self.names.get(&device).cloned().unwrap_or_else(|| format!("device {device}"))
    }

    /// Returns the numbers with their limits, as `memtrack check --json` prints them.
    pub fn answer(&self, limits: &Limits) -> FoundAnswer {
        let device = |device: u16| match device {
            WHOLE_PROCESS => {
                DeviceAnswer { number: None, kind: DeviceKind::Host, name: WHOLE_PROCESS_NAME.to_owned() }
            }
            device => DeviceAnswer::from_name(&self.device_name(device)),
        };
        let bytes = |found: Measurement, limit: Option<u64>| MeasuredAnswer {
            device: device(found.device),
            requested_bytes: found.bytes,
            requested_bytes_error: found.error.answer(),
            estimated: !found.error.is_exact(),
            limit_bytes: limit,
            verdict: limit.map(|limit| found.against(limit)),
        };
        let verdict = |limit| match self.fragmentation.0 > limit {
            true => Verdict::Exceeded,
            false if self.segments_missing || !self.complete => Verdict::CannotTell,
            false => Verdict::Within,
        };
        FoundAnswer {
            exceeded: self.exceeded(limits),
            cannot_tell: self.cannot_tell(limits),
            peak: bytes(self.peak(limits.peak), limits.peak),
            leak: bytes(self.leak(limits.leak), limits.leak),
            fragmentation: FragmentationAnswer {
                device: self.knows_fragmentation().then(|| device(self.fragmentation.1)),
                share: self.knows_fragmentation().then_some(self.fragmentation.0),
                limit: limits.fragmentation,
                verdict: limits.fragmentation.map(verdict),
            },
            events: self.events,
            complete: self.complete,
            caveats: self.caveats(limits),
            against: None,
        }
    }

    /// Returns the numbers with their limits as JSON.
    pub fn to_json(&self, limits: &Limits) -> Value {
        serde_json::to_value(self.answer(limits)).unwrap_or_default()
    }
}

// This is another form than `Measurements`, which has the numbers of all devices: the limits determine the worst of them.
/// The numbers measured in a file, each with its limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FoundAnswer {
    /// A line of text for each limit that is exceeded.
    pub exceeded: Vec<String>,
    /// A line of text for each limit that may be exceeded, either because it lies within an estimate's margin of error
    /// or because the recording is incomplete.
    pub cannot_tell: Vec<String>,
    /// The peak of the requested bytes on the worst device. That is the device with the worst verdict or, if there is
    /// no limit or the verdicts are equal, the one with the highest peak.
    pub peak: MeasuredAnswer,
    /// The requested bytes that were allocated within the trace and are live at its end, on the worst device. The worst
    /// device is chosen as for the peak.
    pub leak: MeasuredAnswer,
    /// The free bytes in split segments as a share of the reserved bytes, on the device where this share is largest.
    pub fragmentation: FragmentationAnswer,
    /// The total number of events in the file, across all devices.
    pub events: u64,
    /// Whether the recording is complete. If not, the numbers are lower bounds, and it is uncertain whether the limits
    /// are met.
    pub complete: bool,
    /// Caveats about the data on which the verdicts are based, as text.
    pub caveats: Vec<String>,
    /// The comparison of the peaks with those of another file, or null if `--against` was not given.
    pub against: Option<PeakComparison>,
}

/// The peak or the leak of one device, with its limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct MeasuredAnswer {
    /// The device on which the bytes were measured. The heap and mapped memory of a process together have the name
    /// `heap and mapped memory together`.
    pub device: DeviceAnswer,
    /// The requested bytes of the peak or the leak.
    pub requested_bytes: u64,
    /// The margin of error of the requested bytes, or null if they are exact.
    pub requested_bytes_error: Option<ErrorAnswer>,
    /// Whether the requested bytes are an estimate.
    pub estimated: bool,
    /// The limit on the requested bytes; null if none was given.
    pub limit_bytes: Option<u64>,
    /// The result of comparing the bytes with the limit; null if there is no limit.
    pub verdict: Option<Verdict>,
}

/// The fragmentation of the most fragmented device, with its limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct FragmentationAnswer {
    /// The most fragmented device; null if the file has no segments or only a heap, which has no segments that could be
    /// fragmented.
    pub device: Option<DeviceAnswer>,
    /// The free bytes in split segments as a share of the reserved bytes, from 0 to 1; null if the device is null.
    pub share: Option<f64>,
    /// The limit on this share, from 0 to 1; null if none was given.
    pub limit: Option<f64>,
    /// The result of comparing the share with the limit; null if there is no limit.
    pub verdict: Option<Verdict>,
}

/// Returns the number with the worst verdict, or the largest number if verdicts are equal or there is no limit.
fn worst_measurement(all: &[Measurement], limit: Option<u64>) -> Measurement {
    let verdict = |found: &Measurement| limit.map(|limit| found.against(limit));
    // `max_by_key` returns the last of several equal numbers. Reverse the order to get the first.
    let worst = all.iter().rev().max_by_key(|found| (verdict(found), found.bytes));
    worst.copied().unwrap_or_default()
}
