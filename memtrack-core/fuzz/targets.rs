//! What the fuzzers do with a file, one function a target. On a sound memtrack none of them panics, hangs or takes much
//! memory, whatever the file holds. The project's own tests run them over the corpus with a stable compiler
//! (`tests/tests/snapshot/fuzz_corpus.rs`), where not every function is used.
#![allow(dead_code)]

#[path = "same.rs"]
mod same;

use memtrack_core::__pickle::{Global, Limits, load};
use memtrack_core::analysis::at_peak::{AtPeak, PeakOf};
use memtrack_core::analysis::leaks::{LeakOptions, Snap, leaks, leaks_over};
use memtrack_core::analysis::limits::{Found, Limits as Gate};
use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::summary::{DeviceSummary, summary};
use memtrack_core::analysis::top::{By, TopOptions, top_with};
use memtrack_core::cycles;
use memtrack_core::profile::advice::Advice;
use memtrack_core::profile::analysis::analyse;
use memtrack_core::profile::export::{Coalesced, write_raw};
use memtrack_core::profile::modules::ModuleReport;
use memtrack_core::profile::optrace::{self, Mode};
use memtrack_core::profile::reading::{CategoryReading, ReadingAt};
use memtrack_core::profile::report::{At, CategoryReport};
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

/// Every class a caller of the machine allows.
const ALLOWED: [Global; 3] = [Global::DefaultDict, Global::OrderedDict, Global::Int];
/// Small, so that the bounds are met often.
const LIMITS: Limits = Limits { memory_bytes: 16 << 20, depth: 100, operand_bytes: 4 << 10 };
/// Most bytes of input once unpacked.
const MAX_INPUT: u64 = 512 << 10;
/// Most bytes of text that are made of one file: what is shared in it may be written again and again.
const MAX_TEXT: usize = 1 << 20;

/// The pickle machine: what it takes in can be walked; and the tracker's files, which come back as they were saved.
pub fn pickle(data: &[u8]) {
    if let Ok(document) = load(data, &ALLOWED, LIMITS) {
        visit(&document);
    }
    if let Ok(stats) = TrackerStats::load_from(data) {
        let saved = stats.save_to(Vec::new()).expect("statistics that were read can be saved");
        let again = TrackerStats::load_from(&saved[..]).expect("what was saved can be read");
        assert_eq!(saved, again.save_to(Vec::new()).expect("and saved"), "statistics changed on the way");
        let _ = stats.summary(10).map(|summary| summary.to_string());
    }
}

/// The snapshot reader, by the door the command line uses.
pub fn snapshot(data: &[u8]) {
    match read(data) {
        Ok(loaded) => drop(loaded),
        Err(why) => assert!(!why.contains('\n') && why.len() < 2000, "{why}"),
    }
}

/// A recording of memtrack's own, by all that is done with one. Its checksums are made right first: nothing that a fuzzer
/// changes would come past them.
pub fn recording(data: &[u8]) {
    let data = with_right_checksums(data);
    snapshot(&data);
    round_trip(&data);
    answers(&data);
}

/// The same as a recording whose chunks are whole: magic, lengths and checksums are replaced.
fn with_right_checksums(data: &[u8]) -> Vec<u8> {
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
        let asked = u32::from_le_bytes([head[12], head[13], head[14], head[15]]) as usize;
        let stored = asked.min(rest);
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

/// Whatever can be read is written and read again, and must be the same.
pub fn round_trip(data: &[u8]) {
    let Ok(Loaded { snapshot: first, format, compression, .. }) = read(data) else { return };
    if first.pytorch.is_none() {
        let saved = first.save_to(Vec::new()).expect("a recording that was read can be saved");
        let again =
            Snapshot::open_stream(&saved[..], LoadOptions::default()).expect("what was saved can be read");
        assert_eq!(
            saved,
            again.snapshot.save_to(Vec::new()).expect("and saved"),
            "a recording changed on the way"
        );
        return;
    }
    let in_its_form = |snapshot| PytorchSnapshot::try_from(snapshot).expect("no recording");
    let pickle = |snapshot: &PytorchSnapshot| {
        write(snapshot, Vec::new(), Encoding::Pickle).expect("a pickle has a form for all")
    };
    let first = in_its_form(first);
    let written = pickle(&first);
    let second =
        Snapshot::open_stream(&written[..], LoadOptions::default()).expect("what was written can be read");
    let second = in_its_form(second.snapshot);
    assert!(pickle(&second) == written, "a snapshot changed on the way");
    // What the stacks are is in the pickles; their numbers count also those that nothing refers to any more.
    let numbers = |snapshot: &Snapshot| EventTable { stack: Vec::new(), ..snapshot.events.clone() };
    assert!(numbers(&first) == numbers(&second), "the events changed on the way");
    if let Ok(Text(text)) = write(&first, Text::default(), Encoding::Json) {
        let third =
            Snapshot::open_stream(&text[..], LoadOptions::default()).expect("what was written can be read");
        let again =
            write(&in_its_form(third.snapshot), Text::default(), Encoding::Json).expect("and written");
        // Keys that are one once they are text (1 and "1", a float twice) are one from here on.
        let third = Snapshot::open_stream(&again.0[..], LoadOptions::default()).expect("and read");
        let once_more =
            write(&in_its_form(third.snapshot), Text::default(), Encoding::Json).expect("and written");
        assert!(once_more.0 == again.0, "the JSON changed on the way a second time");
        // Two halves of a character side by side are one character to every reader of JSON, Python's too.
        let halves = text.windows(3).any(|escape| escape == br"\ud");
        assert!(halves || again.0.len() < text.len() || again.0 == text, "the JSON changed on the way");
    }
    // The other machine knows nothing of snapshots: it must see the same values before and after.
    if let (Format::Pickle, Compression::None, Ok(before)) =
        (format, compression, load(data, &ALLOWED, LIMITS))
    {
        let limits = Limits { memory_bytes: 256 << 20, ..Limits::default() };
        let after = load(&written[..], &ALLOWED, limits).expect("what was written is a pickle");
        assert!(same(&before, &after), "a value changed on the way");
    }
}

/// A graph of references: read, and everything said of it, written and read again.
pub fn cycles(data: &[u8]) {
    let whole = match cycles::read(data) {
        Ok(graph) => graph,
        Err(error) => {
            let why = error.to_string();
            assert!(!why.contains('\n') && why.len() < 2000, "{why}");
            return;
        }
    };
    let graph = whole.of_device_memory();
    let findings = cycles::Findings::of_part(&graph, &whole);
    let said = cycles::text::text(&graph, &findings, usize::MAX);
    assert!(!said.contains('\u{1b}'), "{said:?}");
    let (mut dot, mut json) = (Vec::new(), Vec::new());
    cycles::dot::write(&graph, &findings, &mut dot).expect("memory can be written");
    cycles::json::write(&graph, &findings, &mut json).expect("memory can be written");
    let again = cycles::read(&json).expect("what was written can be read");
    let mut second = Vec::new();
    cycles::json::write(&again, &cycles::Findings::of(&again), &mut second).expect("memory can be written");
    let without = |json: &[u8]| {
        let mut json: serde_json::Value = serde_json::from_slice(json).expect("what was written is JSON");
        // Counted in the whole graph.
        json["counts"]["cycles_without_device_memory"].take();
        json
    };
    assert_eq!(without(&json), without(&second), "the findings changed on the way");
}

/// An operator trace: read strictly and with repairs, written and read again, analysed and reported.
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
        let again =
            optrace::read(&written[..], Mode::Compat, u64::MAX).expect("what was written can be read");
        assert_eq!(again.trace.records.len(), traced.trace.records.len(), "records changed on the way");
        let Ok(profile) = analyse(&traced.trace, mode) else { continue };
        for device in profile.devices() {
            walk(&profile, device, |moment| {
                let is_sound = moment.bytes.iter().all(|&bytes| bytes >= 0);
                assert!(mode == Mode::Compat || is_sound, "less than nothing is allocated: {moment:?}");
            });
            let mut export = Vec::new();
            Coalesced::of(&profile, device).write(&mut export).expect("memory can be written");
            write_raw(&profile, device, &mut export).expect("memory can be written");
            let report = CategoryReport::of(&profile, device, &[At::Peak, At::End], *profile.repairs());
            let _ = ModuleReport::of(&profile, device, *profile.repairs()).to_json(9);
            let _ = Advice::of(&profile, device, *profile.repairs()).to_json(9);
            assert!(report.to_text(3, Some(80)).len() < MAX_TEXT);
            let _ = report.to_json(3);
        }
    }
}

/// What leaks, by all ways to ask.
fn leaking(snapshot: &Snapshot, symbols: &mut Symbolizer) {
    let devices = snapshot.device_ids();
    for by in [By::Line, By::Stack, By::Operator] {
        let options = LeakOptions::new().by(by);
        for options in [options.clone(), options.clone().per("step"), options.per("optimizer").limit(2)] {
            if let Ok(report) = leaks(snapshot, symbols, &devices, &options) {
                let _ = (report.to_text(Some(80)), report.answered(), report.blind());
            }
        }
    }
    let options = LeakOptions::new();
    let snaps = (0..3).map(|_| Snap::of(snapshot, symbols, &devices, "a", &options)).collect();
    let _ = leaks_over(snaps, &options).map(|report| report.to_text(Some(80)));
}

/// Every report on whatever can be read.
pub fn answers(data: &[u8]) {
    let Ok(Loaded { mut snapshot, .. }) = read(data) else { return };
    // A fuzzer should not open the files that a recording names.
    snapshot.modules.clear();
    let symbols = &mut Symbolizer::of(&snapshot);
    leaking(&snapshot, symbols);
    let snapshot = snapshot.into_pytorch(symbols);
    leaking(&snapshot, symbols);
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
        for of in [PeakOf::Requested, PeakOf::Reserved] {
            let at_peak = AtPeak::find(&snapshot, symbols, device, of, 5);
            let _ = (at_peak.to_string(), at_peak.to_json());
        }
        let moments = [ReadingAt::Peak, ReadingAt::End, ReadingAt::Seconds(0.5)];
        let reading = CategoryReading::of(&snapshot, symbols, device, &moments);
        let _ = (reading.to_string(), reading.can_tell());
    }
    for device in summary(&snapshot, symbols) {
        let _ = (device.to_string(), DeviceSummary::to_json(&device));
    }
    let gate = Gate::new().peak(1).leak(1).fragmentation(0.5);
    let found = Found::of(&snapshot);
    let _ = (found.exceeded(&gate), found.to_json(&gate));
    let _ = viz::trace(&snapshot, &mut Text::default());
    let _ = viz::trace_json(&snapshot, "", &mut Text::default());
    let _ = viz::segments_folded(&snapshot, &mut Text::default());
    let _ = viz::memory_folded(&snapshot, &mut Text::default());
    let _ = viz::compare_folded(&snapshot, &PytorchSnapshot::default(), &mut Text::default());
    // The text has a character for each 20 MiB: bounded, but at more than a fuzzer has time for.
    let small = snapshot.segments.iter().all(|segment| segment.size_bytes < 1 << 40)
        && snapshot.blocks.iter().all(|block| block.size_bytes < 1 << 40);
    if let Some(stats) = small.then(|| Stats::of(&snapshot)) {
        let _ = (stats.write_text(&mut Text::default()), stats.to_json(), stats.odd.lines().count());
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

/// Keeps what is written, and fails when it is too much.
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
