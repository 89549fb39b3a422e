//! The tables made from a rank's digest. `memtrack ranks` computes its answers from the same digests, so SQL over these
//! tables returns the same numbers.

use crate::table::{Column, Kind, Rows, Table};
use memtrack_blocks::estimate::Estimate;
use memtrack_model::event::DeviceKind;
use memtrack_report::ranks::{DeviceDigest, GroupDigest, MomentDigest, RankDigest};

/// The ranks, one row each.
pub static RUNS: Table = Table {
    name: "runs",
    columns: &[
        Column::new("source", Kind::Text),
        Column::new("is_pytorch", Kind::Flag),
        Column::new("complete", Kind::Flag),
        Column::new("program", Kind::Text).nullable(),
        Column::new("pid", Kind::Long).nullable(),
        Column::new("world", Kind::Long).nullable(),
        Column::new("events", Kind::Long),
        Column::new("has_events", Kind::Flag),
        Column::new("seconds_since", Kind::Text),
        Column::new("begin_ns", Kind::Long).nullable(),
        Column::new("end_seconds", Kind::Double).nullable(),
        Column::new("step_name", Kind::Text).nullable(),
        Column::new("memtrack_version", Kind::Text),
        Column::new("dataset_version", Kind::Int),
    ],
};

/// The memory of each device of a rank at its peaks and at the end.
pub static DEVICES: Table = Table {
    name: "devices",
    columns: &[
        Column::new("device", Kind::Int),
        Column::new("name", Kind::Text),
        Column::new("is_host", Kind::Flag),
        Column::new("is_pinned", Kind::Flag),
        Column::new("is_mapped", Kind::Flag),
        Column::new("events", Kind::Long),
        Column::new("dropped_events", Kind::Long),
        Column::new("peak_bytes", Kind::Long),
        Column::new("peak_bytes_low", Kind::Long),
        Column::new("peak_bytes_high", Kind::Long),
        Column::new("peak_reserved_bytes", Kind::Long).nullable(),
        Column::new("peak_event", Kind::Long).nullable(),
        Column::new("peak_seconds", Kind::Double).nullable(),
        Column::new("peak_phase", Kind::Text).nullable(),
        Column::new("peak_operator", Kind::Text).nullable(),
        Column::new("reserved_bytes", Kind::Long).nullable(),
        Column::new("reserved_live_bytes", Kind::Long).nullable(),
        Column::new("reserved_live_bytes_low", Kind::Long).nullable(),
        Column::new("reserved_live_bytes_high", Kind::Long).nullable(),
        Column::new("reserved_event", Kind::Long).nullable(),
        Column::new("reserved_seconds", Kind::Double).nullable(),
        Column::new("waste_bytes", Kind::Long).nullable(),
        Column::new("end_bytes", Kind::Long),
        Column::new("end_bytes_low", Kind::Long),
        Column::new("end_bytes_high", Kind::Long),
        Column::new("end_blocks", Kind::Long),
        Column::new("end_allocated_bytes", Kind::Long).nullable(),
        Column::new("end_reserved_bytes", Kind::Long).nullable(),
        Column::new("out_of_memory", Kind::Long),
    ],
};

/// The maximum memory that a device held in each of several equal intervals.
pub static TIMELINE: Table = Table {
    name: "timeline",
    columns: &[
        Column::new("device", Kind::Int),
        Column::new("bin", Kind::Int).delta(),
        Column::new("begin_seconds", Kind::Double).nullable(),
        Column::new("end_seconds", Kind::Double).nullable(),
        Column::new("live_bytes", Kind::Long).delta(),
        Column::new("reserved_bytes", Kind::Long).nullable().delta(),
    ],
};

/// The largest holders of memory at the peak and at the end.
pub static GROUPS: Table = Table {
    name: "groups",
    columns: &[
        Column::new("device", Kind::Int),
        Column::new("moment", Kind::Text),
        Column::new("place", Kind::Int).delta(),
        Column::new("key", Kind::Text),
        Column::new("name", Kind::Text),
        Column::new("bytes", Kind::Long),
        Column::new("bytes_low", Kind::Long),
        Column::new("bytes_high", Kind::Long),
        Column::new("blocks", Kind::Long),
    ],
};

/// The steps that the program marked.
pub static STEPS: Table = Table {
    name: "steps",
    columns: &[
        Column::new("device", Kind::Int),
        Column::new("step", Kind::Long).delta(),
        Column::new("begin_seconds", Kind::Double).nullable(),
        Column::new("end_seconds", Kind::Double).nullable(),
        Column::new("peak_bytes", Kind::Long),
        Column::new("peak_reserved_bytes", Kind::Long).nullable(),
        Column::new("end_bytes", Kind::Long),
    ],
};

/// The moments at which memory ran out.
pub static OUT_OF_MEMORY: Table = Table {
    name: "out_of_memory",
    columns: &[
        Column::new("device", Kind::Int),
        Column::new("event", Kind::Long),
        Column::new("seconds", Kind::Double).nullable(),
        Column::new("size_bytes", Kind::Long),
        Column::new("free_bytes", Kind::Long).nullable(),
    ],
};

/// The version of the tables. It is incremented when a column is removed or changes its meaning, but not when a column
/// is added.
pub const DATASET_VERSION: u64 = 1;

/// Returns both ends of the interval that contains the true value with 95 % confidence. For an exact number, both ends
/// are the number itself.
fn confidence_interval(bytes: u64, error: &Estimate) -> (u64, u64) {
    if error.is_exact() { (bytes, bytes) } else { (error.low.round() as u64, error.high.round() as u64) }
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Returns the tables for a digest. `has_events` states whether the events table has rows, or is written without them.
pub(crate) fn build_tables(digest: &RankDigest, has_events: bool) -> Vec<(&'static Table, Rows)> {
    let mut devices = Rows::of(&DEVICES);
    let mut timeline = Rows::of(&TIMELINE);
    let mut groups = Rows::of(&GROUPS);
    let mut steps = Rows::of(&STEPS);
    let mut out_of_memory = Rows::of(&OUT_OF_MEMORY);
    for device in &digest.devices {
        add_device(&mut devices, device);
        add_timeline(&mut timeline, device, digest.end_seconds.is_some());
        add_groups(&mut groups, device, "peak", &device.at_peak);
        add_groups(&mut groups, device, "end", &device.at_end);
        let number = u64::from(device.ordinal);
        for step in &device.steps {
            steps.push([
                number.into(),
                step.number.into(),
                step.begin_seconds.into(),
                step.end_seconds.into(),
                step.peak_requested_bytes.into(),
                step.peak_reserved_bytes.into(),
                step.end_requested_bytes.into(),
            ]);
        }
        for moment in &device.out_of_memory {
            out_of_memory.push([
                number.into(),
                (moment.event as u64).into(),
                moment.seconds.into(),
                moment.requested_bytes.into(),
                moment.device_free_bytes.into(),
            ]);
        }
    }
    vec![
        (&RUNS, build_runs(digest, has_events)),
        (&DEVICES, devices),
        (&TIMELINE, timeline),
        (&GROUPS, groups),
        (&STEPS, steps),
        (&OUT_OF_MEMORY, out_of_memory),
    ]
}

fn build_runs(digest: &RankDigest, has_events: bool) -> Rows {
    let mut rows = Rows::of(&RUNS);
    rows.push([
        digest.file.as_str().into(),
        digest.is_pytorch.into(),
        digest.complete.into(),
        non_empty(&digest.program).into(),
        (digest.pid != 0).then_some(u64::from(digest.pid)).into(),
        digest.world.into(),
        digest.events.into(),
        has_events.into(),
        digest.since.name().into(),
        digest.begin_ns.into(),
        digest.end_seconds.into(),
        digest.step_name.as_deref().into(),
        env!("CARGO_PKG_VERSION").into(),
        DATASET_VERSION.into(),
    ]);
    rows
}

fn add_device(rows: &mut Rows, device: &DeviceDigest) {
    let of_reserved = device.reserved.as_ref();
    let event = |moment: &MomentDigest| moment.event.map(|event| event as u64);
    let (peak_low, peak_high) = confidence_interval(device.peak.requested_bytes, &device.peak.error);
    let live = of_reserved.map(|moment| confidence_interval(moment.requested_bytes, &moment.error));
    let (end_low, end_high) = confidence_interval(device.end.requested_bytes, &device.end.error);
    rows.push([
        u64::from(device.ordinal).into(),
        device.device.name.as_str().into(),
        device.device.kind.is_host().into(),
        (device.device.kind == DeviceKind::Pinned).into(),
        (device.device.kind == DeviceKind::Mapped).into(),
        device.events.into(),
        device.dropped.into(),
        device.peak.requested_bytes.into(),
        peak_low.into(),
        peak_high.into(),
        device.peak.reserved_bytes.into(),
        event(&device.peak).into(),
        device.peak.seconds.into(),
        device.peak.phase.as_deref().into(),
        device.peak.operator.as_deref().into(),
        of_reserved.and_then(|moment| moment.reserved_bytes).into(),
        of_reserved.map(|moment| moment.requested_bytes).into(),
        live.map(|(low, _)| low).into(),
        live.map(|(_, high)| high).into(),
        of_reserved.and_then(event).into(),
        of_reserved.and_then(|moment| moment.seconds).into(),
        device.waste_bytes.into(),
        device.end.requested_bytes.into(),
        end_low.into(),
        end_high.into(),
        device.end.blocks.into(),
        device.end.allocated_bytes.into(),
        device.end.reserved_bytes.into(),
        (device.out_of_memory.len() as u64).into(),
    ]);
}

fn add_timeline(rows: &mut Rows, device: &DeviceDigest, has_times: bool) {
    let line = &device.timeline;
    for (bin, &bytes) in line.requested_bytes.iter().enumerate() {
        let reserved = line.reserved_bytes.as_ref().and_then(|list| list.get(bin)).copied();
        let begin = |bin: usize| has_times.then_some(line.begin_seconds + bin as f64 * line.bin_seconds);
        rows.push([
            u64::from(device.ordinal).into(),
            (bin as u64).into(),
            begin(bin).into(),
            begin(bin + 1).into(),
            bytes.into(),
            reserved.into(),
        ]);
    }
}

fn add_groups(rows: &mut Rows, device: &DeviceDigest, moment: &'static str, groups: &[GroupDigest]) {
    for (place, group) in (1_u64..).zip(groups) {
        let (low, high) = confidence_interval(group.bytes, &group.error);
        rows.push([
            u64::from(device.ordinal).into(),
            moment.into(),
            place.into(),
            group.key.as_str().into(),
            group.name.as_str().into(),
            group.bytes.into(),
            low.into(),
            high.into(),
            group.blocks.into(),
        ]);
    }
}
