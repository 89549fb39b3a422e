//! Scrubbed snapshots: no written file contains a secret, and reports show the same numbers.

use memtrack_core::event::{Action, Event, ScopeId, StackId, ThreadId};
use memtrack_core::scrub::Scrub;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::{Module, Scope, ScopeKind, Snapshot, SnapshotFiles};
use memtrack_core::stack::symbols::Frame;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::snapshots::{event, live};
use memtrack_tests::{fixture, memtrack, oracle};
use serde_json::{Value, json};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The text that no scrubbed file may contain, in any encoding.
const SECRET: &str = "zyxsecret";

/// Runs the command, which must succeed.
fn run(arguments: &[&str]) -> Output {
    let output = Command::new(memtrack()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Returns every form in which a file could contain the secret.
fn forms() -> Vec<Vec<u8>> {
    let wide = |bytes: fn(u16) -> [u8; 2]| SECRET.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
    let mut forms = vec![SECRET.into(), wide(u16::to_le_bytes), wide(u16::to_be_bytes)];
    // Base64 at each of the three possible alignments of the secret, without the characters that depend on neighbouring bytes.
    for before in 0..3 {
        let padded = [&vec![b'x'; before][..], SECRET.as_bytes()].concat();
        let coded = base64(&padded);
        let (from, to) = ([0, 2, 3][before], padded.len() / 3 * 4);
        forms.push(coded.as_bytes()[from..to].to_vec());
    }
    forms.push(SECRET.bytes().rev().collect());
    forms.push(SECRET.bytes().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect());
    forms
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0u32, |bits, &byte| bits << 8 | u32::from(byte)) << (8 * (3 - three.len()));
        for place in 0..=three.len() {
            out.push(char::from(LETTERS[(bits >> (18 - 6 * place) & 63) as usize]));
        }
    }
    out
}

/// Returns the bytes of a file, its decompressed bytes, and the decompressed data inside it: the tables of a page or a recording.
fn contents(path: &Path) -> Vec<Vec<u8>> {
    let stored = fs::read(path).unwrap();
    let mut all = vec![stored.clone()];
    let mut unpacked = Vec::new();
    if flate2::read::MultiGzDecoder::new(&stored[..]).read_to_end(&mut unpacked).is_ok() {
        all.push(unpacked);
    }
    // The chunks of a recording are compressed, so the loaded tables are searched instead.
    if let Ok(loaded) = Snapshot::open(path, LoadOptions::default()) {
        all.push(format!("{:?}", loaded.snapshot).into_bytes());
        let lines = loaded.snapshot.operators.pieces.iter().map(|piece| piece.lines.clone());
        all.extend(lines);
        let symbols = &mut Symbolizer::of(&loaded.snapshot);
        let mut plain = |format| {
            let mut bytes = Vec::new();
            let packing = memtrack_core::snapshot::pytorch::Compression::None;
            loaded.snapshot.write_as(&mut bytes, format, packing, symbols).map(|()| bytes)
        };
        all.extend(plain(memtrack_core::snapshot::Format::Json));
    }
    // A page contains its columns as compressed Base64.
    let text = String::from_utf8_lossy(&stored);
    for piece in text.split(['"', '<', '>', '\n', ' ', '`', '\'']).filter(|piece| piece.len() > 40) {
        let Some(bytes) = from_base64(piece) else { continue };
        let mut unpacked = Vec::new();
        let _ = flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut unpacked);
        let _ = flate2::read::DeflateDecoder::new(&bytes[..]).read_to_end(&mut unpacked);
        let _ = flate2::read::ZlibDecoder::new(&bytes[..]).read_to_end(&mut unpacked);
        all.extend([bytes, unpacked]);
    }
    all
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for letter in text.trim_end_matches('=').bytes() {
        bits = bits << 6 | LETTERS.iter().position(|&known| known == letter)? as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

fn assert_clean(path: &Path) {
    let forms = forms();
    for bytes in contents(path) {
        let lower = bytes.to_ascii_lowercase();
        for (number, form) in forms.iter().enumerate() {
            let searched = if (3..6).contains(&number) { &bytes } else { &lower };
            let at = searched.windows(form.len()).position(|window| window == form);
            let around = at.map(|at| {
                String::from_utf8_lossy(&bytes[at.saturating_sub(80)..(at + 80).min(bytes.len())])
                    .into_owned()
            });
            assert!(around.is_none(), "{} form {number}: {}", path.display(), around.unwrap_or_default());
        }
    }
}

/// Returns a PyTorch snapshot with the secret in every string.
fn pytorch() -> Value {
    let s = SECRET;
    let frames = json!([
        {"name": format!("Model_{s}.forward.<locals>.{s}"), "filename": format!("/home/{s}/{s}.py"), "line": 3,
         "fx_node_op": s, "fx_node_name": s, "fx_node_target": s, "fx_original_trace": format!("File {s}.py"),
         format!("unknown_{s}"): s},
        {"name": format!("std::vector<{s}::T>::push_back({s}::T const&)"), "filename": format!("{s}.cpp"), "line": 9},
        {"name": format!("nn.Module: {s}_0"), "filename": "", "line": 0},
        {"name": format!("/home/{s}/a.py(12): {s}"), "filename": "", "line": 0},
        {"name": 7, "filename": null, "line": s},
    ]);
    let event = |action: &str, addr: u64, time: u64| {
        json!({"action": action, "addr": addr, "size": 512, "stream": 0, "time_us": 1_700_000_000_000_000u64 + time,
               "frames": frames, "compile_context": s, "user_metadata": format!("run of {s}"), "pool_id": [0, 1],
               "internal_metadata": s, "category": s, "forward_frames": [format!("File \"{s}.py\", line 1, in {s}")],
               format!("key_{s}"): {s: [s, {"a": s}]}, "host_name": s, "pid": 4242})
    };
    json!({
        "segments": [{"device": 0, "address": 4096, "total_size": 2097152, "allocated_size": 512, "active_size": 512,
            "requested_size": 500, "stream": 0, "segment_type": s, "segment_pool_id": [0, 1], "is_expandable": false,
            "frames": frames, "owner": s,
            "blocks": [{"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": frames,
                        "user_metadata": s, "x": s},
                       {"address": 4608, "size": 512, "requested_size": s, "state": s, "frames": []},
                       {"size": 1024, "state": "inactive",
                        "history": [{"addr": 5120, "real_size": 900, "frames": frames, "note": s}]}]}],
        "device_traces": [[event("alloc", 4096, 5), event(s, 8192, 6), event("alloc", 8192, 7),
                           event("free_requested", 8192, 8), event("free_completed", 8192, 8)]],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": format!("{s}:True"), "max_split_size": -1,
            "roundup_power2_divisions": {s: 4, "256": 1}, s: s, "expandable_segments": s,
            "memtrack": {"scopes": [[format!("{s}.forward.{s}"), [["module", s], ["operator", s]]]], "pid": 4242, s: s}},
        "external_annotations": [{"device": 0, "time_us": 1_700_000_000_000_001u64, "name": format!("## {s} ##"), "stage": "START",
            "user": s}],
        "host": s,
        format!("root_{s}"): {"deep": [s]},
    })
}

/// Returns a recording with the secret in every string, and the symbols of its addresses.
fn recording() -> (Snapshot, Symbolizer) {
    let s = SECRET;
    let mut snapshot = memtrack_tests::snapshots::empty();
    snapshot.meta.program = format!("/home/{s}/bin/{s}");
    snapshot.meta.pid = 4_242_424;
    snapshot.meta.memtrack_version = format!("0.1.0-{s}");
    snapshot.meta.context = s.into();
    snapshot.clock.first.1 += 1_700_000_000_123_456_789;
    snapshot.clock.last.1 += 1_700_000_000_123_456_789;
    snapshot.threads[1].name = format!("worker of {s}");
    snapshot.threads[1].os_id = 4_242_424;
    let path = format!("/home/{s}/lib{s}.so");
    snapshot.modules = vec![Module {
        path,
        start: 0x1000,
        end: 0x9000,
        bias: 0,
        build_id: "feedfacecafe".into(),
        code_id: "1:2".into(),
    }];
    let stacks = [[0x1010, 0x2010], [0x1020, 0x2010]];
    for stack in stacks {
        snapshot.stacks.push(&stack);
    }
    let scope = |parent, kind, name: String| Scope { parent: ScopeId(parent), kind, name };
    snapshot.scopes.rows.extend([
        scope(0, ScopeKind::Root, format!("Net_{s}")),
        scope(1, ScopeKind::Module, format!("layers.0.{s}")),
        scope(2, ScopeKind::Operator, s.into()),
    ]);
    for (ticks, action, address, stack) in [
        (10, Action::Alloc, 64, 1),
        (20, Action::Alloc, 4096, 2),
        (30, Action::Free, 64, 1),
        (40, Action::Alloc, 64, 2),
    ] {
        let base = event(ticks, action, address, 100 * u64::from(stack));
        snapshot.events.push(&Event {
            stack: StackId(stack),
            scope: ScopeId(3),
            thread: ThreadId(1),
            ..base
        });
    }
    let (second, third) = (snapshot.events.get(1), snapshot.events.get(3));
    snapshot.blocks = vec![live(&third), live(&second)];
    snapshot.marks.push(15, ThreadId(1), s);
    snapshot.marks.push(35, ThreadId(1), "step");
    let frame = |function: String, file: &str| Frame {
        function,
        file: Some(file.into()),
        line: Some(3),
        ..Frame::default()
    };
    let symbols = Symbolizer::of(&snapshot)
        .with_frames(
            0x1010,
            vec![frame(format!("<{s}::Layer<{s}::T> as core::clone::Clone>::clone"), &format!("/{s}/a.rs"))],
        )
        .with_frames(
            0x1020,
            vec![
                frame(
                    format!("alloc::vec::Vec<{s}::Row>::push"),
                    "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/a.rs",
                ),
                frame(format!("{s}::work::{{{{closure}}}}"), &format!("/{s}/src/{s}.rs")),
            ],
        );
    (snapshot, symbols)
}

/// Writes every kind of file that the command can write for a snapshot, and returns the paths.
fn write_all(from: &Path, folder: &Path, more: &[&str]) -> Vec<PathBuf> {
    let from = from.to_str().unwrap();
    let mut files = Vec::new();
    let mut write = |name: &str, arguments: &[&str]| {
        let to = folder.join(name);
        let output = run(&[arguments, &["-o", to.to_str().unwrap(), "--scrub"], more].concat());
        assert!(!String::from_utf8_lossy(&output.stdout).contains(SECRET));
        files.push(to);
    };
    write("view.html", &["view", from]);
    write("trace.html", &["trace-plot", from]);
    write("state.html", &["segment-plot", from]);
    write("peak.svg", &["memory", from, "--at", "peak"]);
    write("memory.svg", &["memory", from]);
    write("segments.svg", &["segments", from]);
    // The formats of PyTorch, memtrack and other tools.
    for name in [
        "a.pickle",
        "a.json",
        "a.memtrack",
        "a.pickle.gz",
        "a.pb.gz",
        "a.speedscope.json",
        "a.folded",
        "a.csv",
        "a.pftrace",
        "a.fxprof.json",
    ] {
        let to = folder.join(name);
        run(&[&["convert", from, to.to_str().unwrap(), "--scrub"], more].concat());
        files.push(to);
    }
    files
}

#[test]
fn no_writer_leaks_a_secret_of_a_pytorch_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join(format!("{SECRET}.json"));
    fs::write(&from, pytorch().to_string()).unwrap();
    // The search finds the secret in files that are not scrubbed, including a page.
    let page = folder.path().join("plain.html");
    run(&["view", from.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    for path in [&from, &page] {
        // The first item is the stored file, which contains the snapshot's name; the secret must be found in another item.
        let inner = contents(path).into_iter().skip(1);
        assert!(inner.into_iter().any(|bytes| find(&bytes, SECRET.as_bytes())), "{}", path.display());
    }
    for file in write_all(&from, folder.path(), &["--scrub-key", "k"]) {
        assert_clean(&file);
        let text = fs::read(&file).unwrap();
        assert!(!find(&text, b"4242") && !find(&text, b"17000000000000"), "{}", file.display());
    }
    // Scrubbing a scrubbed file changes nothing.
    let once = folder.path().join("a.json");
    let again = folder.path().join("again.json");
    run(&["convert", once.to_str().unwrap(), again.to_str().unwrap(), "--scrub", "--scrub-key", "other"]);
    assert_eq!(fs::read_to_string(&once).unwrap(), fs::read_to_string(&again).unwrap(), "scrubbed twice");
}

#[test]
fn no_writer_leaks_a_secret_of_a_recording() {
    let folder = tempfile::tempdir().unwrap();
    let (snapshot, mut symbols) = recording();
    let scrubbed = Scrub::new().key("k").snapshot(snapshot.clone(), &mut symbols);
    let from = folder.path().join("scrubbed.memtrack");
    scrubbed.save(&from).unwrap();
    assert_clean(&from);
    let debug = format!("{:?}", Snapshot::open(&from, LoadOptions::default()).unwrap().snapshot);
    for private in ["feedface", "4242424", "17000000001234"] {
        assert!(!debug.contains(private), "{private}");
    }
    for file in write_all(&from, folder.path(), &[]) {
        assert_clean(&file);
    }
    // The same files, written from the recording itself, whose binaries do not exist.
    let plain = folder.path().join("plain.memtrack");
    snapshot.save(&plain).unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    for file in write_all(&plain, &inner, &[]) {
        assert_clean(&file);
    }
}

#[test]
fn no_form_of_a_timeline_leaks_a_secret_or_the_time_of_day() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = String::new();
    let packed = fs::read(fixture("optrace/inference/trace.optrace.jsonl.gz")).unwrap();
    flate2::read::MultiGzDecoder::new(&packed[..]).read_to_string(&mut trace).unwrap();
    for private in ["TransformerEncoderLayer", "optrace_models", "inference", "optrace.py"] {
        assert!(trace.contains(private), "{private}");
        trace = trace.replace(private, &private.replacen(char::is_alphabetic, SECRET, 1));
    }
    let from = folder.path().join("trace.optrace.jsonl");
    fs::write(&from, &trace).unwrap();
    // The first six digits of the Unix times in the trace.
    let day = "179537";
    assert!(trace.contains(day));
    for name in ["a.html", "a.svg", "a.png", "a.json", "a.json.gz", "a.raw.json.gz", "a.pickle"] {
        let (plain, scrubbed) = (folder.path().join(format!("plain.{name}")), folder.path().join(name));
        let [from, to, hidden] = [&from, &plain, &scrubbed].map(|path| path.to_str().unwrap());
        run(&["timeline", from, "-o", to]);
        run(&["timeline", from, "-o", hidden, "--scrub"]);
        assert_clean(&scrubbed);
        let has = |path: &Path, what: &str| contents(path).iter().any(|bytes| find(bytes, what.as_bytes()));
        assert!(!has(&scrubbed, day), "{name}");
        // Images contain no time of day.
        assert_eq!(has(&plain, day), !name.ends_with("g"), "{name}");
    }
    let numbers = |name: &str| -> Vec<Vec<i64>> {
        let text = contents(&folder.path().join(name)).pop().unwrap();
        let Value::Array(rows) = serde_json::from_slice(&text).unwrap() else { panic!("{name}") };
        let columns =
            |row: &Value| row.as_array().unwrap().iter().skip(1).map(|cell| cell.as_i64().unwrap()).collect();
        rows.iter().map(columns).collect()
    };
    // The action, the bytes and the category of each change.
    assert_eq!(numbers("plain.a.raw.json.gz"), numbers("a.raw.json.gz"));
}

fn find(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

/// Returns the sorted numbers of a JSON report.
fn numbers(arguments: &[&str]) -> Vec<f64> {
    fn walk(value: &Value, out: &mut Vec<f64>) {
        match value {
            Value::Number(number) => out.extend(number.as_f64()),
            Value::Array(items) => items.iter().for_each(|item| walk(item, out)),
            Value::Object(fields) => fields.values().for_each(|field| walk(field, out)),
            _ => {}
        }
    }
    let output = run(&[arguments, &["--json"]].concat());
    let mut out = Vec::new();
    walk(&serde_json::from_slice(&output.stdout).unwrap(), &mut out);
    // Rows with equal sums are ordered by name, which scrubbing changes.
    out.sort_by(f64::total_cmp);
    out
}

#[test]
fn reports_on_a_scrubbed_recording_show_the_same_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let (snapshot, mut symbols) = recording();
    let named = snapshot.as_pytorch(&mut symbols).into_snapshot();
    let scrubbed = Scrub::new().snapshot(snapshot, &mut symbols);
    let after = folder.path().join("scrubbed.memtrack");
    scrubbed.save(&after).unwrap();
    assert_eq!(Snapshot::open(&after, LoadOptions::default()).unwrap().snapshot, scrubbed);
    // Saves both snapshots in one format, in which events have the same numbers.
    let after = folder.path().join("after.pickle");
    scrubbed.save_as(&after, &mut Symbolizer::of(&scrubbed)).unwrap();
    let before = folder.path().join("before.pickle");
    named.save_as(&before, &mut Symbolizer::of(&named)).unwrap();
    for report in
        [&["peak"][..], &["top", "--by", "stack"], &["top", "--by", "operator"], &["top", "--by", "line"]]
    {
        let of = |file: &Path| numbers(&[&report[..1], &[file.to_str().unwrap()], &report[1..]].concat());
        assert_eq!(of(&before), of(&after), "{report:?}");
    }
}

#[test]
fn reports_on_scrubbed_samples_show_the_same_numbers_and_no_private_name() {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        "samples/annotated",
        "samples/cpp-frames",
        "samples/multi-gpu",
        "samples/expandable",
        "recorded/run",
        "samples/legacy-history",
        "samples/host-pinned",
    ];
    let samples = names.map(|name| fixture(&format!("snapshots/{name}.pickle")));
    for before in samples.into_iter().chain([oracle("snapshots/synth/extra_keys.pickle")]) {
        let name = before.display();
        let after = folder.path().join(before.file_name().unwrap());
        run(&["convert", before.to_str().unwrap(), after.to_str().unwrap(), "--scrub"]);
        for report in [
            &["peak"][..],
            &["top", "--by", "stack"],
            &["top", "--by", "line"],
            &["top", "--by", "operator"],
            &["summary"],
            &["stats"],
            &["segments"],
        ] {
            let of = |file: &Path| numbers(&[&report[..1], &[file.to_str().unwrap()], &report[1..]].concat());
            let (mut old, mut new) = (of(&before), of(&after));
            // Moments are in seconds, which stay the same, and in Unix microseconds, which do not.
            old.retain(|number| *number < 9e14);
            new.retain(|number| *number < 9e14);
            assert_eq!(old, new, "{name} {report:?}");
        }
        let bytes = fs::read(&after).unwrap();
        for private in private_names(&before) {
            assert!(!find(&bytes, private.as_bytes()), "{name}: {private}");
        }
    }
}

/// Returns the folders, files and functions of the user's code, which is all Python files outside packages.
fn private_names(path: &Path) -> Vec<String> {
    let snapshot = Snapshot::open(path, LoadOptions::default()).unwrap().snapshot;
    let mut names = Vec::new();
    for row in 0..snapshot.frames.len() as u32 {
        let frame = memtrack_core::snapshot::FrameId(row);
        let file = snapshot.strings.get(snapshot.frames.filename(frame)).into_owned();
        let is_user_code = file.ends_with(".py")
            && !file.contains("/lib/python3")
            && !file.contains("site-packages")
            && !file.contains("torch/");
        if is_user_code {
            names.push(snapshot.strings.get(snapshot.frames.name(frame)).into_owned());
            names.extend(file.split('/').map(str::to_owned));
        }
    }
    // Names that occur in any program are not private.
    let common = ["<module>", "forward", "backward", "step", "__init__", "main", "lib", "src", "usr"];
    names.retain(|name| name.len() > 3 && !common.contains(&name.as_str()));
    names
}

#[test]
fn a_name_has_one_pseudonym_in_all_files_with_the_same_key() {
    let folder = tempfile::tempdir().unwrap();
    let from = fixture("snapshots/samples/basic-1.pickle");
    let convert = |to: &str, more: &[&str]| {
        let to = folder.path().join(to);
        run(&[&["convert", from.to_str().unwrap(), to.to_str().unwrap(), "--scrub"], more].concat());
        fs::read(&to).unwrap()
    };
    let one = convert("1.json", &["--scrub-key", "a"]);
    assert_eq!(one, convert("2.json", &["--scrub-key", "a"]));
    assert_ne!(one, convert("3.json", &["--scrub-key", "b"]));
    assert_ne!(one, convert("4.json", &[]));
    let kept = convert("5.json", &["--scrub-keep", "*"]);
    let private = private_names(&from);
    assert!(private.iter().any(|name| find(&kept, name.as_bytes())), "{private:?}");
}

#[test]
fn incomplete_options_of_scrub_are_refused() {
    for more in [&["--scrub-key", "x"][..], &["--scrub-keep", "x"], &["--scrub", "--scrub-key", ""]] {
        let from = fixture("snapshots/samples/basic-1.pickle");
        let output = Command::new(memtrack())
            .arg("convert")
            .arg(&from)
            .arg("/nowhere/x.json")
            .args(more)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{more:?}");
    }
}
