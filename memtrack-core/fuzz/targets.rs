//! The fuzz targets, one function each. If memtrack is correct, none of them panics, hangs or uses much memory for any
//! file. The project's tests also run them over the corpus with a stable compiler (`tests/tests/snapshot/fuzz_corpus.rs`),
//! where not every function is used.
#![allow(dead_code)]

#[path = "same.rs"]
mod same;

use memtrack_core::__pickle::{InputState, load};
use memtrack_core::analysis::at_peak::{AtPeak, PeakKind};
use memtrack_core::analysis::attribution::EventNames;
use memtrack_core::analysis::check::{Limits as Gate, Measurements};
use memtrack_core::analysis::leaks::{LeakOptions, ReducedSnapshot, leaks, leaks_over};
use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::summary::{DeviceSummary, summary};
use memtrack_core::analysis::tasks::{TasksOptions, tasks};
use memtrack_core::analysis::top::{By, TopOptions, top_with};
use memtrack_core::cycles;
use memtrack_core::profile::advice::Advice;
use memtrack_core::profile::analysis::analyse;
use memtrack_core::profile::export::{CoalescedTimeline, write_raw};
use memtrack_core::profile::modules::ModuleReport;
use memtrack_core::profile::optrace::{self, Mode};
use memtrack_core::profile::reading::{BlockCategories, CategoryReading};
use memtrack_core::profile::report::{CategoryReport, ReportMoment};
use memtrack_core::profile::series::walk;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::PytorchSnapshot;
use memtrack_core::snapshot::pytorch::{Compression, Encoding, LoadOptions, write};
use memtrack_core::snapshot::{EventTable, Format, Loaded, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_core::tracker::TrackerStats;
use memtrack_core::viz::{self, Grouping, Stats, Usage};
use same::{same, visit};
use std::io::{self, Write};

/// The maximum size of the decompressed input.
const MAX_INPUT: u64 = 512 << 10;
/// The maximum size of the text written for one file. A shared value is written once per reference.
const MAX_TEXT: usize = 1 << 20;

/// Tests the pickle machine and visits its documents, and tests the tracker's files, which a round trip must not change.
pub fn pickle(data: &[u8]) {
    if let Ok(document) = load(data, &InputState::default()) {
        visit(&document);
    }
    if let Ok(stats) = TrackerStats::load_from(data) {
        let saved = stats.save_to(Vec::new()).expect("the statistics can be saved");
        let again = TrackerStats::load_from(&saved[..]).expect("the saved file can be read");
        assert_eq!(
            saved,
            again.save_to(Vec::new()).expect("they can be saved again"),
            "statistics changed in a round trip"
        );
        let _ = stats.summary(10).map(|summary| summary.to_string());
    }
}

/// Tests the snapshot reader, through the function that the command uses.
pub fn snapshot(data: &[u8]) {
    match read(data) {
        Ok(loaded) => drop(loaded),
        Err(why) => assert!(!why.contains('\n') && why.len() < 2000, "{why}"),
    }
}

/// Tests a recording with all functions that read recordings. Its checksums are corrected first, because the reader
/// would otherwise reject every change that the fuzzer makes.
pub fn recording(data: &[u8]) {
    let data = with_valid_checksums(data);
    snapshot(&data);
    round_trip(&data);
    answers(&data);
}

/// Returns the data as a recording with valid chunks: magic, lengths and checksums are replaced.
fn with_valid_checksums(data: &[u8]) -> Vec<u8> {
    const HEADER: usize = 16;
    const HEAD: usize = 20;
    let mut data = data.to_vec();
    let (mut at, mut is_header) = (0, true);
    while at + HEADER <= data.len() {
        if is_header {
            data[at..at + 12].copy_from_slice(b"MEMTRACK\x01\0\0\0");
            let sum = crc32fast::hash(&data[at..at + 12]);
            data[at + 12..at + 16].copy_from_slice(&sum.to_le_bytes());
            (at, is_header) = (at + HEADER, false);
            continue;
        }
        let rest = data.len().saturating_sub(at + HEAD);
        let head = &mut data[at..];
        if head.len() < HEAD {
            break;
        }
        let requested = u32::from_le_bytes([head[12], head[13], head[14], head[15]]) as usize;
        let stored = requested.min(rest);
        let is_packed = head[4] & 1;
        head[4..8].copy_from_slice(&[is_packed, 0, 0, 0]);
        head[12..16].copy_from_slice(&(stored as u32).to_le_bytes());
        if is_packed == 0 {
            head[8..12].copy_from_slice(&(stored as u32).to_le_bytes());
        }
        let mut sum = crc32fast::Hasher::new();
        sum.update(&head[..HEADER]);
        sum.update(&head[HEAD..HEAD + stored]);
        head[16..20].copy_from_slice(&sum.finalize().to_le_bytes());
        is_header = head.starts_with(b"NEXT");
        at += HEAD + stored;
    }
    data
}

/// Writes every readable file and reads it again. The content must not change.
pub fn round_trip(data: &[u8]) {
    let Ok(Loaded { snapshot: first, format, compression, .. }) = read(data) else { return };
    if first.pytorch.is_none() {
        let saved = first.save_to(Vec::new()).expect("the recording can be saved");
        let again =
            Snapshot::open_stream(&saved[..], LoadOptions::default()).expect("the saved file can be read");
        assert_eq!(
            saved,
            again.snapshot.save_to(Vec::new()).expect("it can be saved again"),
            "a recording changed in a round trip"
        );
        return;
    }
    let as_pytorch = |snapshot| PytorchSnapshot::try_from(snapshot).expect("not a recording");
    let pickle = |snapshot: &PytorchSnapshot| {
        write(snapshot, Vec::new(), Encoding::Pickle).expect("a pickle can contain every value")
    };
    let first = as_pytorch(first);
    let written = pickle(&first);
    let second = Snapshot::open_stream(&written[..], LoadOptions::default()).expect("the output can be read");
    let second = as_pytorch(second.snapshot);
    assert!(pickle(&second) == written, "a snapshot changed in a round trip");
    // Stack numbers are not compared, because they also count stacks to which nothing refers. The stacks themselves were
    // compared as part of the pickles.
    let numbers = |snapshot: &Snapshot| EventTable { stack: Vec::new(), ..snapshot.events.clone() };
    assert!(numbers(&first) == numbers(&second), "the events changed in a round trip");
    if let Ok(Text(text)) = write(&first, Text::default(), Encoding::Json) {
        let third = Snapshot::open_stream(&text[..], LoadOptions::default()).expect("the output can be read");
        let again = write(&as_pytorch(third.snapshot), Text::default(), Encoding::Json)
            .expect("it can be written again");
        // Reading the JSON has merged keys that are equal as text (1 and "1", or a float twice), so only a second round
        // trip must preserve everything.
        let third =
            Snapshot::open_stream(&again.0[..], LoadOptions::default()).expect("it can be read again");
        let once_more = write(&as_pytorch(third.snapshot), Text::default(), Encoding::Json)
            .expect("it can be written again");
        assert!(once_more.0 == again.0, "the JSON changed in a second round trip");
        // Every reader of JSON, including Python's, reads adjacent surrogates as one character.
        let halves = text.windows(3).any(|escape| escape == br"\ud");
        assert!(halves || again.0.len() < text.len() || again.0 == text, "the JSON changed in a round trip");
    }
    // The pickle machine alone, which knows nothing about snapshots, must read the same values before and after.
    if let (Format::Pickle, Compression::None, Ok(before)) =
        (format, compression, load(data, &InputState::default()))
    {
        let after = load(&written[..], &InputState::default()).expect("the output is a pickle");
        assert!(same(&before, &after), "a value changed in a round trip");
    }
}

/// Tests a graph of references: reads it, reports on it, writes it and reads it again.
pub fn cycles(data: &[u8]) {
    let whole = match cycles::read(data) {
        Ok(graph) => graph,
        Err(error) => {
            let why = error.to_string();
            assert!(!why.contains('\n') && why.len() < 2000, "{why}");
            return;
        }
    };
    let graph = whole.device_memory_subgraph();
    let findings = cycles::Findings::of_subgraph(&graph, &whole);
    let text = cycles::text::text(&graph, &findings, usize::MAX);
    assert!(!text.contains('\u{1b}'), "{text:?}");
    let (mut dot, mut json) = (Vec::new(), Vec::new());
    cycles::dot::write(&graph, &findings, &mut dot).expect("memory can be written");
    cycles::json::write(&graph, &findings, &mut json).expect("memory can be written");
    let again = cycles::read(&json).expect("the output can be read");
    let mut second = Vec::new();
    cycles::json::write(&again, &cycles::Findings::of(&again), &mut second).expect("memory can be written");
    let without = |json: &[u8]| {
        let mut json: serde_json::Value = serde_json::from_slice(json).expect("the output is JSON");
        // This count is for the whole graph, but the output contains only a part of it.
        json["counts"]["cycles_without_device_memory"].take();
        json
    };
    assert_eq!(without(&json), without(&second), "the findings changed in a round trip");
}

/// Tests an operator trace: reads it strictly and with repairs, writes and reads it again, analyses it and reports on it.
pub fn optrace(data: &[u8]) {
    for mode in [Mode::Compat, Mode::Tolerant] {
        let traced = match optrace::read(data, mode, MAX_INPUT) {
            Ok(traced) => traced,
            Err(error) => {
                let why = error.to_string();
                assert!(!why.contains('\n') && why.len() < 2000, "{why}");
                continue;
            }
        };
        assert!(mode == Mode::Tolerant || traced.repairs.is_empty(), "something was repaired");
        let mut written = Vec::new();
        optrace::write(&traced.trace, &mut written).expect("memory can be written");
        let again = optrace::read(&written[..], Mode::Compat, u64::MAX).expect("the output can be read");
        assert_eq!(again.trace.records.len(), traced.trace.records.len(), "records changed in a round trip");
        let Ok(profile) = analyse(&traced.trace, mode) else { continue };
        for device in profile.devices() {
            walk(&profile, device, |moment| {
                let is_sound = moment.bytes.iter().all(|&bytes| bytes >= 0);
                assert!(mode == Mode::Compat || is_sound, "fewer than 0 bytes are allocated: {moment:?}");
            });
            let mut export = Vec::new();
            CoalescedTimeline::of(&profile, device).write(&mut export).expect("memory can be written");
            write_raw(&profile, device, &mut export).expect("memory can be written");
            let report = CategoryReport::of(
                &profile,
                device,
                &[ReportMoment::Peak, ReportMoment::End],
                *profile.repairs(),
            );
            let modules = ModuleReport::of(&profile, device, *profile.repairs()).listed(9);
            let advice = Advice::of(&profile, device, *profile.repairs()).listed(9);
            assert!(report.to_text(3, Some(80)).len() < MAX_TEXT);
            serde_json::to_vec(&(modules, advice, report.listed(3))).expect("they have text keys");
        }
    }
}

/// Reports leaks with all options.
fn report_leaks(snapshot: &Snapshot, symbols: &mut Symbolizer) {
    let devices = snapshot.device_ids();
    for by in [By::Line, By::Stack, By::Operator] {
        let options = LeakOptions::new().by(by);
        for options in [options.clone(), options.clone().per("step"), options.per("optimizer").limit(2)] {
            if let Ok(report) = leaks(snapshot, symbols, &devices, &options) {
                let _ = (report.to_text(Some(80)), serde_json::to_value(&report));
            }
        }
    }
    let options = LeakOptions::new();
    let snaps = (0..3).map(|_| ReducedSnapshot::of(snapshot, symbols, &devices, "a", &options)).collect();
    let _ = leaks_over(snaps, &options).map(|report| report.to_text(Some(80)));
}

/// Generates every report on every readable file.
pub fn answers(data: &[u8]) {
    let Ok(Loaded { mut snapshot, .. }) = read(data) else { return };
    // A fuzzer should not open the files that a recording refers to.
    snapshot.modules.clear();
    let symbols = &mut Symbolizer::of(&snapshot);
    report_leaks(&snapshot, symbols);
    for at in [Moment::Peak, Moment::End] {
        let report = tasks(&snapshot, symbols, TasksOptions::new().at(at).limit(5));
        let _ = report.map(|report| (report.to_text(Some(80)), serde_json::to_value(&report)));
    }
    let snapshot = snapshot.into_pytorch(symbols);
    report_leaks(&snapshot, symbols);
    for device in snapshot.device_ids() {
        for by in [By::Stack, By::Frame, By::File, By::Category, By::Stream, By::Pool, By::Size, By::Operator]
        {
            let moments = [None, Some(Moment::Peak), Some(Moment::End), Moment::last_oom(&snapshot, device)];
            for at in moments.into_iter().chain([Moment::event(&snapshot, device, 1)]) {
                let options = TopOptions::new().at(at);
                let report = top_with(&snapshot, symbols, by, device, &options);
                let _ = (report.to_text(Some(80)), report.to_json());
            }
        }
        for of in [PeakKind::Requested, PeakKind::Reserved] {
            let at_peak = AtPeak::find(&snapshot, symbols, device, of, 5);
            let _ = (at_peak.to_string(), at_peak.to_json());
        }
        let moments = [ReportMoment::Peak, ReportMoment::End, ReportMoment::After(500_000_000)];
        let blocks = BlockCategories::infer(&snapshot, symbols, device);
        let reading = CategoryReading::of(&snapshot, device, &blocks, &moments, &EventNames::default());
        let _ = (reading.to_string(), reading.has_evidence());
    }
    for device in summary(&snapshot, symbols) {
        let _ = (device.to_string(), DeviceSummary::to_json(&device));
    }
    let gate = Gate::new().peak(1).leak(1).fragmentation(0.5);
    let found = Measurements::of(&snapshot);
    let _ = (found.exceeded(&gate), found.to_json(&gate));
    let _ = viz::trace(&snapshot, &mut Text::default());
    let _ = viz::trace_json(&snapshot, "", &mut Text::default());
    let _ = viz::segments_folded(&snapshot, &mut Text::default());
    let _ = viz::memory_folded(&snapshot, &mut Text::default());
    let _ = viz::compare_folded(&snapshot, &PytorchSnapshot::default(), &mut Text::default());
    // The text has one character per 20 MiB. Its size is bounded, but printing it takes too long for a fuzzer.
    let small = snapshot.segments.iter().all(|segment| segment.size_bytes < 1 << 40)
        && snapshot.blocks.iter().all(|block| block.size_bytes < 1 << 40);
    if let Some(stats) = small.then(|| Stats::of(&snapshot)) {
        let _ = (stats.write_text(&mut Text::default()), stats.answer(), stats.odd.lines().count());
    }
    for grouping in [Grouping::Segment, Grouping::Stream] {
        let usage = Usage::of(&snapshot, grouping);
        let _ = (usage.lines(""), usage.answer());
    }
}

fn read(data: &[u8]) -> Result<Loaded, String> {
    let mut quiet = |_: u64| {};
    let options = LoadOptions::new().max_input(MAX_INPUT).progress(&mut quiet);
    Snapshot::open_stream(data, options).map_err(|error| error.to_string())
}

/// A writer that keeps the text, and fails if it is too long.
#[derive(Default)]
struct Text(Vec<u8>);

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TEXT {
            return Err(io::Error::other("the text is too long"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
