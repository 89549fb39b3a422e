//! `memtrack convert` to the formats of other tools: the written files are decoded, and their sums equal those of `memtrack peak`
//! and `memtrack top`. `tests/tools/exports.py` opens the files with these tools.

use memtrack_core::dataset::EVENTS_WITH_LINES;
use memtrack_core::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId};
use memtrack_core::exports::{EXPORTS, ExportOptions};
use memtrack_core::snapshot::pytorch::{Compression, LoadOptions};
use memtrack_core::snapshot::{Sampling, Snapshot, SnapshotFiles};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::pprof::Profile;
use memtrack_tests::snapshots::{event, small};
use memtrack_tests::verbs::{json, text};
use memtrack_tests::{fixture, memtrack, oracle};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn convert(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(memtrack()).arg("convert").args(arguments).current_dir(folder).output().unwrap()
}

fn converted(from: &Path, folder: &Path, to: &str, more: &[&str]) -> PathBuf {
    let output = convert(folder, &[&[from.to_str().unwrap(), to, "--force"], more].concat());
    assert_eq!(output.status.code(), Some(0), "{to}: {}", String::from_utf8_lossy(&output.stderr));
    folder.join(to)
}

/// Returns a recording of a sampled heap and two devices, one of which has a second stream.
fn recording() -> Snapshot {
    let mut snapshot = small();
    snapshot.meta.sample_threshold_bytes = 4096;
    snapshot.meta.sample_mean_bytes = 4096;
    snapshot.devices.clear();
    let (unrecorded_blocks, unrecorded_bytes) = (2_000, 900_000);
    snapshot.sampling = Some(Sampling {
        unrecorded_blocks,
        unrecorded_bytes,
        widest_interval_bytes: 4096,
        ..Sampling::default()
    });
    for number in 0..300u64 {
        let device = [DeviceId::HOST, DeviceId(0), DeviceId(1)][number as usize % 3];
        let alloc = Event {
            device,
            stack: StackId(number as u32 % 3),
            scope: ScopeId(number as u32 % 4),
            stream: StreamId(if device == DeviceId(1) { number % 2 * 0xab } else { 0 }),
            flags: if device == DeviceId::HOST { EventFlags::SAMPLED } else { EventFlags::default() },
            ..event(2_000 + 10 * number, Action::Alloc, 0x6000_0000 + (number << 20), 16 + 13 * number)
        };
        snapshot.events.push(&alloc);
        if number % 4 == 0 {
            snapshot.events.push(&Event { ticks: alloc.ticks + 3_000, action: Action::Free, ..alloc });
        }
    }
    snapshot.events.sort_by_ticks();
    snapshot
}

/// Saves the recording, and returns its path with the paths of fixtures that have events on some device.
fn inputs(folder: &Path) -> Vec<PathBuf> {
    let recorded = folder.join("recorded.memtrack");
    recording().save(&recorded).unwrap();
    let samples = ["multi-gpu", "basic-2", "wrapped", "host-pinned", "cpp-frames"];
    let samples = samples.map(|name| fixture(&format!("snapshots/samples/{name}.pickle")));
    let made = ["trace_unmatched", "trace_overlap", "trace_multi_device", "profile_like"];
    let made = made.map(|name| oracle(&format!("snapshots/synth/{name}.pickle")));
    [recorded].into_iter().chain(samples).chain(made).collect()
}

/// Returns four numbers for each device: the blocks and the requested bytes of the whole file, as `top` reports them, and those
/// at the peak, as `peak` reports them.
fn reported(file: &Path) -> BTreeMap<String, [i64; 4]> {
    let mut reported: BTreeMap<String, [i64; 4]> = BTreeMap::new();
    for (verb, place) in [(&["top", "--by", "stack"][..], 0), (&["peak"], 2)] {
        for device in json(verb, file)["devices"].as_array().unwrap() {
            let totals = &device["totals"];
            let sums = reported.entry(device["device"]["name"].as_str().unwrap().to_owned()).or_default();
            sums[place] = totals["count"].as_i64().unwrap();
            sums[place + 1] = totals["requested_bytes"].as_i64().unwrap();
        }
    }
    reported.retain(|_, sums| *sums != [0; 4]);
    reported
}

#[test]
fn pprof_has_the_totals_of_top_and_peak_for_each_device() {
    let folder = tempfile::tempdir().unwrap();
    for file in inputs(folder.path()) {
        let profile = Profile::read(&converted(&file, folder.path(), "a.pb.gz", &[]));
        let types: Vec<_> = profile
            .sample_type
            .iter()
            .map(|kind| (profile.text(kind.first), profile.text(kind.second)))
            .collect();
        let expected = [
            ("alloc_objects", "count"),
            ("alloc_space", "bytes"),
            ("inuse_objects", "count"),
            ("inuse_space", "bytes"),
        ];
        assert_eq!(types, expected);
        assert_eq!(profile.text(profile.default_sample_type), "inuse_space");
        assert_eq!(profile.text(0), "");
        let (found, expected) = (profile.sums(), reported(&file));
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            expected.keys().collect::<Vec<_>>(),
            "{}",
            file.display()
        );
        for (device, sums) in &found {
            let expected = expected[device];
            assert_eq!((sums[1], sums[3]), (expected[1], expected[3]), "{} {device}", file.display());
            // Estimated block counts are fractional, and each row is rounded.
            let rounded = profile.sample.len() as i64;
            let tolerance = if device == "host heap" { rounded } else { 0 };
            assert!(
                (sums[0] - expected[0]).abs() <= tolerance && (sums[2] - expected[2]).abs() <= tolerance,
                "{device}"
            );
        }
        for (place, location) in profile.location.iter().enumerate() {
            assert_eq!(location.id, place as u64 + 1);
        }
    }
}

#[test]
fn a_profile_marks_estimates_and_has_their_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.memtrack");
    recording().save(&file).unwrap();
    let profile = Profile::read(&converted(&file, folder.path(), "a.pprof", &[]));
    let comments = profile.comments();
    let comment = |start: &str| comments.iter().find(|text| text.starts_with(start)).copied().unwrap();
    assert!(
        comment("host heap: inuse: ").contains(" ± ")
            && comment("host heap: inuse: ").ends_with(" at the peak")
    );
    assert!(comment("host heap: alloc: ").contains(" ± "), "{comments:?}");
    assert!(comment("host heap: small blocks were sampled").contains("estimates"));
    // Device memory is not sampled, and has no such comments.
    assert!(!comment("device 0: inuse: ").contains('±'));
    assert!(!comments.iter().any(|text| text.starts_with("device 0: small")));
    assert_eq!(profile.period, 4096);
    // The newest event is the free of block 296.
    assert_eq!((profile.time_nanos, profile.duration_nanos), (0, 2_000 + 10 * 296 + 3_000));
}

#[test]
fn a_profile_has_labels_and_the_binaries_of_frames_without_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.memtrack");
    recording().save(&file).unwrap();
    let profile = Profile::read(&converted(&file, folder.path(), "a.pb.gz", &[]));
    let labels = |key: &str| {
        let mut texts: Vec<_> =
            profile.sample.iter().filter_map(|sample| profile.label(sample, key)).collect();
        texts.sort_unstable();
        texts.dedup();
        texts
    };
    assert_eq!(labels("device"), ["device 0", "device 1", "host heap"]);
    assert_eq!(labels("stream"), ["0xab"]);
    assert_eq!(labels("operator"), ["encoder.forward.matmul"]);
    assert_eq!(labels("module"), ["encoder"]);
    assert_eq!(labels("phase"), ["forward"]);
    // The recorded program does not exist here: tools find it by its build id.
    let [mapping] = &profile.mapping[..] else { panic!("{:?}", profile.mapping) };
    assert_eq!(profile.text(mapping.filename), "/bin/program");
    assert_eq!(profile.text(mapping.build_id), "00112233445566778899");
    assert_eq!(
        (mapping.id, mapping.memory_start, mapping.memory_limit),
        (1, 0x5555_0000_1000, 0x5555_0000_9000)
    );
    assert!(!mapping.has_functions);
    let unnamed: Vec<_> = profile.location.iter().filter(|location| location.mapping_id == 1).collect();
    // The addresses of the calls: one byte before the return addresses.
    let mut calls: Vec<_> = unnamed.iter().map(|location| location.address).collect();
    calls.sort_unstable();
    assert_eq!(calls, [0x5555_0000_1233, 0x5555_0000_2344, 0x5555_0000_3455]);
    assert!(unnamed.iter().all(|location| location.line.is_empty()));
    assert!(profile.sample.iter().any(|sample| profile.functions(sample) == [("(no stack)", "", 0)]));
}

#[test]
fn a_profile_names_functions_with_their_files_and_lines() {
    let folder = tempfile::tempdir().unwrap();
    let file = fixture("snapshots/samples/multi-gpu.pickle");
    let profile = Profile::read(&converted(&file, folder.path(), "a.pb.gz", &[]));
    let stack = [("case_multi", "/workspace/train.py", 80), ("<module>", "/workspace/launch.py", 27)];
    assert!(profile.sample.iter().all(|sample| profile.functions(sample) == stack));
    // Frames in PyTorch's snapshots have no addresses.
    assert!(profile.mapping.is_empty() && profile.location.iter().all(|location| location.address == 0));
}

/// Tools rank functions by their self value: if the allocator's frames were kept, the innermost one would have all memory.
#[test]
fn stacks_of_a_profile_begin_at_the_requesting_function() {
    let folder = tempfile::tempdir().unwrap();
    let file = fixture("snapshots/samples/cpp-frames.pickle");
    let all = fs::read(&file).unwrap();
    let has = |name: &[u8]| all.windows(name.len()).any(|window| window == name);
    assert!(has(b"torch::unwind::unwind()") && has(b"c10::"));
    let profile = Profile::read(&converted(&file, folder.path(), "a.pb.gz", &[]));
    for sample in &profile.sample {
        let (innermost, ..) = profile.functions(sample)[0];
        assert!(!innermost.starts_with("torch::unwind::") && !innermost.starts_with("c10::"), "{innermost}");
    }
}

/// The files include unusual names, numbers at the limits of their ranges, and empty snapshots.
#[test]
fn every_snapshot_can_be_written_in_every_format() {
    let mut files = 0;
    for folder in [fixture("snapshots/samples"), oracle("snapshots/synth")] {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|suffix| suffix != "pickle") {
                continue;
            }
            let Ok(loaded) = Snapshot::open(&path, LoadOptions::default()) else { continue };
            files += 1;
            let mut snapshot = loaded.snapshot;
            snapshot.order_by_time();
            let (mut symbols, options) = (Symbolizer::of(&snapshot), ExportOptions::of(&snapshot));
            for export in &EXPORTS {
                for compression in [Compression::None, Compression::Zstd] {
                    let mut written = Vec::new();
                    let result = export.write(&snapshot, &mut symbols, &options, &mut written, compression);
                    result.unwrap_or_else(|error| panic!("{} {}: {error}", path.display(), export.name));
                }
            }
        }
    }
    assert!(files > 50, "{files}");
}

#[test]
fn devices_and_moments_can_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.memtrack");
    recording().save(&file).unwrap();
    let of = |more: &[&str]| Profile::read(&converted(&file, folder.path(), "a.pb.gz", more)).sums();
    let end = of(&["--at", "end", "--device", "1"]);
    assert_eq!(end.keys().collect::<Vec<_>>(), ["device 1"]);
    let reported = json(&["top", "--at", "end", "--device", "1"], &file);
    assert_eq!(Some(end["device 1"][3]), reported["devices"][0]["totals"]["requested_bytes"].as_i64());
    assert_ne!(end["device 1"][3], of(&[])["device 1"][3]);
    for (arguments, expected) in [
        (&["a.memtrack", "b.csv", "--at", "peak"][..], "--at: a csv file covers the whole time"),
        (&["a.memtrack", "b.json", "--device", "0"], "--device: a json file holds a whole snapshot"),
        (&["a.memtrack", "b.pickle", "--at", "end"], "--at: a pickle file"),
        (&["a.memtrack", "b.pb.gz", "--at", "oom"], "device 0 never ran out of memory"),
        (&["a.memtrack", "b.pb.gz.zst"], "pprof files are gzip already"),
        (&["a.memtrack", "b.parquet.gz"], "parquet files are compressed already: leave .gz out"),
        (&["a.memtrack", "b.parquet", "--at", "end"], "--at: a parquet file covers the whole time"),
        (&["a.memtrack", "-", "--to", "perf"], "--to perf: use pickle, json, memtrack, pprof"),
    ] {
        let output = convert(folder.path(), arguments);
        let why = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && why.contains(expected), "{arguments:?}: {why}");
    }
}

/// Reads the rows of a Parquet file of events as maps from column names to values.
fn events(path: &Path) -> Vec<HashMap<String, Field>> {
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let names = reader.metadata().file_metadata().schema_descr_ptr();
    let names: Vec<&str> = names.columns().iter().map(|column| column.name()).collect();
    assert_eq!(names, EVENTS_WITH_LINES.columns.iter().map(|column| column.name).collect::<Vec<_>>());
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
    rows.map(|row| row.get_column_iter().map(|(name, value)| (name.clone(), value.clone())).collect())
        .collect()
}

#[test]
fn events_as_parquet_have_the_lines_and_the_sums_of_the_table_of_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let file = fixture("snapshots/samples/multi-gpu.pickle");
    let rows = events(&converted(&file, folder.path(), "a.parquet", &[]));
    let mut of_events: BTreeMap<(String, String), i64> = BTreeMap::new();
    let (mut allocated, mut freed) = (HashMap::new(), 0);
    for row in &rows {
        let text = |name: &str| match &row[name] {
            Field::Str(text) => text.clone(),
            Field::Null => String::new(),
            other => panic!("{name}: {other:?}"),
        };
        match (&row["action"], &row["size_bytes"], &row["event"], &row["alloc_event"]) {
            (Field::Str(action), &Field::Long(bytes), &Field::Long(event), _) if action == "alloc" => {
                *of_events.entry((text("line"), text("called"))).or_default() += bytes;
                allocated.insert(event, row["address"].clone());
            }
            (Field::Str(action), _, _, Field::Long(alloc)) if action == "free_completed" => {
                assert_eq!(allocated[alloc], row["address"]);
                freed += 1;
            }
            _ => {}
        }
    }
    let mut of_blocks: BTreeMap<(String, String), i64> = BTreeMap::new();
    let mut ends = 0;
    let mut blocks = csv::Reader::from_path(converted(&file, folder.path(), "a.csv", &[])).unwrap();
    for block in blocks.deserialize::<HashMap<String, String>>().map(Result::unwrap) {
        if block["older_than_trace"] == "false" {
            let place = (block["line"].clone(), block["called"].clone());
            *of_blocks.entry(place).or_default() += block["requested_bytes"].parse::<i64>().unwrap();
            ends += usize::from(!block["free_completed_event"].is_empty());
        }
    }
    assert_eq!(of_events, of_blocks);
    assert_eq!(freed, ends);
    assert!(of_events.keys().any(|(line, _)| line.starts_with("train.py:80 ")), "{of_events:?}");
    // With `--device`, events keep their numbers.
    let one = events(&converted(&file, folder.path(), "one.parquet", &["--device", "1"]));
    let expected: Vec<_> = rows.iter().filter(|row| row["device"] == Field::Int(1)).collect();
    assert!(!expected.is_empty() && expected.len() < rows.len());
    assert!(one.iter().eq(expected));
}

#[test]
fn collapsed_stacks_are_those_of_memory_and_make_flame_graphs() {
    let folder = tempfile::tempdir().unwrap();
    for file in inputs(folder.path()) {
        for at in ["peak", "end"] {
            let lines =
                fs::read_to_string(converted(&file, folder.path(), "a.folded", &["--at", at])).unwrap();
            assert_eq!(lines, text(&["memory", "--at", at, "--folded"], &file), "{}", file.display());
            let bytes = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
            let reported = json(&["top", "--by", "stack", "--at", at], &file);
            let reported = reported["devices"].as_array().unwrap().iter();
            let reported: u64 =
                reported.map(|device| device["totals"]["requested_bytes"].as_u64().unwrap()).sum();
            assert_eq!(lines.lines().map(bytes).sum::<u64>(), reported, "{}", file.display());
            if reported > 0 {
                let (mut options, mut svg) = (inferno::flamegraph::Options::default(), Vec::new());
                inferno::flamegraph::from_lines(&mut options, lines.lines(), &mut svg).unwrap();
                assert!(String::from_utf8(svg).unwrap().contains("100%"));
            }
        }
    }
}

#[test]
fn speedscope_has_the_peak_the_end_and_the_total_of_each_device() {
    let folder = tempfile::tempdir().unwrap();
    for file in inputs(folder.path()) {
        let path = converted(&file, folder.path(), "a.speedscope.json", &[]);
        let scope: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        assert_eq!(scope["$schema"], "https://www.speedscope.app/file-format-schema.json");
        let frames = scope["shared"]["frames"].as_array().unwrap().len() as u64;
        let mut found: BTreeMap<(String, &str), i64> = BTreeMap::new();
        for profile in scope["profiles"].as_array().unwrap() {
            assert_eq!((&profile["type"], &profile["unit"]), (&"sampled".into(), &"bytes".into()));
            let weights: Vec<u64> = profile["weights"]
                .as_array()
                .unwrap()
                .iter()
                .map(|weight| weight.as_u64().unwrap())
                .collect();
            let samples = profile["samples"].as_array().unwrap();
            assert_eq!(samples.len(), weights.len());
            let indices = samples.iter().flat_map(|sample| sample.as_array().unwrap());
            assert!(indices.clone().all(|index| index.as_u64().unwrap() < frames));
            assert!(weights.is_sorted_by(|a, b| a >= b), "the largest first");
            assert_eq!(profile["endValue"].as_u64(), Some(weights.iter().sum::<u64>()));
            let (device, of) = profile["name"].as_str().unwrap().split_once(": ").unwrap();
            let of = ["in use at the peak", "in use at the end", "allocated in all"]
                .into_iter()
                .find(|start| of.starts_with(start));
            found.insert((device.to_lowercase(), of.unwrap()), profile["endValue"].as_i64().unwrap());
        }
        for (device, sums) in reported(&file) {
            let of = |what| found.get(&(device.clone(), what)).copied().unwrap_or_default();
            assert_eq!(of("allocated in all"), sums[1], "{} {device}", file.display());
            assert_eq!(of("in use at the peak"), sums[3], "{} {device}", file.display());
        }
    }
}

/// The peak, and the event at which it was reached, can be computed from the table alone.
#[test]
fn the_table_of_blocks_has_all_live_blocks_of_any_moment() {
    let folder = tempfile::tempdir().unwrap();
    for file in inputs(folder.path()) {
        let path = converted(&file, folder.path(), "a.csv", &[]);
        let mut rows: HashMap<String, Vec<BTreeMap<String, String>>> = HashMap::new();
        for row in csv::Reader::from_path(path).unwrap().deserialize() {
            let row: BTreeMap<String, String> = row.unwrap();
            rows.entry(row["device_name"].clone()).or_default().push(row);
        }
        let peaks = json(&["peak"], &file);
        for (device, sums) in reported(&file) {
            let rows = &rows[&device];
            let number = |row: &BTreeMap<String, String>, column: &str| row[column].parse::<i64>().ok();
            let bytes = |row: &BTreeMap<String, String>| {
                let (size, blocks) =
                    (number(row, "requested_bytes").unwrap(), row["blocks"].parse::<f64>().unwrap());
                assert_eq!(row["estimated"] == "true", blocks > 1.0);
                // Without a decimal point, a reader that infers types from the first rows would take the column for integers.
                assert!(row["blocks"].contains('.'), "{row:?}");
                (size as f64 * blocks).round() as i64
            };
            let allocated = rows.iter().filter(|row| row["older_than_trace"] == "false");
            assert_eq!(allocated.map(bytes).sum::<i64>(), sums[1], "{} {device}", file.display());
            assert!(
                rows.iter()
                    .all(|row| (row["older_than_trace"] == "true") == row["allocated_event"].is_empty())
            );
            // Snapshots from old versions of PyTorch have no times.
            let is_timed = rows.iter().any(|row| !row["allocated_ns"].is_empty());
            assert!(rows.iter().all(|row| {
                (!is_timed || row["allocated_event"].is_empty()) == row["allocated_ns"].is_empty()
            }));
            // In this file, an allocation at a live address ends the older block, whose free was not recorded.
            if file.ends_with("trace_overlap.pickle") {
                continue;
            }
            let mut changes: BTreeMap<i64, i64> = BTreeMap::new();
            for row in rows {
                *changes.entry(number(row, "allocated_event").unwrap_or(-1)).or_default() += bytes(row);
                let freed = number(row, "free_requested_event").or(number(row, "free_completed_event"));
                if let Some(freed) = freed {
                    *changes.entry(freed).or_default() -= bytes(row);
                }
            }
            let (mut live, mut highest, mut at) = (0, -1, None);
            for (event, change) in changes {
                live += change;
                if live > highest {
                    (highest, at) = (live, Some(event));
                }
            }
            assert_eq!(highest, sums[3], "{} {device}", file.display());
            let peak =
                peaks["devices"].as_array().unwrap().iter().find(|one| one["device"]["name"] == device[..]);
            let event = peak.unwrap()["highest"]["event"].as_i64();
            assert_eq!(at.filter(|&at| at >= 0), event, "{} {device}", file.display());
        }
    }
}

#[test]
fn the_header_of_the_table_is_stable() {
    let folder = tempfile::tempdir().unwrap();
    let file = fixture("snapshots/samples/multi-gpu.pickle");
    let table = fs::read_to_string(converted(&file, folder.path(), "a.csv", &["--device", "1"])).unwrap();
    let expected = "\
device,device_name,address,requested_bytes,blocks,estimated,stream,older_than_trace,allocated_event,allocated_ns,\
free_requested_event,free_requested_ns,free_completed_event,free_completed_ns,thread,operator,module,phase,category,line,called
1,device 1,0x7f2c40000000,400,1.0,false,0x0,false,1,6000,,,,,,,,,,train.py:80 case_multi,
1,device 1,0x7f2c40e00000,12582912,1.0,false,0x0,false,3,54000,,,,,,,,,,train.py:80 case_multi,
";
    assert_eq!(table, expected);
}

#[test]
fn standard_output_gets_the_bytes_of_a_file_and_json_states_the_format() {
    let folder = tempfile::tempdir().unwrap();
    let file = fixture("snapshots/samples/multi-gpu.pickle");
    for (to, ending) in [
        ("pprof", "pb.gz"),
        ("speedscope.gz", "speedscope.json.gz"),
        ("collapsed", "folded"),
        ("csv.zst", "csv.zst"),
    ] {
        let written = converted(&file, folder.path(), &format!("a.{ending}"), &[]);
        let output = convert(folder.path(), &[file.to_str().unwrap(), "-", "--to", to]);
        assert!(output.stdout == fs::read(written).unwrap(), "{to}");
        let output = convert(folder.path(), &[file.to_str().unwrap(), "b", "--to", to, "--json", "--force"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&answer["format"], &answer["path"]), (&ending.into(), &"b".into()));
    }
}
