//! `trace` as JSON, event by event: the names of the listing, and what the events say themselves.

use super::blocks::Blocks;
use super::oddities::Oddities;
use super::replay::{FinalSegments, Home, Name, Replay, Step};
use super::stacks::Stacks;
use super::stats::{bytes, hex};
use memtrack_model::event::Action;
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use serde_json::{Map, Value};
use std::io::{self, Write};

/// Writes the events of all devices as one JSON object, an event a line.
///
/// # Errors
/// When `out` cannot be written.
pub fn trace_json(snapshot: &PytorchSnapshot, out: &mut impl Write) -> io::Result<Oddities> {
    let blocks = Blocks::of(snapshot);
    let mut odd = Oddities::default();
    let last = FinalSegments::of(blocks, &mut odd);
    let mut stacks = Stacks::of(snapshot);
    out.write_all(b"{\"devices\": [")?;
    for (device, rows) in blocks.pytorch.traces.iter().enumerate() {
        let between = if device > 0 { "," } else { "" };
        write!(out, "{between}\n{{\"device\": {device}, \"entries\": [")?;
        let mut replay = Replay::new(blocks, &last);
        for row in rows.clone() {
            let step = replay.step(row);
            out.write_all(if row > rows.start { b",\n" } else { b"\n" })?;
            serde_json::to_writer(&mut *out, &event(blocks, row, &step, &mut stacks))?;
        }
        out.write_all(b"\n]}")?;
    }
    out.write_all(b"\n]}\n")?;
    Ok(odd)
}

fn event(blocks: Blocks<'_>, row: usize, step: &Step, stacks: &mut Stacks<'_>) -> Value {
    let snapshot = blocks.snapshot;
    let mut entry = Map::new();
    let action = match snapshot.event_value(row, Key::Action) {
        Some(memtrack_model::snapshot::Value::Str(id)) => snapshot.strings.get(id).into_owned(),
        _ => step.action.name().to_owned(),
    };
    entry.insert("action".into(), action.into());
    if step.action == Action::Oom {
        entry.insert("device_free_bytes".into(), bytes(step.address));
    } else {
        entry.insert("address".into(), hex(step.address).into());
    }
    entry.insert("size_bytes".into(), bytes(step.size));
    entry.insert("stream".into(), snapshot.events.stream[row].0.into());
    if blocks.pytorch.events.has(row, Key::TimeUs) {
        entry.insert("time_us".into(), snapshot.events.ticks[row].into());
    }
    if let Some(name) = step.name {
        entry.insert("name".into(), text(name).into());
    }
    if step.action == Action::Alloc {
        let segment = match step.home {
            Home::Named(segment) => Value::from(text(segment)),
            Home::Row(segment) => format!("seg_{segment}").into(),
            Home::Nowhere => Value::Null,
        };
        entry.insert("segment".into(), segment);
        entry.insert("offset_bytes".into(), bytes(step.offset));
    }
    let metadata = blocks.pytorch.events.text(row, Key::UserMetadata);
    if !snapshot.strings.bytes(metadata).is_empty() {
        entry.insert("user_metadata".into(), snapshot.strings.get(metadata).into());
    }
    entry.insert("stack".into(), stacks.shown(snapshot.events.stack[row]).into());
    Value::Object(entry)
}

fn text(name: Name) -> String {
    let mut out = Vec::new();
    name.push(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}
