//! `memtrack diff` and `memtrack check --against`: changes between two files, and limits on them.

use memtrack_core::event::{Action, DeviceId, Event, EventFlags, ScopeId};
use memtrack_core::snapshot::{DeviceStatistics, Scope, ScopeKind, Snapshot, SnapshotFiles};
use memtrack_tests::snapshots::{empty, event, live};
use memtrack_tests::{memtrack, shared, workspace};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The frames of a stack, innermost first: file, line, function.
type Stack<'a> = &'a [(&'a str, u32, &'a str)];

const MIB: u64 = 1 << 20;

/// A temporary folder with files to compare.
struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a PyTorch snapshot in which `blocks`, given as bytes and stack, are allocated on device 0 and never freed.
    fn snapshot(&self, name: &str, blocks: &[(u64, Stack<'_>)]) {
        let mut address = 0x7f00_0000_0000_u64;
        let mut event = |&(size, stack): &(u64, &[(&str, u32, &str)])| {
            address += 1 << 30;
            let frame = |&(filename, line, name): &(&str, u32, &str)| json!({ "filename": filename, "line": line, "name": name });
            let frames: Vec<Value> = stack.iter().map(frame).collect();
            json!({ "action": "alloc", "addr": address, "size": size, "stream": 0, "frames": frames })
        };
        let trace: Vec<Value> = blocks.iter().map(&mut event).collect();
        let value = json!({ "segments": [], "device_traces": [trace] });
        fs::write(self.path(name), value.to_string()).unwrap();
    }

    fn recording(&self, name: &str, snapshot: &Snapshot) {
        fs::write(self.path(name), snapshot.save_to(Vec::new()).unwrap()).unwrap();
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(memtrack())
            .args(arguments)
            .current_dir(self.0.path())
            .env("COLUMNS", "120")
            .output()
            .unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text_of(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Returns the JSON output of `diff`.
    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[&["diff"], arguments, &["--json"]].concat())).unwrap()
    }

    /// Asserts that a command fails with this exit code and reason, and prints nothing on standard output.
    fn refused(&self, arguments: &[&str], code: i32, why: &str) {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text_of(&output));
        assert!(text_of(&output).contains(why), "{arguments:?}: {}", text_of(&output));
        assert!(output.stdout.is_empty());
    }
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns, for each row, the fields that the tests compare.
fn rows(answer: &Value) -> Vec<(&str, &str, i64, i64)> {
    let rows = answer["devices"][0]["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        (
            row["name"].as_str().unwrap(),
            row["change"].as_str().unwrap(),
            row["change_requested_bytes"].as_i64().unwrap(),
            row["change_count"].as_i64().unwrap(),
        )
    })
    .collect()
}

/// Writes snapshots of two versions of a training script: the second has two more lines at its beginning and another path,
/// computes its softmax differently, has a cache, and has no buffer.
fn two_versions() -> Bench {
    let bench = Bench::new();
    let (old, new) = ("/home/a/v1/train.py", "/home/a/v2/train.py");
    bench.snapshot(
        "before.json",
        &[
            (8 * MIB, &[("??", 0, "at::native::mm"), (old, 10, "linear"), (old, 50, "main")]),
            (4 * MIB, &[(old, 12, "softmax"), (old, 51, "main")]),
            (2 * MIB, &[(old, 30, "buffer"), (old, 52, "main")]),
        ],
    );
    bench.snapshot(
        "after.json",
        &[
            (8 * MIB, &[("??", 0, "at::native::mm"), (new, 12, "linear"), (new, 52, "main")]),
            (16 * MIB, &[(new, 14, "softmax"), (new, 53, "main")]),
            (8 * MIB, &[(new, 14, "softmax"), (new, 53, "main")]),
            (3 * MIB, &[(new, 40, "cache"), (new, 60, "main")]),
        ],
    );
    bench
}

#[test]
fn the_first_line_is_the_answer_and_moved_lines_are_matched() {
    let bench = two_versions();
    let text = bench.text(&["diff", "before.json", "after.json"]);
    let answer = "peak +21.0 MiB (14.0 MiB → 35.0 MiB): train.py:14 softmax +20.0 MiB, train.py:40 cache +3.0 MiB, \
                  train.py:30 buffer −2.0 MiB";
    assert_eq!(text.lines().next(), Some(answer), "{text}");
    assert!(
        text.contains("was line 12") && text.contains("1 → 2") && text.contains("Unchanged: 1 group."),
        "{text}"
    );
    let answer = bench.json(&["before.json", "after.json"]);
    assert_eq!(
        rows(&answer),
        [
            ("softmax", "grew", 20 * MIB as i64, 1),
            ("cache", "new", 3 * MIB as i64, 1),
            ("buffer", "gone", -2 * MIB as i64, -1)
        ]
    );
    let first = &answer["devices"][0]["rows"][0];
    assert_eq!(
        first["stack"],
        json!([{ "function": "softmax", "file": "/home/a/v2/train.py", "line": 14, "address": null }])
    );
    assert_eq!((&first["line_before"], &first["before_requested_bytes"]), (&json!(12), &json!(4 * MIB)));
    assert_eq!(answer["devices"][0]["change_requested_bytes"], json!(21 * MIB));
}

#[test]
fn swapped_files_negate_every_change() {
    let bench = two_versions();
    let there = bench.json(&["before.json", "after.json", "--by", "stack"]);
    let back = bench.json(&["after.json", "before.json", "--by", "stack"]);
    let negated: Vec<_> =
        rows(&back).into_iter().map(|(name, _, bytes, count)| (name, -bytes, -count)).collect();
    let there: Vec<_> =
        rows(&there).into_iter().map(|(name, _, bytes, count)| (name, bytes, count)).collect();
    assert_eq!(there, negated);
    assert_eq!(there.len(), 3);
}

#[test]
fn a_file_does_not_differ_from_itself() {
    let bench = two_versions();
    for by in ["line", "operator", "module", "phase", "stack", "category"] {
        for at in ["peak", "end", "total"] {
            let answer = bench.json(&["after.json", "after.json", "--by", by, "--at", at]);
            assert_eq!((&answer["different"], rows(&answer)), (&json!(false), vec![]), "{by} {at}");
        }
    }
    let text = bench.text(&["diff", "after.json", "after.json"]);
    assert!(text.starts_with("peak unchanged (35.0 MiB), and nothing else differs\n"), "{text}");
}

#[test]
fn scrubbed_differences_have_the_same_numbers() {
    let bench = two_versions();
    let files = ["before.json", "after.json"];
    let plain = bench.json(&files);
    let hidden = bench.json(&[&files[..], &["--scrub", "--scrub-key", "k"]].concat());
    let numbers = |answer: &Value| -> Vec<(String, i64, i64)> {
        rows(answer).into_iter().map(|(_, status, bytes, count)| (status.to_owned(), bytes, count)).collect()
    };
    assert_eq!(numbers(&plain), numbers(&hidden));
    // Only the values that contain names: some of the names are also keys in every JSON report.
    let names = |answer: &Value| {
        let named = |row: &Value| format!("{} {}", row["name"], row["stack"]);
        let rows: String = answer["devices"][0]["rows"].as_array().unwrap().iter().map(named).collect();
        format!("{rows} {} {}", answer["before"]["path"], answer["after"]["path"])
    };
    for name in ["train.py", "softmax", "buffer", "cache", "/v2", "before", "after"] {
        assert!(names(&plain).contains(name), "{name} is missing without --scrub: {plain}");
        assert!(!names(&hidden).contains(name), "{name} is not scrubbed: {hidden}");
    }
    let arguments = [&["diff"], &files[..], &["--scrub", "-o", "diff.svg"]].concat();
    let output = bench.run(&arguments);
    let (text, hints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let svg = fs::read_to_string(bench.path("diff.svg")).unwrap();
    for name in ["train.py", "softmax"] {
        assert!(!text.contains(name) && !svg.contains(name), "{name}: {text}");
    }
    assert_eq!(hints.matches("without --scrub-key").count(), 1, "{hints}");
}

/// Returns a recording of a model in which the attention of each layer allocates `bytes`.
fn model(layers: u32, bytes: u64) -> Snapshot {
    let mut snapshot = empty();
    let scope = |parent, kind, name: &str| Scope { parent: ScopeId(parent), kind, name: name.into() };
    let mut time = 0;
    for layer in 0..layers {
        let next = snapshot.scopes.rows.len() as u32;
        let path = format!("layers.{layer}");
        snapshot
            .scopes
            .rows
            .extend([scope(0, ScopeKind::Module, &path), scope(next, ScopeKind::Module, "attn")]);
        time += 100;
        let address = 0x7f00_0000_0000 + u64::from(layer) * (1 << 32);
        let alloc = event(time, Action::Alloc, address, bytes);
        snapshot.events.push(&Event { scope: ScopeId(next + 1), ..alloc });
    }
    snapshot.devices = vec![DeviceStatistics {
        recorded: layers.into(),
        allocations: layers.into(),
        allocated_bytes: bytes * u64::from(layers),
        ..DeviceStatistics::of(DeviceId::HOST)
    }];
    snapshot
}

#[test]
fn layers_of_one_kind_are_one_group() {
    let bench = Bench::new();
    bench.recording("small.memtrack", &model(2, MIB));
    bench.recording("large.memtrack", &model(5, MIB));
    let answer = bench.json(&["small.memtrack", "large.memtrack", "--by", "module"]);
    assert_eq!(rows(&answer), [("layers.*.attn", "grew", 3 * MIB as i64, 3)]);
    let row = &answer["devices"][0]["rows"][0];
    assert_eq!((&row["before_members"], &row["after_members"]), (&json!(2), &json!(5)));
    let text = bench.text(&["diff", "small.memtrack", "large.memtrack", "--by", "module"]);
    assert!(
        text.starts_with("peak +3.0 MiB (2.0 MiB → 5.0 MiB): layers.*.attn (2 → 5 of them) +3.0 MiB\n"),
        "{text}"
    );
}

/// Returns a recording of 1 KiB blocks in the first scope, each a sample that represents about 64 KiB, and of large blocks, all
/// of which are recorded.
fn sampled(samples: u64, large: u64) -> Snapshot {
    let mut snapshot = model(1, MIB);
    snapshot.meta.sample_threshold_bytes = 4096;
    snapshot.meta.sample_mean_bytes = 64 << 10;
    for sample in 0..samples {
        let small = event(1_000 + sample, Action::Alloc, 0x5000_0000 + sample * 4096, 1024);
        snapshot.events.push(&Event { scope: ScopeId(1), flags: EventFlags::SAMPLED, ..small });
    }
    for block in 0..large {
        let block = event(9_000 + block, Action::Alloc, 0x6000_0000_0000 + (block << 32), 8 * MIB);
        snapshot.events.push(&Event { scope: ScopeId(2), ..block });
    }
    snapshot.blocks = (0..snapshot.events.len()).map(|row| live(&snapshot.events.get(row))).collect();
    snapshot.devices[0] = DeviceStatistics {
        recorded: snapshot.events.len() as u64,
        allocations: 100_000,
        allocated_bytes: 900 * MIB,
        ..DeviceStatistics::of(DeviceId::HOST)
    };
    snapshot
}

#[test]
fn differences_within_the_error_of_an_estimate_are_omitted() {
    let bench = Bench::new();
    bench.recording("before.memtrack", &sampled(100, 1));
    bench.recording("luck.memtrack", &sampled(104, 1));
    bench.recording("more.memtrack", &sampled(400, 1));
    bench.recording("large.memtrack", &sampled(101, 3));
    let lucky = bench.json(&["before.memtrack", "luck.memtrack", "--by", "module"]);
    assert_eq!((rows(&lucky), &lucky["different"]), (vec![], &json!(false)));
    assert!(lucky["devices"][0]["within_error"].as_u64() >= Some(1), "{lucky}");
    let more = bench.json(&["before.memtrack", "more.memtrack", "--by", "module"]);
    assert_eq!(rows(&more)[0].1, "grew");
    let [low, high] = ["low", "high"]
        .map(|end| more["devices"][0]["rows"][0]["change_requested_bytes_error"][end].as_i64());
    let by = Some(rows(&more)[0].2);
    assert!(Some(0) < low && low < by && by < high, "{low:?} {by:?} {high:?}");
    let text = bench.text(&["diff", "before.memtrack", "more.memtrack", "--by", "module"]);
    assert!(text.contains(" ± ") && text.contains("are sampled"), "{text}");
    // A difference in large blocks, all of which are recorded, is reported.
    let large = bench.json(&["before.memtrack", "large.memtrack", "--by", "module"]);
    assert_eq!(rows(&large), [("layers.*.attn", "grew", 16 * MIB as i64, 2)]);
}

#[test]
fn files_of_different_kinds_are_compared_as_far_as_possible() {
    let bench = two_versions();
    bench.recording("model.memtrack", &model(2, MIB));
    bench.refused(
        &["diff", "before.json", "model.memtrack"],
        2,
        "no device in common: before.json has device 0; model.memtrack has host heap",
    );
    bench.text(&["convert", "model.memtrack", "model.pickle"]);
    let answer = bench.json(&["model.memtrack", "model.pickle", "--at", "total", "--by", "phase"]);
    assert_eq!(rows(&answer), []);
    let notes = answer["notes"].to_string();
    assert!(notes.contains("the earlier file is a recording, the later one a PyTorch snapshot"), "{notes}");
}

#[test]
fn a_device_that_only_one_file_has_is_named() {
    let bench = two_versions();
    let mut value: Value = serde_json::from_slice(&fs::read(bench.path("after.json")).unwrap()).unwrap();
    let second = value["device_traces"][0].clone();
    value["device_traces"].as_array_mut().unwrap().push(second);
    fs::write(bench.path("two.json"), value.to_string()).unwrap();
    let text = bench.text(&["diff", "before.json", "two.json"]);
    assert!(text.starts_with("device 0: peak +21.0 MiB"), "{text}");
    assert!(text.contains("device 1: only in the later file, peak 35.0 MiB"), "{text}");
    let only = bench.json(&["before.json", "two.json"])["only_after"][0].clone();
    assert_eq!((&only["device"]["name"], &only["requested_bytes"]), (&json!("device 1"), &json!(35 * MIB)));
}

#[test]
fn files_that_cannot_be_compared_are_refused_with_a_reason() {
    let bench = two_versions();
    bench.refused(&["diff", "-", "-"], 2, "only one of the two can be standard input");
    bench.refused(&["check", "-", "--against", "-"], 2, "only one of the two can be standard input");
    fs::write(bench.path("empty.pickle"), b"").unwrap();
    bench.refused(&["diff", "before.json", "empty.pickle"], 3, "cannot read empty.pickle");
    fs::write(bench.path("nothing.json"), br#"{"segments": [], "device_traces": []}"#).unwrap();
    bench.refused(&["diff", "nothing.json", "before.json"], 3, "nothing to compare");
    bench.refused(&["check", "before.json", "--against", "nothing.json"], 3, "nothing to compare");
    bench.refused(&["diff", "before.json", "after.json", "--device", "7"], 2, "the file has no device 7");
    bench.refused(&["diff", "before.json", "after.json", "-o", "a.png"], 2, "must end in .svg");
    bench.refused(
        &["diff", "before.json", "after.json", "-o", "before.svg", "--symbols", "nowhere"],
        2,
        "no such folder",
    );
    bench.refused(&["check", "before.json", "--max-peak", "1GiB", "--tolerance", "5%"], 2, "--against");
}

#[test]
fn the_flame_graph_shows_growth_and_removed_stacks() {
    let bench = two_versions();
    bench.text(&["diff", "before.json", "after.json", "-o", "diff.svg"]);
    let svg = fs::read_to_string(bench.path("diff.svg")).unwrap();
    for words in [
        "train.py:14 softmax +20.0 MiB",
        "gone from device 0 −2.0 MiB",
        "train.py:30 buffer −2.0 MiB",
        ">device 0 +23.0 MiB",
    ] {
        assert!(svg.contains(words), "{words}: {svg}");
    }
    bench.text(&["diff", "before.json", "after.json", "-o", "diff.folded", "--by", "operator"]);
    assert_eq!(
        fs::read_to_string(bench.path("diff.folded")).unwrap(),
        format!(
            "device 0;main train.py:52;buffer train.py:30 {} 0\n\
             device 0;main train.py:53;softmax train.py:14 {} {}\n\
             device 0;main train.py:60;cache train.py:40 0 {}\n",
            2 * MIB,
            4 * MIB,
            24 * MIB,
            3 * MIB
        )
    );
    bench.refused(&["diff", "before.json", "after.json", "-o", "diff.svg"], 2, "add --force");
}

#[test]
fn check_reports_which_group_grew_by_how_much() {
    let bench = two_versions();
    let output = bench.run(&["check", "after.json", "--against", "before.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "exceeded: peak of device 0 grew by 21.0 MiB (+150.0 %, 14.0 MiB → 35.0 MiB; tolerance 5 %): train.py:14 softmax \
         +20.0 MiB, train.py:40 cache +3.0 MiB\n"
    );
    let text = bench.text(&["check", "before.json", "--against", "after.json", "--max-peak", "20MiB"]);
    assert!(text.ends_with("; peak of device 0 −21.0 MiB against the base\n"), "{text}");
    // Every exceeded limit is reported.
    let output = bench.run(&[
        "check",
        "after.json",
        "--against",
        "before.json",
        "--tolerance",
        "0.1",
        "--max-peak",
        "20MiB",
    ]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).matches("exceeded: ").count(),
        2,
        "{}",
        text_of(&output)
    );
    let output = bench.run(&["check", "after.json", "--against", "before.json", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&value["against"]["devices"][0]["verdict"], value["exceeded"].as_array().unwrap().len()),
        (&json!("exceeded"), 1)
    );
    let device = &value["against"]["devices"][0];
    assert_eq!(
        (&device["change_requested_bytes"], &device["limit_bytes"]),
        (&json!(21 * MIB), &json!(15_414_067))
    );
}

/// Pairs of public snapshots. The second has twice the context length, four times the context length, and four times with mixed
/// precision.
const PAIRS: [(&str, &str); 3] = [
    ("niu_fwd_100", "niu_fwd_200"),
    ("wedson_128_train", "wedson_512_train"),
    ("sidsoc_128_infer", "sidsoc_512_bf16_infer"),
];

#[test]
#[cfg_attr(not(real_snapshots), ignore = "needs ../shared/oracle/snapshots/real")]
fn numbers_of_real_pairs_equal_those_that_python_computes_from_the_pickles() {
    for (before, after) in PAIRS {
        let file = |name: &str| shared().join(format!("oracle/snapshots/real/{name}.pickle.gz"));
        let script = workspace().join("tests/tests/cli/diff_numbers.py");
        let mut python = Command::new("python3");
        let output = python.arg(script).arg(memtrack()).args([file(before), file(after)]).output().unwrap();
        assert!(output.status.success(), "{before} {after}: {}", text_of(&output));
        assert!(text_of(&output).contains("lines agree; peak +"), "{}", text_of(&output));
    }
}

#[test]
fn unmatched_patterns_are_reported_once_and_empty_ones_are_refused() {
    let bench = two_versions();
    let stderr = |arguments: &[&str]| {
        let output = Command::new(memtrack())
            .args(arguments)
            .current_dir(bench.path("before.json").parent().unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let top = ["top", "before.json", "--mine", "nothing*", "--mine", "nothing*", "--not-mine", "train.py"];
    assert_eq!(stderr(&top), "memtrack: warning: no frame matches --mine nothing*\n");
    let diff = ["diff", "before.json", "after.json", "--not-mine", "zzz*", "--mine", "train.py"];
    assert_eq!(stderr(&diff), "memtrack: warning: no frame matches --not-mine zzz*\n");
    for verb in ["peak", "summary"] {
        assert_eq!(
            stderr(&[verb, "before.json", "--mine", "zzz"]),
            "memtrack: warning: no frame matches --mine zzz\n"
        );
    }
    // A match in one of the two files is enough; the later file has no `buffer`.
    assert_eq!(stderr(&["diff", "before.json", "after.json", "--mine", "buffer"]), "");
    bench.refused(&["top", "before.json", "--mine", ""], 2, "--mine: the pattern is empty");
    bench.refused(
        &["diff", "before.json", "after.json", "--not-mine", " "],
        2,
        "--not-mine: the pattern is empty",
    );
}
