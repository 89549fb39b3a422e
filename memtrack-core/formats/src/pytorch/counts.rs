//! The recorder's data about an entire recording and its devices, as stored in PyTorch's files: the start of the
//! recording, the devices that are the process's heap and its mapped memory, the sampling parameters, the exact counts,
//! the items that did not fit into the recorder's tables, and the CUDA driver's readings.
//!
//! `allocator_settings.memtrack.start_us`, `.heap` and `.mapped` are numbers. `.sampling`, `.sampled` and `.folded` are records,
//! and `.counts` is a list of records with the names of [`DeviceStatistics`]' fields; pinned memory is device
//! 65535. If the heap's peak was counted, there is also a record `.counted_peak`, with times in microseconds since the
//! start. `.incomplete` is present if the recording was not finished. `.driver` is a list of readings, each of which is a
//! record with the names of [`DriverReading`]'s fields.

use super::convert::MAX_WRITTEN_INTEGER;
use super::settings::{memtrack_part, read_record, record_to_value};
use super::{Key, StringInterner};
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::pytorch::PyTorch;
use memtrack_model::snapshot::{
    Clock, CountedPeak, DeviceStatistics, DriverReading, Folded, Meta, Snapshot, Value,
};
use serde::{Deserialize, Serialize};

/// The parameters used for sampling a heap.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Sampling {
    threshold_bytes: u64,
    mean_bytes: u64,
    block_bytes: u64,
    budget: f64,
}

/// A [`CountedPeak`] as stored in a file. Each moment is given by its time and the number of events before it.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct FilePeak {
    bytes: u64,
    most_bytes: u64,
    after_us: u64,
    since_us: u64,
    until_us: u64,
    events: u64,
    since_events: u64,
    until_events: u64,
}

impl FilePeak {
    fn of(peak: &CountedPeak, start: u64) -> Option<Self> {
        let [events, since_events, until_events] = peak.events_before?;
        let [after_us, since_us, until_us] =
            [peak.ticks, peak.since_ticks, peak.until_ticks].map(|ticks| ticks.saturating_sub(start));
        let (bytes, most_bytes) = (peak.bytes, peak.most_bytes);
        Some(Self { bytes, most_bytes, after_us, since_us, until_us, events, since_events, until_events })
    }

    fn to_counted_peak(&self, start: u64) -> CountedPeak {
        let ticks = |after: u64| start.saturating_add(after);
        CountedPeak {
            ticks: ticks(self.after_us),
            bytes: self.bytes,
            most_bytes: self.most_bytes,
            since_ticks: ticks(self.since_us),
            until_ticks: ticks(self.until_us),
            events_before: Some([self.events, self.since_events, self.until_events]),
        }
    }
}

/// Returns all settings that this module stores, with their names. `from` is the recording that was converted to the
/// snapshot `to`, of which `pytorch` becomes a part.
pub(super) fn counts_to_values(
    from: &Snapshot,
    to: &Snapshot,
    pytorch: &PyTorch,
    strings: &mut StringInterner,
) -> [(&'static str, Option<Value>); 9] {
    let start_us = pytorch.start_us;
    let place = |device: Option<DeviceId>| device.map(|device| Value::integer(device.0.into()));
    let number = |number: u64| Value::integer(number.min(MAX_WRITTEN_INTEGER).into());
    let peak = to.counted_peak.zip(start_us).and_then(|(peak, start)| FilePeak::of(&peak, start));
    let is_folded = from.folded != Folded::default();
    [
        ("start_us", start_us.map(number)),
        ("incomplete", (!from.meta.complete && start_us.is_some()).then_some(Value::Int(1))),
        ("heap", place(pytorch.heap)),
        ("mapped", place(pytorch.mapped)),
        ("sampling", sampling_to_value(&from.meta, strings)),
        (
            "sampled",
            from.sampling.as_ref().map(|sampling| record_to_value(sampling, MAX_WRITTEN_INTEGER, strings)),
        ),
        ("counted_peak", peak.map(|peak| record_to_value(&peak, MAX_WRITTEN_INTEGER, strings))),
        ("folded", is_folded.then(|| record_to_value(&from.folded, MAX_WRITTEN_INTEGER, strings))),
        ("counts", statistics_to_value(&to.devices, strings)),
    ]
}

/// Returns the sampling parameters, or `None` if every block was recorded.
fn sampling_to_value(meta: &Meta, strings: &mut StringInterner) -> Option<Value> {
    let sampling = Sampling {
        threshold_bytes: meta.sample_threshold_bytes,
        mean_bytes: meta.sample_mean_bytes,
        block_bytes: meta.sample_block_bytes,
        budget: meta.budget,
    };
    (sampling.threshold_bytes > 0).then(|| record_to_value(&sampling, MAX_WRITTEN_INTEGER, strings))
}

/// Returns the counts, with device numbers as in the file, or `None` if nothing was counted.
fn statistics_to_value(devices: &[DeviceStatistics], strings: &mut StringInterner) -> Option<Value> {
    let counted = devices.iter().filter(|row| row.counted);
    let counts: Vec<Value> = counted.map(|row| record_to_value(row, MAX_WRITTEN_INTEGER, strings)).collect();
    (!counts.is_empty()).then(|| Value::List(counts.into()))
}

/// Restores the data of these settings in a snapshot that was written by memtrack.
pub(super) fn restore(snapshot: &mut Snapshot) {
    let Some(pytorch) = snapshot.pytorch.as_deref_mut() else { return };
    let strings = &snapshot.strings;
    let Some(settings) = pytorch.root_value(Key::AllocatorSettings) else { return };
    let part = |name| memtrack_part(settings, name, strings);
    let number = |name| part(name).and_then(Value::as_i128).and_then(|number| u64::try_from(number).ok());
    let sampling = part("sampling").and_then(|value| read_record::<Sampling>(value, strings));
    if let Some(sampling) = sampling {
        snapshot.meta.sample_threshold_bytes = sampling.threshold_bytes;
        snapshot.meta.sample_mean_bytes = sampling.mean_bytes;
        snapshot.meta.sample_block_bytes = sampling.block_bytes;
        snapshot.meta.budget = sampling.budget;
    }
    snapshot.sampling = part("sampled").and_then(|value| read_record(value, strings));
    snapshot.folded = part("folded").and_then(|value| read_record(value, strings)).unwrap_or_default();
    snapshot.meta.complete = part("incomplete").is_none();
    if let Some(Value::List(counts)) = part("counts") {
        for counts in counts.iter().take(snapshot.devices.len()) {
            let Some(counts) = read_record::<DeviceStatistics>(counts, strings) else { continue };
            if let Some(row) = snapshot.devices.iter_mut().find(|row| row.device == counts.device) {
                *row = counts;
            }
        }
    }
    let place = |name| {
        let device = number(name).and_then(|device| u16::try_from(device).ok());
        device.filter(|&device| usize::from(device) < pytorch.traces.len()).map(DeviceId)
    };
    let (heap, mapped) = (place("heap"), place("mapped"));
    // A start that is later than an event is invalid.
    let start = number("start_us").filter(|&start| snapshot.events.ticks.iter().all(|&ticks| start <= ticks));
    let peak = part("counted_peak").and_then(|value| read_record::<FilePeak>(value, strings));
    pytorch.heap = heap;
    pytorch.mapped = mapped.filter(|_| mapped != heap);
    snapshot.counted_peak = None;
    if let Some(start) = start {
        pytorch.start_us = Some(start);
        snapshot.counted_peak = peak.filter(|_| heap.is_some()).map(|peak| peak.to_counted_peak(start));
        snapshot.clock = Clock::of_microseconds(start);
    }
}

/// Returns the readings as a value, or `None` if there are none.
pub(super) fn readings_to_value(readings: &[DriverReading], strings: &mut StringInterner) -> Option<Value> {
    let readings: Vec<Value> =
        readings.iter().map(|reading| record_to_value(reading, u64::MAX, strings)).collect();
    (!readings.is_empty()).then(|| Value::List(readings.into()))
}

/// Restores the readings in a snapshot that was written by memtrack.
pub(super) fn restore_readings(snapshot: &mut Snapshot) {
    let Some(pytorch) = snapshot.pytorch.as_deref() else { return };
    let strings = &snapshot.strings;
    let setting =
        pytorch.root_value(Key::AllocatorSettings).and_then(|all| memtrack_part(all, "driver", strings));
    let Some(Value::List(readings)) = setting else { return };
    let read =
        readings.iter().take(DriverReading::MAX_COUNT).filter_map(|reading| read_record(reading, strings));
    let read = read.filter(|reading: &DriverReading| reading.device.is_accelerator());
    snapshot.driver = read.collect();
}
