//! Reports on a sampled heap and on PyTorch snapshots of it: known numbers are exact, other numbers are weighted and marked as
//! estimates, and both are the same in every file format.
#![cfg(unix)]

use memtrack_core::analysis::holds::{HeldAt, HoldsQuery, WhoHolds};
use memtrack_core::analysis::lifetimes::lifetimes;
use memtrack_core::analysis::peak::Peak;
use memtrack_core::event::{Action, DeviceId, Event, EventFlags, ScopeId};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::{Key, LoadOptions};
use memtrack_core::snapshot::{
    CountedPeak, DeviceStatistics, Folded, Sampling, ScopeSum, ScopeSums, Snapshot,
};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::snapshots::{event, live, scoped};
use memtrack_tests::verbs::{json, run, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const HOST: DeviceId = DeviceId::HOST;
/// Blocks below this size are sampled. The mean interval is 4 KiB (the value in the recording's header) for one half of them,
/// and 8 KiB (interval class 5) for the others.
const THRESHOLD: u64 = 4096;

/// Returns a sampled heap with every kind of block: freed or live at the end, with a lost allocation or a lost free, and with
/// an address that is reused although the block was not freed.
fn recording() -> Snapshot {
    recorded(true)
}

/// Returns the heap of [`recording`], with or without lost allocations and frees.
fn recorded(lossy: bool) -> Snapshot {
    let mut snapshot = scoped();
    snapshot.meta.sample_threshold_bytes = THRESHOLD;
    snapshot.meta.sample_mean_bytes = 4096;
    let mut random = 1u64;
    let mut next = move |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut kept: BTreeMap<u64, Event> = BTreeMap::new();
    let mut counts = DeviceStatistics::of(HOST);
    for ticks in 1..2_000u64 {
        let address = 0x5000_0000 + next(300) * 8192;
        let (size, scope) = (16 + next(8000), ScopeId(next(6) as u32));
        let flags = match (size < THRESHOLD, next(2)) {
            (false, _) => EventFlags::default(),
            (true, 0) => EventFlags::SAMPLED,
            (true, _) => EventFlags::SAMPLED.with_interval_class(5),
        };
        let alloc = Event { scope, flags, ..event(1000 * ticks, Action::Alloc, address, size) };
        match kept.remove(&address) {
            // Occasionally, the free is lost.
            Some(old) if !lossy || next(20) > 0 => {
                snapshot.events.push(&Event { ticks: alloc.ticks, action: Action::Free, ..old });
            }
            _ => {
                // Occasionally, the allocation is lost.
                if !lossy || next(20) > 0 {
                    snapshot.events.push(&alloc);
                }
                kept.insert(address, alloc);
            }
        }
    }
    snapshot.blocks = kept.values().map(live).collect();
    counts.recorded = snapshot.events.len() as u64;
    counts.allocated_bytes = 90_000_000;
    counts.freed_bytes = 88_000_000;
    counts.allocations = 70_000;
    counts.frees = 65_000;
    counts.reserved_bytes = 7 << 20;
    snapshot.devices = vec![counts];
    snapshot
}

fn saved(folder: &tempfile::TempDir, name: &str, snapshot: &Snapshot) -> PathBuf {
    let path = folder.path().join(name);
    snapshot.save_as(&path, &mut Symbolizer::of(snapshot)).unwrap();
    path
}

#[test]
fn pytorch_snapshots_contain_weighted_samples_and_no_overlapping_blocks() {
    let recording = recording();
    let expected = Peak::of(&recording, HOST, &lifetimes(&recording, HOST));
    let folder = tempfile::tempdir().unwrap();
    let path = saved(&folder, "a.pickle", &recording);
    let file = Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot;
    let pytorch = file.pytorch.as_deref().unwrap();

    // Replays the file like a program that ignores the weights of samples: first the older blocks, then the events.
    let rows: Vec<usize> = pytorch.traces[0].clone().collect();
    let events = &file.events;
    let mut open: BTreeMap<u64, u64> = BTreeMap::new();
    let mut seen = std::collections::HashSet::new();
    let mut older: Vec<(u64, u64)> = Vec::new();
    for &row in &rows {
        match events.action[row] {
            Action::Alloc => drop(seen.insert(events.address[row])),
            Action::FreeCompleted if !seen.remove(&events.address[row]) => {
                older.push((events.address[row], events.size_bytes[row]));
            }
            _ => {}
        }
    }
    for block in file.blocks.iter().filter(|block| !seen.contains(&block.address)) {
        older.push((block.address, block.size_bytes));
    }
    // Blocks at the same address whose allocations were lost were not live at the same time, so only one of them is live at the
    // start.
    older.sort_unstable();
    older.dedup_by_key(|block| block.0);
    open.extend(older);
    let overlaps = |open: &BTreeMap<u64, u64>, address: u64, size: u64| {
        let before = open.range(..address).next_back().is_some_and(|(start, size)| start + size > address);
        before || open.range(address + 1..).next().is_some_and(|(&start, _)| start < address + size)
    };
    let mut samples = 0;
    for &row in &rows {
        let (address, size) = (events.address[row], events.size_bytes[row]);
        assert!(i64::try_from(address).is_ok() && i64::try_from(size).is_ok());
        match events.action[row] {
            Action::Alloc => {
                assert!(!overlaps(&open, address, size), "event {row}");
                open.insert(address, size);
                let note = file.strings.get(pytorch.events.text(row, Key::UserMetadata)).into_owned();
                let weighed = file.weighed_event(row);
                assert_eq!(note.contains("[sample of "), weighed.estimated, "{note}");
                if weighed.estimated {
                    samples += 1;
                    assert!(weighed.size_bytes < THRESHOLD && weighed.bytes == size && weighed.blocks > 1.0);
                    assert!(note.contains(&format!("sample of {} B", weighed.size_bytes)), "{note}");
                }
            }
            Action::FreeCompleted => drop(open.remove(&address)),
            _ => {}
        }
    }
    assert!(samples > 100);
    let found = Peak::of(&file, DeviceId(0), &lifetimes(&file, DeviceId(0)));
    assert_eq!(found.bytes, expected.bytes);
    let allocated: u64 =
        (0..pytorch.segments.len()).map(|row| pytorch.segments.number(row, Key::AllocatedSize)).sum();
    let live = lifetimes(&recording, HOST).into_iter().filter(|one| one.to.is_none());
    assert_eq!(allocated, live.map(|one| one.bytes).sum::<u64>());
}

#[test]
fn reports_are_the_same_for_every_file_format() {
    for lossy in [false, true] {
        assert_same_reports(lossy);
    }
}

fn assert_same_reports(lossy: bool) {
    let mut recording = recorded(lossy);
    assert_same(&recording, lossy);
    // The times are whole microseconds, which PyTorch's format can represent.
    recording.counted_peak = Some(CountedPeak {
        ticks: 1_200_000,
        bytes: 7_000_000,
        most_bytes: 8_000_000,
        since_ticks: 3_000,
        until_ticks: 2_000_000,
        events_before: None,
    });
    assert_same(&recording, lossy);
    // As if the end of the recording were missing.
    recording.counted_peak.as_mut().unwrap().until_ticks = 1_300_000;
    assert_same(&recording, lossy);
}

fn assert_same(recording: &Snapshot, lossy: bool) {
    let folder = tempfile::tempdir().unwrap();
    let original = saved(&folder, "a.memtrack", recording);
    let pickle = saved(&folder, "a.pickle", recording);
    let again = Snapshot::open(&pickle, LoadOptions::default()).unwrap().snapshot;
    let others = [
        saved(&folder, "a.json", recording),
        saved(&folder, "again.pickle", &again),
        saved(&folder, "again.memtrack", &again),
        pickle,
    ];
    let common: [&[&str]; 5] = [
        &["summary"],
        &["peak"],
        &["check", "--max-peak", "1KiB", "--max-leak", "1KiB"],
        &["top", "--by", "operator"],
        &["top", "--by", "size", "--at", "peak"],
    ];
    // PyTorch's format has additional events for lost frees, which changes the numbers of other events.
    let numbered = |arguments: &[&str], path: &Path| {
        let mut answer = json(arguments, path);
        if lossy {
            forget_event_numbers(&mut answer);
        }
        answer
    };
    let whole: [&[&str]; 1] = [&["top", "--by", "phase", "--at", "500"]];
    for arguments in common.into_iter().chain(if lossy { &[][..] } else { &whole }.iter().copied()) {
        let expected = numbered(arguments, &original);
        for other in &others {
            assert_eq!(numbered(arguments, other), expected, "{arguments:?} {other:?}");
        }
    }
    if lossy {
        return;
    }
    assert_eq!(text(&["summary"], &others[0]), text(&["summary"], &original));
}

/// Removes the numbers of events, how many there are, and lower bounds on ages, which depend on the first event.
fn forget_event_numbers(answer: &mut Value) {
    match answer {
        Value::Object(fields) => {
            fields.retain(|name, _| !["event", "events", "oldest_age_at_least_ns"].contains(&&**name));
            fields.values_mut().for_each(forget_event_numbers);
        }
        Value::Array(values) => values.iter_mut().for_each(forget_event_numbers),
        _ => {}
    }
}

#[test]
fn a_summary_shows_the_exact_count_of_live_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = recording();
    let path = saved(&folder, "a.memtrack", &recording);
    let value = &json(&["summary"], &path)["devices"][0];
    assert_eq!(
        [
            &value["allocated_bytes"],
            &value["requested_bytes"],
            &value["allocated_blocks"],
            &value["estimated"]
        ],
        [&Value::from(2_000_000), &2_000_000.into(), &5_000.into(), &false.into()]
    );
    assert_eq!((&value["peak"]["estimated"], &value["live_at_end_estimated"]), (&true.into(), &true.into()));
    // Numbers that require segments are null.
    for name in ["segments", "reserved_bytes", "reserved_peak_bytes", "fragmentation", "inactive_bytes"] {
        assert!(value[name].is_null(), "{name}");
    }
    assert_eq!(value["resident_bytes"], 7 << 20);
    let page = text(&["summary"], &path);
    for words in ["Allocated      1.9 MiB in 5,000 blocks", "Resident       7.0 MiB", "Peak           "] {
        assert!(page.contains(words), "{page}");
    }
    assert!(!page.contains("Fragmentation") && !page.contains("segment"), "{page}");

    // If the estimated peak is below the counted live bytes, the counted bytes are reported as the peak.
    recording.devices[0].freed_bytes = 0;
    let path = saved(&folder, "b.memtrack", &recording);
    let value = &json(&["summary"], &path)["devices"][0];
    assert_eq!(value["peak"]["requested_bytes"], 90_000_000);
    assert_eq!(json(&["check", "--max-peak", "1GiB"], &path)["peak"]["requested_bytes"], 90_000_000);
}

/// A gibibyte that was never written takes no RAM: the summary has to point this out.
#[test]
fn allocated_memory_that_cannot_be_resident_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = recording();
    let note = "of what is allocated is not resident";
    let page = text(&["summary"], &saved(&folder, "a.memtrack", &recording));
    assert!(!page.contains(note), "{page}");
    recording.devices[0].allocated_bytes = recording.devices[0].freed_bytes + (1 << 30);
    let page = text(&["summary"], &saved(&folder, "b.memtrack", &recording));
    assert!(page.contains(&format!("at least 1017.0 MiB {note}")), "{page}");
}

/// Live bytes at the end are counted: every report has the same number, however few of the blocks were recorded.
#[test]
fn live_bytes_at_the_end_are_the_same_in_all_reports() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(&folder, "a.memtrack", &recording());
    let device = |verb: &[&str]| json(verb, &path)["devices"][0].clone();
    let summary = device(&["summary"]);
    let top = device(&["top", "--at", "end"]);
    let memory = device(&["memory", "--at", "end"]);
    let categories = device(&["categories", "--at", "end"]);
    for (bytes, blocks, error) in [
        (&top["totals"]["requested_bytes"], &top["totals"]["count"], &top["totals"]["requested_bytes_error"]),
        (&memory["requested_bytes"], &memory["count"], &memory["count_error"]),
        (
            &categories["moments"][0]["requested_bytes"],
            &categories["moments"][0]["count"],
            &categories["moments"][0]["count_error"],
        ),
    ] {
        assert_eq!((bytes, blocks), (&summary["requested_bytes"], &summary["allocated_blocks"]));
        assert!(error.is_null(), "{error}");
    }
    // The rows of these reports are still estimates, and no row exceeds the total.
    let shares = top["rows"].as_array().unwrap().iter().map(|row| row["share"].as_f64().unwrap());
    assert!(shares.fold(0.0, f64::max) <= 1.0);
    assert!(memory["stacks"].as_array().unwrap().iter().any(|row| !row["count_error"].is_null()));
    let rows = categories["moments"][0]["categories"].as_array().unwrap();
    assert!(rows.iter().any(|row| !row["count_error"].is_null()), "{rows:?}");
    assert!(text(&["top", "--at", "end"], &path).contains("Live at that moment: 1.9 MiB in 5,000 blocks"));
}

/// The program frees memory from before the recording began: the count is too low, or negative, and every report shows the
/// estimate from the recorded blocks instead.
#[test]
fn estimates_replace_counts_where_older_memory_was_freed() {
    let folder = tempfile::tempdir().unwrap();
    let recorded = recording();
    let live = lifetimes(&recorded, HOST).into_iter().filter(|one| one.to.is_none());
    let (unweighted, estimate) =
        live.fold((0, 0), |(sizes, bytes), one| (sizes + one.size_bytes, bytes + one.bytes));
    assert!((100_000..estimate).contains(&unweighted));
    let net = |bytes: u64, blocks: u64| {
        let mut recording = recording();
        let counts = &mut recording.devices[0];
        counts.freed_bytes = counts.allocated_bytes.wrapping_sub(bytes);
        counts.frees = counts.allocations.wrapping_sub(blocks);
        recording
    };
    let cases = [
        (net(unweighted, 5_000), None),
        (net(unweighted - 1, 5_000), Some("less all frees: the allocations of some freed blocks")),
        // Many of the freed small blocks were older than the recording.
        (net(unweighted, 3), Some("less all frees: the allocations of some freed blocks")),
        (net(0u64.wrapping_sub(3 << 20), 5_000), Some("  -3.0 MiB as all allocations less all frees: the")),
    ];
    for (recording, note) in cases {
        let path = saved(&folder, "a.memtrack", &recording);
        let device = |verb: &[&str]| json(verb, &path)["devices"][0].clone();
        let summary = device(&["summary"]);
        let expected = if note.is_some() { estimate } else { unweighted };
        assert_eq!(
            (&summary["requested_bytes"], &summary["allocated_bytes"], &summary["estimated"]),
            (&expected.into(), &expected.into(), &note.is_some().into())
        );
        let totals = &device(&["top", "--at", "end"])["totals"];
        let memory = device(&["memory", "--at", "end"]);
        let held = WhoHolds::of_all(
            &recording,
            &mut Symbolizer::of(&recording),
            &HoldsQuery::at_moment(HeldAt::Killed),
        );
        let held = held.unwrap();
        for (bytes, blocks) in [
            (&totals["requested_bytes"], &totals["count"]),
            (&memory["requested_bytes"], &memory["count"]),
            (&held.allocated_bytes.into(), &held.count.into()),
        ] {
            assert_eq!((bytes, blocks), (&summary["requested_bytes"], &summary["allocated_blocks"]));
        }
        assert_eq!(totals["requested_bytes_error"].is_null(), note.is_none());
        let page = text(&["summary"], &path);
        assert_eq!(page.contains("allocations of some freed blocks"), note.is_some(), "{page}");
        assert!(note.is_none_or(|note| page.contains(note)), "{page}");
    }
}

/// Blocks that were not sampled may belong to other rows.
#[test]
fn a_single_row_is_an_estimate_beside_a_counted_total() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = recorded(false);
    recording.events.scope.iter_mut().for_each(|scope| *scope = ScopeId(0));
    recording.blocks.iter_mut().for_each(|block| block.scope = ScopeId(0));
    let outside = |allocated_bytes: u64| {
        let rows = vec![ScopeSum { device: HOST, scope: ScopeId(0), allocated_bytes, allocations: 70_000 }];
        ScopeSums { ticks: 2_500_000, folded: 0, rows }
    };
    let estimate = lifetimes(&recording, HOST).iter().map(|one| one.bytes).sum::<u64>();
    // No row exceeds the total.
    for total in [90_000_000, estimate - 1] {
        recording.devices[0].allocated_bytes = total;
        for sums in [None, Some(outside(total))] {
            recording.scope_sums = sums;
            let path = saved(&folder, "a.memtrack", &recording);
            for by in ["operator", "module", "phase"] {
                let top = &json(&["top", "--by", by], &path)["devices"][0];
                assert_eq!(top["totals"]["requested_bytes"], total, "{by}");
                assert!(top["totals"]["requested_bytes_error"].is_null(), "{by}");
                let [row] = &top["rows"].as_array().unwrap()[..] else { panic!("{by}: {top}") };
                let bytes = row["requested_bytes"].as_u64().unwrap();
                assert!(row["estimated"] == true && !row["requested_bytes_error"].is_null(), "{by}: {row}");
                assert_eq!(bytes < total, total == 90_000_000, "{by}: {row}");
                assert!(bytes <= total && row["requested_bytes_error"]["high"].as_u64().unwrap() <= total);
                let attribution = &top["attribution"];
                assert_eq!(attribution["unattributed_bytes"], bytes, "{by}");
                assert!(!attribution["unattributed_bytes_error"].is_null(), "{by}");
            }
        }
    }
}

#[test]
fn the_allocated_total_is_the_same_for_every_grouping() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(&folder, "a.memtrack", &recording());
    for by in ["line", "stack", "size", "frame"] {
        let totals = json(&["top", "--by", by], &path)["devices"][0]["totals"].clone();
        assert_eq!(
            (&totals["requested_bytes"], &totals["count"]),
            (&90_000_000.into(), &70_000.into()),
            "{by}"
        );
        assert!(totals["requested_bytes_error"].is_null(), "{by}");
    }
}

#[test]
fn counts_are_omitted_where_the_recording_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let recording = recording();
    // A program that was killed wrote no counts.
    let mut bytes = recording.save_to(Vec::new()).unwrap();
    let counts = bytes.windows(4).position(|kind| kind == b"STAT").unwrap();
    bytes.truncate(counts);
    let path = folder.path().join("killed.memtrack");
    std::fs::write(&path, bytes).unwrap();
    let top = &json(&["top"], &path)["devices"][0];
    assert!(top["exact_requested_bytes"].is_null() && top["exact_allocations"].is_null());
    let page = text(&["top"], &path);
    assert!(page.contains("\nRequested: ") && page.contains("\n± and < hold"), "{page}");
    let value = &json(&["summary"], &path)["devices"][0];
    assert_eq!((&value["estimated"], &value["resident_bytes"]), (&true.into(), &Value::Null));
    let page = text(&["summary"], &path);
    assert!(page.contains("Allocated      "), "{page}");
    let killed = Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot;
    let live = lifetimes(&killed, HOST).into_iter().filter(|one| one.to.is_none());
    assert_eq!(value["allocated_bytes"], live.map(|one| one.bytes).sum::<u64>());
    let pytorch = memtrack_tests::fixture("snapshots/samples/basic-1.pickle");
    assert!(json(&["top"], &pytorch)["devices"][0]["exact_requested_bytes"].is_null());
}

#[test]
fn check_passes_only_where_the_whole_interval_is_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(&folder, "a.memtrack", &estimated());
    let check = |limit: u64| {
        let (name, limit) = ("--max-peak", limit.to_string());
        let value = json(&["check", name, &limit], &path);
        let output = run(&["check", name, &limit], &path);
        let decode = |text: Vec<u8>| String::from_utf8(text).unwrap();
        (output.status.code(), decode(output.stdout), decode(output.stderr), value)
    };
    let (code, verdict, stderr, value) = check(1 << 30);
    assert_eq!((code, &value["peak"]["verdict"]), (Some(0), &"within".into()));
    assert!(
        verdict.starts_with("within the limits: peak ") && verdict.contains(" % requested, leak "),
        "{verdict}"
    );
    assert!(!verdict.contains('~') && !verdict.contains("fragmentation"), "{verdict}");
    assert!(stderr.contains("the peak is an estimate from samples of small blocks, "), "{stderr}");
    let peak = &value["peak"];
    assert_eq!((&peak["estimated"], &value["leak"]["verdict"]), (&true.into(), &Value::Null));
    let error = peak["requested_bytes_error"]["standard_error"].as_f64().unwrap();
    let [low, high] = ["low", "high"].map(|end| peak["requested_bytes_error"][end].as_u64().unwrap());
    let found = peak["requested_bytes"].as_u64().unwrap();
    assert!(error > 0.0 && low < found && found < high, "{peak}");

    let (code, verdict, _, value) = check(high);
    assert_eq!((code, &value["peak"]["verdict"]), (Some(0), &"within".into()), "{verdict}");
    // If the limit is within the confidence interval, the verdict is uncertain, even if the estimate is below the limit.
    for limit in [low, found - 1, found, found + 1, high - 1] {
        let (code, verdict, _, value) = check(limit);
        assert_eq!((code, &value["peak"]["verdict"]), (Some(1), &"cannot_tell".into()), "{verdict}");
        assert!(verdict.starts_with("uncertain: peak of host heap: "), "{verdict}");
        assert!(verdict.contains(" with 95 % confidence, limit "), "{verdict}");
        assert_eq!(
            (value["exceeded"].as_array().unwrap().len(), value["cannot_tell"].as_array().unwrap().len()),
            (0, 1)
        );
    }
    let (code, verdict, _, value) = check(low - 1);
    assert_eq!((code, &value["peak"]["verdict"]), (Some(1), &"exceeded".into()));
    assert!(verdict.starts_with("exceeded: peak of host heap: ") && verdict.contains(" ± "), "{verdict}");
    assert_eq!(run(&["check", "--max-fragmentation", "10%"], &path).status.code(), Some(3));
}

#[test]
fn a_process_with_300_mib_in_sampled_blocks_exceeds_a_limit_of_100_mib() {
    let mut recording = scoped();
    recording.meta.sample_threshold_bytes = 64 << 10;
    recording.meta.sample_mean_bytes = 1 << 20;
    // 300 samples of 300,000 blocks of 1 KiB: unweighted, they are less than a third of a mebibyte.
    for number in 0..300 {
        let alloc = event(1000 * (number + 1), Action::Alloc, 0x10_0000 + number * 4096, 1024);
        let alloc = Event { flags: EventFlags::SAMPLED, ..alloc };
        recording.events.push(&alloc);
        recording.blocks.push(live(&alloc));
    }
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.memtrack", "a.pickle"] {
        let path = saved(&folder, name, &recording);
        let output = run(&["check", "--max-peak", "100MiB"], &path);
        let verdict = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{verdict}");
        assert!(verdict.starts_with("exceeded: peak of host heap: 300.1 MiB ± "), "{verdict}");
        assert_eq!(run(&["check", "--max-peak", "400MiB"], &path).status.code(), Some(0));
    }
}

/// Returns a recording whose exact counts give a lower peak than its samples do.
fn estimated() -> Snapshot {
    let mut recording = recording();
    recording.devices[0].freed_bytes = recording.devices[0].allocated_bytes - 100_000;
    recording
}

/// Returns a recording that contains sums for each scope, and whose tables of scopes, stacks and threads were full.
fn folded() -> Snapshot {
    let mut recording = recorded(false);
    let sum = |scope: u32, allocated_bytes: u64, allocations: u64| ScopeSum {
        device: HOST,
        scope: ScopeId(scope),
        allocated_bytes,
        allocations,
    };
    // Outside all scopes, in a module, in an operator and in a backward pass.
    let rows = vec![
        sum(0, 40_000_000, 30_000),
        sum(2, 20_000_000, 20_000),
        sum(3, 25_000_000, 15_000),
        sum(4, 5_000_000, 5_000),
    ];
    recording.scope_sums = Some(ScopeSums { ticks: 2_500_000, folded: 7_000, rows });
    recording.folded = Folded { stacks: 12, threads: 1, ..Folded::default() };
    recording.meta.budget = 0.03;
    recording.sampling = Some(Sampling {
        unrecorded_blocks: 60_000,
        unrecorded_bytes: 50_000_000,
        widest_interval_bytes: 8192,
        cpu_seconds: 1.5,
        exact_seconds: 0.25,
        spent_seconds: 0.0625,
    });
    recording
}

#[test]
fn folded_counts_and_scope_sums_survive_in_pytorch_snapshots() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = folded();
    let original = saved(&folder, "a.memtrack", &recording);
    let summary = text(&["summary"], &original);
    for words in [
        "  Folded         scopes beyond what the recorder can distinguish were entered 7,000 times",
        "                 12 events had no stack recorded because the recorder's table of stacks was full",
        "                 1 thread beyond what the recorder can distinguish",
    ] {
        assert!(summary.contains(words), "{summary}");
    }
    let value = &json(&["summary"], &original)["devices"][0];
    assert_eq!(
        (&value["folded_scopes"], &value["folded"]),
        (
            &7_000.into(),
            &serde_json::json!({"blocks": 0, "driver_allocations": 0, "driver_bytes": 0, "stacks": 12, "threads": 1})
        )
    );
    let top = text(&["top", "--by", "operator"], &original);
    assert!(top.contains("\nFolded: 12 events") && top.contains(" 23.8 MiB  27.8 %  "), "{top}");
    let pickle = saved(&folder, "a.pickle", &recording);
    let again = Snapshot::open(&pickle, LoadOptions::default()).unwrap().snapshot;
    assert_eq!(
        (again.folded, again.sampling, again.meta.budget),
        (recording.folded, recording.sampling, 0.03)
    );
    let others = [saved(&folder, "a.json", &recording), saved(&folder, "again.memtrack", &again), pickle];
    let same: [&[&str]; 6] = [
        &["summary"],
        &["peak"],
        &["top", "--by", "operator"],
        &["top", "--by", "module"],
        &["top", "--by", "phase"],
        &["check", "--max-peak", "1KiB"],
    ];
    for arguments in same {
        for other in &others {
            assert_eq!(json(arguments, other), json(arguments, &original), "{arguments:?} {other:?}");
        }
    }
    // If a program was killed, the sums in its file are out of date, which the report states.
    recording.meta.complete = false;
    let top = text(&["top", "--by", "operator"], &saved(&folder, "b.pickle", &recording));
    assert!(top.contains("those of 0.003 s after the start; the recording was not ended"), "{top}");
    // If nothing was folded, the reports do not mention it.
    recording.folded = Folded::default();
    recording.scope_sums.as_mut().unwrap().folded = 0;
    for name in ["c.memtrack", "c.pickle"] {
        let path = saved(&folder, name, &recording);
        for verb in ["summary", "top"] {
            assert!(!text(&[verb], &path).contains("Folded"), "{name}");
        }
    }
    let pytorch = memtrack_tests::fixture("snapshots/samples/basic-1.pickle");
    assert!(json(&["summary"], &pytorch)["devices"][0]["folded"].is_null());
}

#[test]
fn no_report_shows_an_estimate_without_its_error() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.memtrack", "a.pickle"] {
        let path = saved(&folder, name, &estimated());
        for verb in [
            &["top"][..],
            &["top", "--by", "size"],
            &["summary"],
            &["peak"],
            &["check", "--max-peak", "1GiB"],
        ] {
            let page = text(verb, &path);
            assert!(!page.contains('~') && page.contains(" ± "), "{verb:?}: {page}");
        }
        for verb in ["memory", "segments"] {
            let picture = folder.path().join(format!("{name}.{verb}.svg"));
            let output = run(&[verb, "-o", picture.to_str().unwrap()], &path);
            assert!(output.status.success());
            let picture = std::fs::read_to_string(picture).unwrap();
            let title = picture.lines().find(|line| line.contains(" of host heap: ")).unwrap();
            assert!(
                title.contains(" % in use (small blocks were sampled)") && !title.contains('~'),
                "{title}"
            );
            let answer = json(&[verb], &path);
            let rows = answer["rows"].as_array().unwrap();
            let used = || rows.iter().filter(|row| row["part"] == "requested");
            assert!(used().any(|row| {
                row["size_bytes_error"]["standard_error"].as_f64().is_some_and(|error| error > 0.0)
            }));
            assert!(used().all(|row| {
                let bytes = row["size_bytes"].as_u64().unwrap();
                let end = |end| row["size_bytes_error"][end].as_u64().unwrap_or(bytes);
                (end("low")..=end("high")).contains(&bytes)
            }));
        }
    }
    // PyTorch's text has no place for the note, so it is printed on standard error.
    for verb in [&["stats"][..], &["trace"], &["memory", "--folded"], &["segments", "--folded"]] {
        let path = saved(&folder, "b.memtrack", &recording());
        let stderr = String::from_utf8(run(verb, &path).stderr).unwrap();
        assert!(stderr.contains("small blocks were sampled"), "{verb:?}: {stderr}");
        let exact = saved(&folder, "c.memtrack", &memtrack_tests::snapshots::small());
        assert!(!String::from_utf8(run(verb, &exact).stderr).unwrap().contains("sampled"), "{verb:?}");
    }
}

#[test]
fn completely_recorded_blocks_carry_no_mark() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = scoped();
    recording.meta.sample_threshold_bytes = THRESHOLD;
    recording.meta.sample_mean_bytes = 4096;
    let large = event(1000, Action::Alloc, 0x10_0000, 1 << 20);
    recording.events.push(&large);
    recording.blocks = vec![live(&large)];
    let counts = DeviceStatistics { allocated_bytes: 1 << 20, allocations: 1, ..DeviceStatistics::of(HOST) };
    recording.devices = vec![counts];
    let path = saved(&folder, "all.memtrack", &recording);
    for verb in ["top", "summary", "peak"] {
        assert!(!text(&[verb], &path).contains('~'), "{}", text(&[verb], &path));
    }
    // Small blocks were counted, but none of them was sampled. The row is exact for the recorded block, and the reported sums
    // lack the small blocks.
    recording.devices[0].allocated_bytes += 3_000;
    recording.devices[0].allocations += 30;
    let path = saved(&folder, "more.memtrack", &recording);
    let page = text(&["top"], &path);
    assert!(page.contains(" 1.0 MiB") && page.contains("Peak: 1.0 MiB"), "{page}");
    assert!(page.contains("less than 2.9 KiB in such blocks may be missing"), "{page}");
    assert_eq!(json(&["top"], &path)["devices"][0]["rows"][0]["estimated"], false);
}

/// Returns a sampled heap whose exact sums and peak are below the estimates from its samples.
fn counted() -> Snapshot {
    let mut snapshot = recorded(false);
    let size = |row: usize| snapshot.events.size_bytes[row];
    let allocations =
        || (0..snapshot.events.len()).filter(|&row| snapshot.events.action[row] == Action::Alloc);
    let recorded_bytes: u64 = allocations().map(size).sum();
    let live: u64 = snapshot.blocks.iter().map(|block| block.size_bytes).sum();
    let blocks = snapshot.blocks.len() as u64;
    let (allocated_bytes, allocations) = (recorded_bytes + 500_000, allocations().count() as u64 + 300);
    let counts = &mut snapshot.devices[0];
    (counts.allocated_bytes, counts.allocations) = (allocated_bytes, allocations);
    (counts.freed_bytes, counts.frees) = (allocated_bytes - live - 20_000, allocations - blocks - 10);
    snapshot.sampling =
        Some(Sampling { unrecorded_blocks: 300, unrecorded_bytes: 500_000, ..Sampling::default() });
    let peak = live + live / 10;
    snapshot.counted_peak = Some(CountedPeak {
        ticks: 1_200_000,
        bytes: peak,
        most_bytes: peak + 30_000,
        since_ticks: 3_000,
        until_ticks: 2_000_000,
        events_before: None,
    });
    snapshot
}

#[test]
fn parts_of_a_sampled_heap_add_up_to_no_more_than_the_count() {
    let folder = tempfile::tempdir().unwrap();
    let recording = counted();
    let path = saved(&folder, "a.memtrack", &recording);
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap_or_else(|| panic!("{key}: {value}"));
    let high = |value: &Value, key: &str| {
        let error = &value[&format!("{key}_error")];
        error["high"].as_u64().unwrap_or_else(|| number(value, key))
    };
    let peak = json(&["top"], &path)["devices"][0]["peak"].clone();
    let most = high(&peak, "live_bytes");
    let counts = recording.devices[0];
    let ends = [
        (None, counts.allocated_bytes),
        (Some("peak"), most),
        (Some("end"), counts.allocated_bytes - counts.freed_bytes),
    ];
    for by in ["line", "stack", "operator", "module", "phase", "size", "frame"] {
        for (at, whole) in ends {
            let mut arguments = vec!["top", "-n", "0", "--by", by];
            arguments.extend(at.iter().flat_map(|at| ["--at", at]));
            let device = json(&arguments, &path)["devices"][0].clone();
            let rows = device["rows"].as_array().unwrap();
            let sum: u64 = rows.iter().map(|row| number(row, "requested_bytes")).sum();
            assert!(!rows.is_empty() && sum <= whole, "{arguments:?}: {sum} of {whole}");
            assert!(number(&device["totals"], "requested_bytes") <= whole, "{arguments:?}");
            let live: u64 = rows.iter().map(|row| number(row, "live_at_peak_bytes")).sum();
            assert!(at == Some("end") || live <= most, "{arguments:?}: {live} of {most}");
            for row in rows {
                assert!(row["share"].as_f64().unwrap() <= 1.0, "{row}");
                assert!(high(row, "requested_bytes") <= whole, "{arguments:?}: {row}");
                assert!(high(row, "live_at_peak_bytes") <= most, "{arguments:?}: {row}");
                let is_new = !row["name"].as_str().unwrap_or_default().contains("before");
                let fits = high(row, "live_at_peak_bytes") <= high(row, "requested_bytes");
                assert!(at.is_some() || !is_new || fits, "{arguments:?}: {row}");
            }
        }
    }
    for (at, whole) in [("peak", most), ("end", counts.allocated_bytes - counts.freed_bytes)] {
        let device = json(&["memory", "--at", at], &path)["devices"][0].clone();
        let stacks = device["stacks"].as_array().unwrap();
        let sum: u64 = stacks.iter().map(|stack| number(stack, "requested_bytes")).sum();
        assert!(sum <= whole && high(&device, "requested_bytes") <= whole, "{at}: {sum} of {whole}");
    }
    let groups = json(&["peak", "-n", "0"], &path)["devices"][0]["rows"].clone();
    let sum: u64 = groups.as_array().unwrap().iter().map(|row| number(row, "requested_bytes")).sum();
    assert!(sum <= most, "{sum} of {most}");
    let mut query = HoldsQuery::default();
    query.at = HeldAt::Peak;
    let held = WhoHolds::of_all(&recording, &mut Symbolizer::of(&recording), &query).unwrap();
    assert!(held.holders.iter().map(|holder| holder.allocated_bytes).sum::<u64>() <= most, "{held}");
    assert!(held.holders.iter().all(|holder| holder.share <= 1.0), "{held}");
}

#[test]
fn one_large_block_of_a_sampled_heap_is_exact() {
    let folder = tempfile::tempdir().unwrap();
    let mut recording = scoped();
    recording.meta.sample_threshold_bytes = 64 << 10;
    recording.meta.budget = 0.03;
    let large = event(1000, Action::Alloc, 0x10_0000, 32 << 20);
    recording.events.push(&large);
    recording.blocks = vec![live(&large)];
    // Three million bytes in small blocks, none of which was sampled.
    let counts = DeviceStatistics {
        allocated_bytes: (32 << 20) + 3_000_000,
        allocations: 20_001,
        ..DeviceStatistics::of(HOST)
    };
    recording.devices = vec![counts];
    recording.sampling = Some(Sampling {
        unrecorded_blocks: 20_000,
        unrecorded_bytes: 3_000_000,
        widest_interval_bytes: 1 << 20,
        ..Sampling::default()
    });
    let path = saved(&folder, "a.memtrack", &recording);
    for arguments in [&["top", "--by", "stack"][..], &["top", "--by", "stack", "--at", "end"], &["peak"]] {
        let page = text(arguments, &path);
        let mut lines = page.lines();
        let row = lines.find(|line| line.contains("32.0 MiB") && !line.contains("eak")).unwrap_or_default();
        assert!(!row.contains('±') && !row.contains('<'), "{arguments:?}: {page}");
        let row = json(arguments, &path)["devices"][0]["rows"][0].clone();
        assert_eq!(
            (row["requested_bytes"].as_u64(), row["count"].as_u64()),
            (Some(32 << 20), Some(1)),
            "{row}"
        );
        assert!(row["requested_bytes_error"].is_null() && row["count_error"].is_null(), "{row}");
    }
    let page = text(&["top", "--by", "stack"], &path);
    assert!(page.contains("any row may be low by as much"), "{page}");
}

#[test]
fn an_unfinished_recording_has_lower_bounds_and_passes_no_limit() {
    let folder = tempfile::tempdir().unwrap();
    for (name, mut recording) in [("exact", memtrack_tests::snapshots::small()), ("sampled", counted())] {
        for suffix in ["memtrack", "pickle"] {
            recording.meta.complete = true;
            let whole = saved(&folder, &format!("{name}-whole.{suffix}"), &recording);
            recording.meta.complete = false;
            let path = saved(&folder, &format!("{name}.{suffix}"), &recording);
            let peak = json(&["top"], &path)["devices"][0]["peak"].clone();
            assert!(
                peak["live_bytes_error"]["high"].is_null() && !peak["live_bytes_error"].is_null(),
                "{peak}"
            );
            let low = peak["live_bytes_error"]["low"].as_u64().unwrap();
            for (arguments, shows) in [
                (&["summary"][..], "Peak           at least "),
                (&["summary"], "Allocated      at least "),
                (&["summary"], "Not ended"),
                (&["top"], "Peak: at least "),
                (&["top"], "Requested: at least "),
                (&["top", "--at", "end"], "Live at that moment: at least "),
                (&["peak"], ": at least "),
                (&["peak"], "was not ended"),
            ] {
                let page = text(arguments, &path);
                assert!(page.contains(shows), "{name}.{suffix} {arguments:?}: {page}");
                assert!(!text(arguments, &whole).contains("not ended"), "{name}.{suffix} {arguments:?}");
            }
            for verb in [&["summary"][..], &["top"], &["peak"], &["memory", "--at", "peak"]] {
                let complete = |path| json(verb, path)["devices"][0]["complete"].as_bool();
                assert_eq!([complete(&path), complete(&whole)], [Some(false), Some(true)], "{verb:?}");
            }
            let device = json(&["memory", "--at", "end"], &path)["devices"][0].clone();
            assert!(device["requested_bytes_error"]["high"].is_null(), "{device}");
            // A limit not exceeded so far may have been exceeded later; an exceeded limit stays exceeded.
            let verdict = |limit: u64, path: &PathBuf| {
                let output = run(&["check", "--max-peak", &limit.to_string()], path);
                (output.status.code(), String::from_utf8(output.stdout).unwrap())
            };
            let (code, line) = verdict(1 << 40, &path);
            assert!(code == Some(1) && line.starts_with("uncertain: peak of host heap: at least "), "{line}");
            let (code, line) = verdict(low / 2, &path);
            assert!(code == Some(1) && line.starts_with("exceeded: "), "{line}");
            assert_eq!(verdict(1 << 40, &whole).0, Some(0));
            let answer = json(&["check", "--max-peak", "1TiB"], &path);
            assert_eq!(
                (&answer["complete"], &answer["peak"]["verdict"]),
                (&false.into(), &"cannot_tell".into())
            );
        }
    }
}

#[test]
fn a_truncated_recording_passes_no_limit() {
    let folder = tempfile::tempdir().unwrap();
    let path = saved(&folder, "a.memtrack", &recording());
    let bytes = std::fs::read(&path).unwrap();
    for share in [3, 5, 7, 9] {
        let cut = folder.path().join(format!("{share}.memtrack"));
        std::fs::write(&cut, &bytes[..bytes.len() * share / 10]).unwrap();
        let output = run(&["check", "--max-peak", "1TiB"], &cut);
        // A recording that is cut before its first event cannot be checked at all.
        assert!(matches!(output.status.code(), Some(1 | 3)), "{share}: {output:?}");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("within the limits"), "{share}");
    }
}
