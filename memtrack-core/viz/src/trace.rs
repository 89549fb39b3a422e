//! `trace`: every event as a line of pseudocode, byte for byte the same as in PyTorch, including its wrong total.

use super::blocks::Blocks;
use super::inconsistencies::Inconsistencies;
use super::replay::{ContainingSegment, FinalSegments, Replay, Step};
use super::repr::Repr;
use super::sink::Sink;
use memtrack_model::event::Action;
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use std::io::{self, Write};

/// Writes the events of all devices. As in PyTorch, no line break follows a device's total.
///
/// # Errors
/// Fails when `out` cannot be written.
pub fn trace(snapshot: &PytorchSnapshot, out: &mut impl Write) -> io::Result<Inconsistencies> {
    let blocks = Blocks::of(snapshot);
    let mut odd = Inconsistencies::default();
    if !blocks.pytorch.has(Key::DeviceTraces) {
        odd.note("holds no `device_traces`: only segments were saved", || "the file".into());
    }
    let final_segments = FinalSegments::of(blocks, &mut odd);
    let mut sink = Sink::new(out);
    let mut repr = Repr::of_events(snapshot);
    for (device, rows) in blocks.pytorch.traces.iter().enumerate() {
        let Some(last_row) = rows.clone().next_back() else { continue };
        sink.push_str("Device ");
        sink.push_decimal(device as i128);
        sink.push_str(" ----------------\n");
        sink.push_decimal(rows.len() as i128);
        sink.push_str(" entries\n");
        let mut replay = Replay::new(blocks, &final_segments);
        // PyTorch adds to the loop variable, which the next event overwrites, so only the last event counts.
        let mut total = (last_row - rows.start) as i128;
        for row in rows.clone() {
            let step = replay.decode_step(row);
            write_line(&mut sink, blocks, row, &step, &mut repr, &mut odd);
            sink.flush_if_full()?;
            if row == last_row {
                total += match step.action {
                    Action::Alloc => step.size,
                    Action::FreeCompleted => -step.size,
                    _ => 0,
                };
            }
        }
        sink.push_str("TOTAL MEM: ");
        sink.push_size(total);
    }
    sink.finish()?;
    Ok(odd)
}

fn write_line<W: Write>(
    sink: &mut Sink<'_, W>,
    blocks: Blocks<'_>,
    row: usize,
    step: &Step,
    repr: &mut Repr<'_>,
    odd: &mut Inconsistencies,
) {
    match step.action {
        Action::Alloc => {
            write_name(sink, step);
            sink.push_str(" = ");
            match step.segment {
                ContainingSegment::Named(segment) => segment.push(&mut sink.text),
                ContainingSegment::Row(segment) => {
                    sink.push_str("seg_");
                    sink.push_decimal(segment.into());
                }
                ContainingSegment::Unknown => sink.push_str("MEM"),
            }
            sink.push_str("[");
            sink.push_decimal(step.offset);
            sink.push_str(":");
            sink.push_size(step.size);
            sink.push_str("]");
        }
        Action::FreeRequested => {
            sink.push_str("del ");
            write_name(sink, step);
            sink.push_str(" # ");
            sink.push_size(step.size);
        }
        Action::FreeCompleted => {
            sink.push_str("# free completed for ");
            write_name(sink, step);
            sink.push_str(" ");
            sink.push_size(step.size);
        }
        Action::SegmentAlloc => {
            write_name(sink, step);
            sink.push_str(" = cudaMalloc(");
            sink.push_decimal(step.address);
            sink.push_str(", ");
            sink.push_size(step.size);
            sink.push_str(")");
        }
        Action::SegmentFree => {
            sink.push_str("cudaFree(");
            write_name(sink, step);
            sink.push_str(") # ");
            sink.push_size(step.size);
        }
        Action::Oom => {
            sink.push_str("raise OutOfMemoryError # ");
            sink.push_size(step.size);
            sink.push_str(" requested, ");
            if blocks.pytorch.events.has(row, Key::DeviceFree) {
                sink.push_size(step.address);
            } else {
                odd.note("has no `device_free`", || format!("event {row}, an oom"));
                sink.push_str("?");
            }
            sink.push_str(" free in CUDA");
        }
        Action::Annotate => {
            sink.push_str("# annotate ");
            write_name(sink, step);
            sink.push_str(": ");
            match blocks.snapshot.event_value(row, Key::UserMetadata) {
                Some(text) => repr.write_str(&mut sink.text, &text),
                None => odd.note("has no `user_metadata`", || format!("event {row}, an annotate")),
            }
        }
        _ => repr.write_event(&mut sink.text, row),
    }
    if std::mem::take(&mut repr.cut) {
        odd.note("repeats its values so often that they were cut with `...`", || format!("event {row}"));
    }
    sink.push_str("\n");
}

/// Writes the name of the block or segment that the event concerns, or the address if it has no name.
fn write_name<W: Write>(sink: &mut Sink<'_, W>, step: &Step) {
    match step.name {
        Some(name) => name.push(&mut sink.text),
        None => sink.push_decimal(step.address),
    }
}
