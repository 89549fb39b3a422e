//! Writes speedscope's own format. For each device, the file contains the memory in use at the peak and at the end, and
//! all allocated memory. Stacks are not in chronological order, because the most useful view is "left heavy", with the
//! largest stacks first.

use crate::options::ExportOptions;
use crate::stacks::{ExportedStack, Stacks, file_of, line_of};
use crate::usage::{Counts, Total, Usage, UsageRow};
use memtrack_blocks::moment::Moment;
use memtrack_model::units::capitalised;
use memtrack_model::{Frame, Snapshot};
use memtrack_symbols::Symbolizer;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Write};

/// The root of a file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: String,
    active_profile_index: usize,
    shared: Shared,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<FrameRow>,
}

/// A frame, given by a function and a line in it.
#[derive(Clone, PartialEq, Eq, Hash, Serialize)]
struct FrameRow {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// A profile, which consists of stacks and their bytes.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// The frames of each stack, outermost first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Writes the file.
pub(crate) fn write(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut stacks = Stacks::new(snapshot, &options.rules);
    let mut frames = Frames::default();
    let mut profiles = Vec::new();
    let moments = [Moment::Peak, Moment::End];
    for &(device, _) in &options.devices {
        let usage = Usage::of(snapshot, device, &moments, false);
        let samples: Vec<Vec<usize>> = usage
            .rows
            .iter()
            .map(|row| frames.intern_stack(&stacks.look_up(row.group.origin, symbols)))
            .collect();
        let name = capitalised(&snapshot.device_name(device));
        for (index, moment) in moments.iter().enumerate() {
            let title = format!("{name}: in use {}", moment.name());
            profiles.extend(build_profile(&title, &usage, &samples, &usage.in_use[index], |row| {
                row.in_use[index]
            }));
        }
        let title = format!("{name}: allocated in all");
        profiles.extend(build_profile(&title, &usage, &samples, &usage.allocated, |row| row.allocated));
    }
    if profiles.is_empty() {
        // speedscope rejects a file without profiles.
        let (samples, weights) = (Vec::new(), Vec::new());
        let name = "Nothing was in use".to_owned();
        profiles.push(Profile {
            kind: "sampled",
            name,
            unit: "bytes",
            start_value: 0,
            end_value: 0,
            samples,
            weights,
        });
    }
    let program = &snapshot.meta.program;
    let name = if program.is_empty() { "memory" } else { memtrack_model::paths::file_name(program) };
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: format!("memtrack {}", env!("CARGO_PKG_VERSION")),
        name: name.to_owned(),
        active_profile_index: 0,
        shared: Shared { frames: frames.rows },
        profiles,
    };
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")
}

/// Creates a profile of the stacks with their bytes, largest first, or returns `None` if there are no bytes.
fn build_profile(
    title: &str,
    usage: &Usage,
    samples: &[Vec<usize>],
    total: &Total,
    counts: impl Fn(&UsageRow) -> Counts,
) -> Option<Profile> {
    let mut stacks: Vec<(&Vec<usize>, u64)> = Vec::new();
    for (row, stack) in usage.rows.iter().zip(samples) {
        let bytes = counts(row).bytes;
        if bytes > 0 {
            stacks.push((stack, bytes));
        }
    }
    stacks.sort_by_key(|&(_, bytes)| Reverse(bytes));
    let end_value = stacks.iter().fold(0u64, |sum, &(_, bytes)| sum.saturating_add(bytes));
    (!stacks.is_empty()).then(|| Profile {
        kind: "sampled",
        name: format!("{title}, {}", total.to_text()),
        unit: "bytes",
        start_value: 0,
        end_value,
        weights: stacks.iter().map(|&(_, bytes)| bytes).collect(),
        samples: stacks.into_iter().map(|(stack, _)| stack.clone()).collect(),
    })
}

/// The table of distinct frames.
#[derive(Default)]
struct Frames {
    rows: Vec<FrameRow>,
    indices: HashMap<FrameRow, usize, foldhash::fast::RandomState>,
}

impl Frames {
    /// Returns the indices of the frames of a stack, outermost first.
    fn intern_stack(&mut self, exported: &ExportedStack) -> Vec<usize> {
        let mut stack: Vec<usize> = match exported {
            ExportedStack::Stack(keys) => keys
                .iter()
                .flat_map(|key| &key.frames)
                .map(|frame| self.intern_frame(frame_row(frame)))
                .collect(),
            ExportedStack::Unknown(texts) => texts
                .iter()
                .map(|text| self.intern_frame(FrameRow { name: text.clone(), file: None, line: None }))
                .collect(),
        };
        stack.reverse();
        stack
    }

    fn intern_frame(&mut self, row: FrameRow) -> usize {
        let next = self.rows.len();
        let index = *self.indices.entry(row.clone()).or_insert(next);
        if index == next {
            self.rows.push(row);
        }
        index
    }
}

fn frame_row(frame: &Frame) -> FrameRow {
    FrameRow { name: frame.function.clone(), file: file_of(frame).map(str::to_owned), line: line_of(frame) }
}
