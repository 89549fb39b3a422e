//! `trace` as JSON, event by event, with the names from the listing and the content of the events.

use super::blocks::Blocks;
use super::inconsistencies::Inconsistencies;
use super::replay::{ContainingSegment, FinalSegments, Name, Replay, Step};
use super::stacks::Stacks;
use super::stats::format_address;
use memtrack_model::answer::{DeviceAnswer, FrameAnswer, WideAnswer};
use memtrack_model::event::{Action, DeviceId};
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use serde::Serialize;
use std::io::{self, Write};

/// The output of `memtrack trace --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct TraceAnswer {
    /// The devices, each with its events.
    pub devices: Vec<DeviceTraceAnswer>,
}

/// The events of one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct DeviceTraceAnswer {
    /// The device.
    pub device: DeviceAnswer,
    /// The device's events, in the order in which they appear in the file.
    pub entries: Vec<EntryAnswer>,
}

/// An event in a device's trace. Keys that do not apply to the event's action are null.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct EntryAnswer {
    /// The event's action, named as in the file.
    pub action: String,
    /// The address of the block or segment, as `0x…`; null for an out-of-memory event.
    pub address: Option<String>,
    /// For an out-of-memory event, the free bytes of the device; null for other events.
    pub device_free_bytes: Option<WideAnswer>,
    /// The size of the block or segment in bytes; for an out-of-memory event, the requested bytes.
    pub size_bytes: WideAnswer,
    /// The raw handle of the event's stream.
    pub stream: u64,
    /// The time of the event in µs; null if the file has none.
    pub time_us: Option<u64>,
    /// The name of the block or segment in the listing of events, as in `a` or `b1`.
    pub name: Option<String>,
    /// For an allocation, the name of the segment that contains the block; null if that segment is unknown.
    pub segment: Option<String>,
    /// For an allocation, the block's offset within its segment in bytes, or its address if the segment is unknown.
    pub offset_bytes: Option<WideAnswer>,
    /// The text that the program attached to the event; null if there is none.
    pub user_metadata: Option<String>,
    /// The event's stack, innermost frame first, without the frames that PyTorch hides; null if there is none.
    pub stack: Option<Vec<FrameAnswer>>,
}

/// Writes the events of all devices as one JSON object with one event per line. The object is a [`TraceAnswer`] with an
/// additional key that names its `schema`.
///
/// # Errors
/// Fails when `out` cannot be written.
pub fn trace_json(
    snapshot: &PytorchSnapshot,
    schema: &str,
    out: &mut impl Write,
) -> io::Result<Inconsistencies> {
    let blocks = Blocks::of(snapshot);
    let mut odd = Inconsistencies::default();
    let final_segments = FinalSegments::of(blocks, &mut odd);
    let mut stacks = Stacks::of(snapshot);
    write!(out, "{{\"schema\": \"{schema}\", \"devices\": [")?;
    for (number, rows) in blocks.pytorch.traces.iter().enumerate() {
        let device = DeviceId(u16::try_from(number).unwrap_or(u16::MAX));
        let kind = snapshot.device_kind(device);
        let name = kind.name().map_or_else(|| format!("device {number}"), str::to_owned);
        let between = if number > 0 { "," } else { "" };
        write!(out, "{between}\n{{\"device\": ")?;
        serde_json::to_writer(&mut *out, &DeviceAnswer::new(device.0, &name, kind))?;
        out.write_all(b", \"entries\": [")?;
        let mut replay = Replay::new(blocks, &final_segments);
        for row in rows.clone() {
            let step = replay.decode_step(row);
            out.write_all(if row > rows.start { b",\n" } else { b"\n" })?;
            serde_json::to_writer(&mut *out, &build_entry(blocks, row, &step, &mut stacks))?;
        }
        out.write_all(b"\n]}")?;
    }
    out.write_all(b"\n]}\n")?;
    Ok(odd)
}

fn build_entry(blocks: Blocks<'_>, row: usize, step: &Step, stacks: &mut Stacks<'_>) -> EntryAnswer {
    let snapshot = blocks.snapshot;
    let action = match snapshot.event_value(row, Key::Action) {
        Some(memtrack_model::snapshot::Value::Str(id)) => snapshot.strings.get(id).into_owned(),
        _ => step.action.name().to_owned(),
    };
    let (is_oom, is_alloc) = (step.action == Action::Oom, step.action == Action::Alloc);
    let segment = match step.segment {
        ContainingSegment::Named(segment) => Some(format_name(segment)),
        ContainingSegment::Row(segment) => Some(format!("seg_{segment}")),
        ContainingSegment::Unknown => None,
    };
    let metadata = snapshot.strings.get(blocks.pytorch.events.text(row, Key::UserMetadata));
    EntryAnswer {
        action,
        address: (!is_oom).then(|| format_address(step.address)),
        device_free_bytes: is_oom.then_some(WideAnswer(step.address)),
        size_bytes: WideAnswer(step.size),
        stream: snapshot.events.stream[row].0,
        time_us: blocks.pytorch.events.has(row, Key::TimeUs).then(|| snapshot.events.ticks[row]),
        name: step.name.map(format_name),
        segment: segment.filter(|_| is_alloc),
        offset_bytes: is_alloc.then_some(WideAnswer(step.offset)),
        user_metadata: Some(metadata.into_owned()).filter(|text| !text.is_empty()),
        stack: stacks.build_answer(snapshot.events.stack[row]),
    }
}

fn format_name(name: Name) -> String {
    let mut out = Vec::new();
    name.push(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}
