//! Writes pprof's `profile.proto`, compressed with gzip. The profile contains the allocated blocks and bytes, and the
//! blocks and bytes in use, by stack. One file covers all devices, and the labels of a sample contain the device,
//! stream, operator, module and phase.
//!
//! If small blocks were sampled, the values include all blocks that the samples represent, and comments contain the
//! errors of the totals.
//!
//! `heap` makes the profile of a program that is still running, in which the totals of allocations are exact.

pub mod heap;
mod messages;
mod tables;

use crate::labels::Labels;
use crate::options::ExportOptions;
use crate::stacks::{ExportedStack, Stacks};
use crate::usage::{Counts, Group, Usage};
use flate2::write::GzEncoder;
use memtrack_frames::attribution::Attributor;
use memtrack_frames::framework_operators::Patterns;
use memtrack_frames::ownership::Rules;
use memtrack_model::Snapshot;
use memtrack_model::event::StreamId;
use memtrack_symbols::Symbolizer;
use messages::{Label, Profile, Sample, ValueType};
use prost::Message;
use std::collections::HashSet;
use std::io::{self, Write};
use tables::Tables;

/// The sample types, which are the values of a sample, in order, with their units. Tools show the last one by default.
const SAMPLE_TYPES: [(&str, &str); 4] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// Writes the profile.
pub(crate) fn write(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    compress(&build_profile(snapshot, symbols, options), out)
}

fn compress(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let mut encoder = GzEncoder::new(out, flate2::Compression::default());
    encoder.write_all(&profile.encode_to_vec())?;
    encoder.finish()?;
    Ok(())
}

fn build_profile(snapshot: &Snapshot, symbols: &mut Symbolizer, options: &ExportOptions) -> Profile {
    let parts = options.devices.iter().map(|&(device, moment)| {
        let usage = Usage::of(snapshot, device, &[moment], true);
        let name = snapshot.device_name(device);
        let (mut allocated, mut in_use) = (CarriedRounding::default(), CarriedRounding::default());
        let rows = usage.rows.iter().map(|row| {
            let [blocks, bytes] = allocated.round_values(row.allocated);
            let [blocks_in_use, bytes_in_use] = in_use.round_values(row.in_use[0]);
            Row { group: row.group, values: [blocks, bytes, blocks_in_use, bytes_in_use] }
        });
        let rows: Vec<Row> = rows.collect();
        let mut comments = vec![
            format!("{name}: inuse: {} {}", usage.in_use[0].to_text(), moment.name()),
            format!("{name}: alloc: {}, allocated within the trace", usage.allocated.to_text()),
        ];
        if usage.in_use[0].is_estimate() || usage.allocated.is_estimate() {
            comments.push(estimates_comment(&name));
        }
        comments.retain(|_| !rows.is_empty());
        Part { name, rows, rest: None, comments }
    });
    let parts: Vec<Part> = parts.collect();
    let note =
        "bytes are requested bytes; memory in use that is older than the trace is not counted as allocated";
    let mut profile = Builder::new(snapshot, symbols, &options.rules).build(parts, note, SAMPLE_TYPES[3].0);
    add_times(&mut profile, snapshot);
    profile
}

/// Returns the comment about a device whose values are estimates.
fn estimates_comment(device: &str) -> String {
    format!("{device}: small blocks were sampled: values are estimates, errors are with 95 % confidence")
}

/// One device's part of a profile.
struct Part {
    /// The device's name.
    name: String,
    rows: Vec<Row>,
    /// A text in place of a stack, and the values of the memory whose stacks are unknown.
    rest: Option<(&'static str, [i64; 4])>,
    comments: Vec<String>,
}

/// The values of a group, in the order of [`SAMPLE_TYPES`].
struct Row {
    group: Group,
    values: [i64; 4],
}

/// Makes profiles of the sums of a snapshot's devices.
struct Builder<'a> {
    snapshot: &'a Snapshot,
    symbols: &'a mut Symbolizer,
    rules: &'a Rules,
}

impl<'a> Builder<'a> {
    fn new(snapshot: &'a Snapshot, symbols: &'a mut Symbolizer, rules: &'a Rules) -> Self {
        Self { snapshot, symbols, rules }
    }

    /// Makes a profile without times. Tools show the sample type `default` first.
    fn build(self, parts: Vec<Part>, note: &str, default: &str) -> Profile {
        let Self { snapshot, symbols, rules } = self;
        // The functions of all stacks are looked up before the first location is created, because the missing binaries are
        // known only after these lookups.
        let mut stacks = Stacks::new(snapshot, rules);
        let exported: Vec<Vec<ExportedStack>> = parts
            .iter()
            .map(|part| part.rows.iter().map(|row| stacks.look_up(row.group.origin, symbols)).collect())
            .collect();
        let missing: HashSet<_> =
            symbols.missing().map(|module| (module.path.clone(), module.start)).collect();
        let mut tables = Tables::new(&snapshot.modules, &missing);
        let patterns = Patterns::default();
        let mut attributor = Attributor::new(snapshot, &patterns);

        let mut profile = Profile::default();
        for (kind, unit) in SAMPLE_TYPES {
            profile
                .sample_type
                .push(ValueType { kind: tables.intern_string(kind), unit: tables.intern_string(unit) });
        }
        profile.default_sample_type = tables.intern_string(default);
        for (part, exported) in parts.iter().zip(&exported) {
            for (row, stack) in part.rows.iter().zip(exported) {
                let location_id = match stack {
                    ExportedStack::Stack(keys) => {
                        keys.iter().map(|key| tables.intern_location(key)).collect()
                    }
                    ExportedStack::Unknown(texts) => {
                        texts.iter().map(|text| tables.intern_text(text)).collect()
                    }
                };
                let running =
                    Labels::of(&mut attributor, snapshot, row.group.scope, row.group.origin, symbols);
                profile.sample.push(Sample {
                    location_id,
                    value: row.values.to_vec(),
                    label: build_labels(&part.name, row.group, &running, &mut tables),
                });
            }
            if let Some((text, values)) = part.rest {
                let (key, value) = (tables.intern_string("device"), tables.intern_string(&part.name));
                profile.sample.push(Sample {
                    location_id: vec![tables.intern_text(text)],
                    value: values.to_vec(),
                    label: vec![Label { key, text: value }],
                });
            }
            profile.comment.extend(part.comments.iter().map(|comment| tables.intern_string(comment)));
        }
        profile.comment.push(tables.intern_string(note));
        add_period(&mut profile, snapshot, &mut tables);
        profile.string_table = tables.strings;
        profile.function = tables.functions;
        profile.location = tables.locations;
        profile.mapping = tables.mappings;
        profile
    }
}

/// A rounder for numbers of blocks, which have fractions if blocks were sampled. The rounding error of each stack is
/// carried over to the next, so that the total is right.
#[derive(Default)]
struct CarriedRounding {
    blocks: f64,
    emitted: i64,
}

impl CarriedRounding {
    /// Returns one stack's rounded number of blocks, and its bytes.
    fn round_values(&mut self, counts: Counts) -> [i64; 2] {
        self.blocks += counts.blocks;
        let blocks = self.blocks.round() as i64 - self.emitted;
        self.emitted += blocks;
        [blocks, i64::try_from(counts.bytes).unwrap_or(i64::MAX)]
    }
}

/// Sets the start and the duration, if events have times.
fn add_times(profile: &mut Profile, snapshot: &Snapshot) {
    let ns = |ticks: u64| snapshot.clock.time_ns(ticks);
    let Some(last) = snapshot.events.ticks.iter().max().filter(|_| snapshot.has_times()) else { return };
    let start = snapshot.clock.first.1;
    let end = ns(*last).max(start);
    profile.time_nanos = i64::try_from(start).unwrap_or(0);
    profile.duration_nanos = i64::try_from(end - start).unwrap_or(0);
}

/// Sets the mean number of bytes between samples, which is 1 if every block was recorded. It is left unset if the
/// number changed during recording.
fn add_period(profile: &mut Profile, snapshot: &Snapshot, tables: &mut Tables) {
    let period = match snapshot.meta.sample_mean_bytes {
        mean if mean > 0 => mean,
        _ if snapshot.has_samples() || snapshot.may_lack_small_blocks() => return,
        _ => 1,
    };
    profile.period_type =
        Some(ValueType { kind: tables.intern_string("space"), unit: tables.intern_string("bytes") });
    profile.period = i64::try_from(period).unwrap_or(0);
}

/// Returns the labels of the samples in a group.
fn build_labels(device: &str, group: Group, running: &Labels, tables: &mut Tables) -> Vec<Label> {
    let mut label =
        |key: &str, text: &str| Label { key: tables.intern_string(key), text: tables.intern_string(text) };
    let mut labels = vec![label("device", device)];
    if group.stream != StreamId::default() {
        labels.push(label("stream", &format!("{:#x}", group.stream.0)));
    }
    let running = [
        ("operator", running.operator.as_deref()),
        ("module", running.module.as_deref()),
        ("phase", running.phase),
    ];
    labels.extend(running.into_iter().filter_map(|(key, text)| Some(label(key, text?))));
    labels
}
