//! `memtrack leaks`: exact lines and bytes for programs that leak, no findings for programs that do not, and clear errors for
//! files in which leaks cannot be determined.

use memtrack_core::event::{Action, DeviceId, Event, StackId, ThreadId};
use memtrack_core::snapshot::{LiveBlock, Module, Snapshot, SnapshotFiles};
use memtrack_tests::memtrack;
use memtrack_tests::run::{Bench, stderr_text};
use memtrack_tests::snapshots::{empty, event, live};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The exit code and the output of a command.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    text: String,
    errors: String,
}

impl Ended {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or("")
    }
}

fn leaks(arguments: &[&str]) -> Ended {
    let output =
        Command::new(memtrack()).arg("leaks").args(arguments).output().expect("memtrack can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ended { code: output.status.code(), text: text(output.stdout), errors: text(output.stderr) }
}

fn fixture(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name).to_string_lossy().into_owned()
}

const LEAKY: &str = include_str!("../../src/c/leaky.c");

#[test]
fn the_leaking_line_of_a_c_program_is_reported_and_the_mended_program_has_none() {
    let bench = Bench::new();
    fs::write(bench.path("leaky.c"), LEAKY).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O0", "-fno-omit-frame-pointer", "-o", "leaky", "leaky.c"])
        .current_dir(bench.folder.path());
    let built = cc.output().expect("a compiler of C");
    assert!(built.status.success(), "{}", stderr_text(&built));
    for (which, code) in [("leaks", 1), ("mended", 0)] {
        let output = bench.run(&["--host", "-o", which, "--", "./leaky", which]);
        assert!(output.status.success(), "{}", stderr_text(&output));
        let file = bench.path(which);
        let ended = leaks(&[file.to_str().unwrap()]);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        if which == "mended" {
            assert!(ended.first_line().starts_with("nothing leaks"), "{ended:?}");
            continue;
        }
        let line = LEAKY.lines().position(|line| line.contains("the leak")).unwrap() + 1;
        let place = format!("leaky.c:{line} make_record");
        assert!(ended.first_line().starts_with("1 line leaks 16.0 MiB"), "{ended:?}");
        assert!(ended.first_line().contains(&place), "{ended:?}");
        let json = leaks(&[file.to_str().unwrap(), "--json"]).json();
        let leak = &json["memory"]["devices"][0]["leaks"][0];
        assert_eq!(leak["never_freed"]["requested_bytes"], 240 * 70_008, "{leak:#}");
        assert_eq!(leak["never_freed"]["count"], 240, "{leak:#}");
        assert_eq!(json["memory"]["devices"][0]["device"]["kind"], "host");
    }
    // `memtrack diff` with the fixed program reports the same line and the same bytes.
    let mut diff = Command::new(memtrack());
    diff.args(["diff", "--at", "end", "--json"]).args([bench.path("mended"), bench.path("leaks")]);
    let diff: Value = serde_json::from_slice(&diff.output().unwrap().stdout).unwrap();
    let row = &diff["devices"][0]["rows"][0];
    assert!(row["name"].as_str().unwrap().contains("make_record"), "{row:#}");
    assert_eq!(row["change_requested_bytes"], 240 * 70_008, "{row:#}");
}

/// Returns a recording of two stacks: the blocks of the first stay live, and those of the second are freed at once.
fn leaking() -> Snapshot {
    let mut snapshot = empty();
    let module = Module { path: "/bin/program".into(), start: 0x1000, end: 0x9000, ..Module::default() };
    snapshot.modules = vec![module];
    let [stays, goes] = [snapshot.stacks.push(&[0x1234, 0x3456]), snapshot.stacks.push(&[0x2345, 0x3456])];
    for step in 0..200u64 {
        let of = |stack: StackId, ticks: u64, action, block: u64| Event {
            stack,
            ..event(ticks, action, 0x7000_0000 + block * 4096, 1000)
        };
        let ticks = 5_000_000 * step;
        let kept = of(stays, ticks, Action::Alloc, 2 * step);
        snapshot.events.push(&kept);
        snapshot.blocks.push(live(&kept));
        snapshot.events.push(&of(goes, ticks + 1, Action::Alloc, 2 * step + 1));
        snapshot.events.push(&of(goes, ticks + 2, Action::Free, 2 * step + 1));
        snapshot.marks.push(ticks + 3, ThreadId(1), "step");
    }
    snapshot
}

fn saved(folder: &TempDir, name: &str, snapshot: &Snapshot) -> String {
    let path: PathBuf = folder.path().join(name);
    snapshot.save(&path).unwrap();
    path.to_string_lossy().into_owned()
}

#[test]
fn patterns_suppress_blocks_and_unmatched_patterns_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let file = saved(&folder, "leaking.memtrack", &leaking());
    let plain = leaks(&[&file, "--by", "stack"]);
    assert_eq!(plain.code, Some(1), "{plain:?}");
    assert!(plain.first_line().starts_with("1 stack leaks 195.3 KiB"), "{plain:?}");
    let patterns = folder.path().join("known.txt");
    // Frames without symbols are named by their addresses.
    fs::write(&patterns, "# known\n\n*0x1233* # the one\nno::such::function\n").unwrap();
    let known = patterns.to_str().unwrap();
    let ended = leaks(&[&file, "--suppress", known]);
    let json = leaks(&[&file, "--suppress", known, "--json"]).json();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.errors.contains("no stack matches the pattern no::such::function"), "{ended:?}");
    assert_eq!(ended.errors.matches("pattern").count(), 1, "{ended:?}");
    assert!(ended.text.contains("Left out by patterns: 195.3 KiB in 200 blocks"), "{ended:?}");
    assert_eq!(json["memory"]["unused_suppressions"], serde_json::json!(["no::such::function"]));
    assert_eq!(leaks(&[&file, "--suppress", "/nowhere"]).code, Some(3));
}

#[test]
fn a_line_shows_its_largest_stack_and_stacks_without_user_code_stay_separate() {
    let folder = tempfile::tempdir().unwrap();
    // PyTorch's frames are not user code. The blocks of stacks `two` and `three` stay live; of stack `one`, which comes first,
    // only one block stays live.
    let frame = |name: &str, line: u32| {
        let filename = format!("/usr/lib/python3/site-packages/torch/{name}.py");
        serde_json::json!({"filename": filename, "line": line, "name": name})
    };
    let (mut trace, mut segments) = (Vec::new(), Vec::new());
    for step in 0..200u64 {
        for (number, (caller, size)) in
            [("one", 512), ("two", 10_240), ("three", 1024)].into_iter().enumerate()
        {
            let address = 0x7000_0000 + (3 * step + number as u64) * (1 << 21);
            let frames = serde_json::json!([frame("empty", 5), frame(caller, 7), frame("run", 9)]);
            let mut push = |action: &str, later: u64| {
                let time_us = 1_700_000_000_000_000 + 20_000 * step + 10 * number as u64 + later;
                trace.push(serde_json::json!({"action": action, "addr": address, "size": size, "stream": 0,
                    "time_us": time_us, "frames": frames}));
            };
            push("alloc", 0);
            if number == 0 && step > 0 {
                push("free_requested", 1);
                push("free_completed", 1);
                continue;
            }
            let block = serde_json::json!({"address": address, "size": size, "requested_size": size,
                "state": "active_allocated", "frames": frames});
            segments.push(serde_json::json!({"device": 0, "address": address, "total_size": size,
                "allocated_size": size, "active_size": size, "requested_size": size, "stream": 0,
                "segment_type": "large", "segment_pool_id": [0, 0], "is_expandable": false, "frames": [],
                "blocks": [block]}));
        }
    }
    let snapshot =
        serde_json::json!({"segments": segments, "device_traces": [trace], "allocator_settings": {}});
    let file = folder.path().join("libraries.json").to_string_lossy().into_owned();
    fs::write(&file, snapshot.to_string()).unwrap();
    let leaked = |arguments: &[&str]| {
        let json = leaks(&[&[file.as_str(), "--json"], arguments].concat()).json();
        let leaks = json["memory"]["devices"][0]["leaks"].as_array().unwrap().clone();
        leaks
            .iter()
            .map(|leak| (leak["never_freed"]["count"].as_u64().unwrap(), leak.clone()))
            .collect::<Vec<_>>()
    };
    let apart = leaked(&[]);
    assert_eq!(apart.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [200, 200], "{apart:#?}");
    let together = leaked(&["--by", "line"]);
    let [(401, leak)] = &together[..] else { panic!("{together:#?}") };
    let caller = leak["stack"][1].to_string();
    assert!(caller.contains("two"), "the stack with the most bytes: {leak:#}");
    assert_eq!(leak["stacks"], 3, "{leak:#}");
    assert!(leaks(&[&file]).first_line().starts_with("2 groups leak 2.1 MiB"), "{:?}", leaks(&[&file]));
}

#[test]
fn blocks_freed_at_the_programs_end_are_reported_but_are_no_leaks() {
    let folder = tempfile::tempdir().unwrap();
    let mut ending = leaking();
    ending.marks.rows.clear();
    for kept in std::mem::take(&mut ending.blocks) {
        let number = (kept.address - 0x7000_0000) / 4096 / 2;
        let ticks = 1_000_000_000 + 10_000 * number;
        let free = Event { stack: kept.stack, ..event(ticks, Action::Free, kept.address, kept.size_bytes) };
        ending.events.push(&free);
    }
    let file = saved(&folder, "ending.memtrack", &ending);
    let ended = leaks(&[&file, "--by", "stack"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.text.contains("186.5 KiB of "), "{ended:?}");
    assert!(ended.text.contains("were freed in the last 2.0 ms, as at a program's end."), "{ended:?}");
    let first = ended.first_line();
    assert!(first.starts_with("1 stack grew steadily and was freed only at the end: "), "{ended:?}");
    assert!(first.contains(" 186.5 KiB in 8 of 8 periods"), "{ended:?}");
    assert_eq!(leaks(&[&file, "--by", "stack", "--strict"]).code, Some(1));
    let json = leaks(&[&file, "--by", "stack", "--json"]).json();
    let late = json["memory"]["devices"][0]["freed_late"].as_array().unwrap();
    let [late] = &late[..] else { panic!("{json:#}") };
    assert_eq!(late["freed"]["requested_bytes"], 191_000, "{late:#}");
    assert_eq!(late["grew_periods"], late["periods"], "{late:#}");
}

/// Returns the recording of [`leaking`] with all its blocks freed after the last step.
fn freed_after_the_steps() -> Snapshot {
    let mut ending = leaking();
    for (number, kept) in (0u64..).zip(std::mem::take(&mut ending.blocks)) {
        let ticks = 1_000_000_000 + 10_000 * number;
        let free = Event { stack: kept.stack, ..event(ticks, Action::Free, kept.address, kept.size_bytes) };
        ending.events.push(&free);
    }
    ending
}

#[test]
fn blocks_left_by_steps_are_judged_before_the_final_frees() {
    let folder = tempfile::tempdir().unwrap();
    let ending = freed_after_the_steps();
    let file = saved(&folder, "ending.memtrack", &ending);
    for per in [&["--per", "step"][..], &[]] {
        let ended = leaks(&[&[&file, "--by", "stack"], per].concat());
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.first_line().starts_with("1 stack leaks 194.3 KiB: "), "{ended:?}");
        assert!(ended.text.contains("not freed while the steps ran"), "{ended:?}");
        assert!(
            ended.text.contains("Freed after the last of the steps: 194.3 KiB in 199 blocks"),
            "{ended:?}"
        );
    }
    let json = leaks(&[&file, "--by", "stack", "--per", "step", "-n", "0", "--json"]).json();
    let device = &json["memory"]["devices"][0];
    assert_eq!(device["generations"]["leaving"], 199, "{device:#}");
    assert_eq!(device["generations"]["median_left_bytes"], 1000, "{device:#}");
    assert_eq!(device["alive"]["count"], 0, "{device:#}");
}

#[test]
fn buffers_of_one_step_and_caches_that_fill_once_are_no_leaks() {
    let folder = tempfile::tempdir().unwrap();
    let mut calm = empty();
    let module = Module { path: "/bin/program".into(), start: 0x1000, end: 0x9000, ..Module::default() };
    calm.modules = vec![module];
    let [next, cache] = [calm.stacks.push(&[0x1234, 0x3456]), calm.stacks.push(&[0x2345, 0x3456])];
    let of = |stack: StackId, ticks: u64, action, address: u64| Event {
        stack,
        ..event(ticks, action, address, 1000)
    };
    let [buffer, page] = [|step: u64| 0x7000_0000 + step * 4096, |step: u64| 0x9000_0000 + step * 4096];
    for step in 0..200u64 {
        let ticks = 5_000_000 * step;
        calm.events.push(&of(next, ticks, Action::Alloc, buffer(step)));
        if step > 0 {
            calm.events.push(&of(next, ticks + 1, Action::Free, buffer(step - 1)));
        }
        if step < 20 {
            calm.events.push(&of(cache, ticks + 2, Action::Alloc, page(step)));
        }
        calm.marks.push(ticks + 3, ThreadId(1), "step");
    }
    calm.events.push(&of(next, 1_000_000_000, Action::Free, buffer(199)));
    for step in 0..20 {
        calm.events.push(&of(cache, 1_000_000_001 + step, Action::Free, page(step)));
    }
    let file = saved(&folder, "calm.memtrack", &calm);
    let ended = leaks(&[&file, "--by", "stack", "--per", "step"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.first_line().starts_with("nothing leaks"), "{ended:?}");
    // The cache grows in each of the first twenty steps. The first of them is before the first mark, so nineteen of the marked
    // steps left something.
    assert!(
        ended.text.contains("What each step left behind: 19 of 199 left something, median 0 B"),
        "{ended:?}"
    );
}

#[test]
fn a_c_program_that_frees_only_at_its_end_is_reported_and_leaks_when_killed() {
    const LATE: &str = include_str!("../../src/c/late.c");
    let bench = Bench::new();
    fs::write(bench.path("late.c"), LATE).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O0", "-fno-omit-frame-pointer", "-o", "late", "late.c"])
        .current_dir(bench.folder.path());
    let built = cc.output().expect("a compiler of C");
    assert!(built.status.success(), "{}", stderr_text(&built));
    let line = LATE.lines().position(|line| line.contains("the result")).unwrap() + 1;
    let place = format!("late.c:{line} collect");
    bench.run(&["--host", "-o", "freed", "--", "./late"]);
    let freed = bench.path("freed");
    let ended = leaks(&[freed.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let first = ended.first_line();
    assert!(first.starts_with("1 line grew steadily and was freed only at the end: "), "{ended:?}");
    assert!(first.contains(&place), "{ended:?}");
    assert_eq!(leaks(&[freed.to_str().unwrap(), "--strict"]).code, Some(1));
    bench.run(&["--host", "-o", "killed", "--", "./late", "killed"]);
    let ended = leaks(&[bench.path("killed").to_str().unwrap()]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.first_line().contains(&place), "{ended:?}");
}

/// A PyTorch snapshot, written as JSON.
struct Torch {
    trace: Vec<Value>,
    live: std::collections::BTreeMap<u64, (u64, Value)>,
    next: u64,
    us: u64,
}

impl Torch {
    fn new() -> Self {
        Self { trace: Vec::new(), live: Default::default(), next: 0x7000_0000, us: 1_700_000_000_000_000 }
    }

    fn stack(lines: &[(&str, u32, &str)]) -> Value {
        let frame = |&(filename, line, name): &(&str, u32, &str)| serde_json::json!({"filename": filename, "line": line, "name": name});
        lines.iter().map(frame).collect()
    }

    fn forward(line: u32) -> Value {
        let linear = "/env/site-packages/torch/nn/modules/linear.py";
        Self::stack(&[(linear, 125, "forward"), ("/w/model.py", line, "forward"), ("/w/train.py", 9, "step")])
    }

    fn event(&mut self, action: &str, address: u64, size: u64, frames: &Value) {
        self.us += 20_000;
        self.trace.push(serde_json::json!({"action": action, "addr": address, "size": size, "stream": 0,
            "time_us": self.us, "frames": frames}));
    }

    fn alloc(&mut self, size: u64, frames: Value) -> u64 {
        let address = self.next;
        self.next += size;
        self.event("alloc", address, size, &frames);
        self.live.insert(address, (size, frames));
        address
    }

    fn free(&mut self, address: u64) {
        let (size, frames) = self.live.remove(&address).unwrap();
        self.event("free_requested", address, size, &frames);
        self.event("free_completed", address, size, &frames);
    }

    fn value(&self) -> Value {
        let (start, mut at) = (0x7000_0000u64, 0x7000_0000u64);
        let mut blocks = Vec::new();
        let free = |from: u64, to: u64| serde_json::json!({"address": from, "size": to - from, "requested_size": 0, "state": "inactive", "frames": []});
        for (&address, (size, frames)) in &self.live {
            if address > at {
                blocks.push(free(at, address));
            }
            blocks.push(serde_json::json!({"address": address, "size": size, "requested_size": size,
                "state": "active_allocated", "frames": frames}));
            at = address + size;
        }
        if self.next > at {
            blocks.push(free(at, self.next));
        }
        let active: u64 = self.live.values().map(|(size, _)| size).sum();
        serde_json::json!({"segments": [{"device": 0, "address": start, "total_size": self.next - start, "stream": 0,
            "segment_type": "large", "segment_pool_id": [0, 0], "is_expandable": false, "allocated_size": active,
            "active_size": active, "requested_size": active, "frames": [], "blocks": blocks}],
            "device_traces": [self.trace], "allocator_settings": {}, "external_annotations": []})
    }

    fn save(&self, folder: &TempDir, name: &str) -> String {
        let path = folder.path().join(name);
        fs::write(&path, self.value().to_string()).unwrap();
        path.to_string_lossy().into_owned()
    }
}

#[test]
fn blocks_kept_by_a_first_forward_pass_are_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |file: &str| {
        let ended = leaks(&[file]);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.errors.contains("cannot determine what leaks") && ended.text.is_empty(), "{ended:?}");
        assert!(ended.errors.contains("no step ended"), "{ended:?}");
        assert_eq!(leaks(&[file, "--json"]).code, Some(3));
    };
    refused(&fixture("snapshots/cases/oomforward.pickle"));
    // Out of memory in a forward pass in which each layer allocates and frees temporaries.
    let mut temporaries = Torch::new();
    for _ in 0..48 {
        temporaries.alloc(10 << 20, Torch::forward(31));
        let temporary = temporaries.alloc(25 << 20, Torch::forward(32));
        temporaries.free(temporary);
    }
    temporaries.event("oom", 0, 1 << 30, &Torch::forward(33));
    refused(&temporaries.save(&folder, "temporaries.json"));
    // Out of memory in the first backward pass, whose threads have no Python stacks.
    let mut backward = Torch::new();
    let kept: Vec<u64> =
        (0..48).map(|layer| backward.alloc(2 << 20, Torch::forward(30 + layer % 4))).collect();
    for &address in kept[20..].iter().rev() {
        backward.alloc(3 << 20, serde_json::json!([]));
        backward.free(address);
    }
    backward.event("oom", 0, 1 << 30, &serde_json::json!([]));
    refused(&backward.save(&folder, "backward.json"));

    // The batches of an evaluation loop count as steps; each one keeps its autograd graph alive.
    let mut graphs = Torch::new();
    for _ in 0..40 {
        graphs.alloc(1 << 20, Torch::stack(&[("/w/train.py", 8, "step")]));
        for layer in 0..6 {
            graphs.alloc(2 << 20, Torch::forward(30 + layer));
        }
    }
    let ended = leaks(&[&graphs.save(&folder, "graphs.json")]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.first_line().contains("model.py:30 forward"), "{ended:?}");
}

/// Returns a snapshot of forty training steps, each of which keeps its loss alive.
fn trained(backward_stack: &Value) -> Torch {
    let mut torch = Torch::new();
    for _ in 0..40 {
        let kept: Vec<u64> =
            (0..12).map(|layer| torch.alloc(2 << 20, Torch::forward(30 + layer % 4))).collect();
        torch.alloc(512, Torch::stack(&[("/w/train.py", 10, "step")]));
        let mut gradients = Vec::new();
        for address in kept.into_iter().rev() {
            gradients.push(torch.alloc(1 << 20, backward_stack.clone()));
            torch.free(address);
        }
        gradients.into_iter().for_each(|address| torch.free(address));
    }
    torch
}

#[test]
fn a_file_without_times_is_judged_by_events() {
    let folder = tempfile::tempdir().unwrap();
    let mut torch = trained(&serde_json::json!([]));
    torch.trace.iter_mut().for_each(|event| drop(event.as_object_mut().unwrap().remove("time_us")));
    let file = torch.save(&folder, "untimed.json");
    let ended = leaks(&[&file]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.first_line().starts_with("1 line leaks 20.0 KiB: train.py:10 step"), "{ended:?}");
    assert!(ended.text.contains("after each of 10 periods of 292 events"), "{ended:?}");
    assert!(ended.text.contains("the file's events have no times"), "{ended:?}");
    let json = leaks(&[&file, "--json"]).json();
    assert_eq!(json["memory"]["cut_by"], "events", "{json:#}");
    assert_eq!(json["memory"]["period_seconds"], Value::Null, "{json:#}");
    assert_eq!(json["memory"]["devices"][0]["leaks"][0]["age"], Value::Null, "{json:#}");
    // The text contains no times, which would end in a unit.
    assert!(!ended.text.contains(" s ") && !ended.text.contains(" ms"), "{ended:?}");

    let ended = leaks(&[&fixture("snapshots/cases/notimes.pickle")]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.first_line().contains("10 periods of 290 events"), "{ended:?}");
}

#[test]
fn backward_passes_without_stacks_are_explained_with_the_option_that_records_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = trained(&serde_json::json!([])).save(&folder, "python.json");
    let why =
        "480 of 1,000 allocations have no stack: PyTorch recorded only Python stacks (stacks=\"python\")";
    for verb in ["leaks", "top", "summary"] {
        let output = Command::new(memtrack()).args([verb, &file]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(why) && text.contains("stacks=\"all\""), "{verb}: {text}");
    }
    let native = Torch::stack(&[("libtorch_cpu.so", 0, "torch::autograd::Engine::thread_main")]);
    let file = trained(&native).save(&folder, "all.json");
    let output = Command::new(memtrack()).args(["summary", &file]).output().unwrap();
    assert!(!String::from_utf8(output.stdout).unwrap().contains("stacks="));
}

#[test]
fn steps_are_reported_one_by_one_and_the_error_about_an_unknown_name_lists_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let file = saved(&folder, "leaking.memtrack", &leaking());
    let json = leaks(&[&file, "--per", "step", "-n", "0", "--json"]).json();
    let generations = &json["memory"]["devices"][0]["generations"];
    assert_eq!((&generations["marks"], &generations["leaving"]), (&Value::from(200), &Value::from(199)));
    let rows = generations["rows"].as_array().unwrap();
    assert!(rows[..200].iter().all(|row| row["left"]["requested_bytes"] == 1000), "{generations:#}");
    assert!(rows[..200].iter().all(|row| row["allocated"]["requested_bytes"] == 2000), "{generations:#}");
    assert_eq!(json["memory"]["interval_name"], "step");
    let ended = leaks(&[&file, "--per", "epoch"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.errors.contains("no interval named epoch repeats in it; it has step"), "{ended:?}");
}

#[test]
fn files_with_too_little_data_are_refused_so_that_no_gate_passes() {
    let folder = tempfile::tempdir().unwrap();
    let mut short = leaking();
    short.events.pick(&[0, 1, 2, 3]);
    short.marks.rows.truncate(1);
    let short = saved(&folder, "short.memtrack", &short);
    let ended = leaks(&[&short]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.errors.contains("too short, with 4 events") && ended.text.is_empty(), "{ended:?}");

    // Allocations at startup look like growth, unless the program marks its steps.
    let mut start = leaking();
    start.events.ticks.iter_mut().for_each(|ticks| *ticks /= 10);
    start.marks.rows.iter_mut().for_each(|mark| mark.ticks /= 10);
    let marked = saved(&folder, "marked.memtrack", &start);
    start.marks.rows.clear();
    let unmarked = saved(&folder, "start.memtrack", &start);
    let ended = leaks(&[&unmarked]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.errors.contains("too short, 99.5 ms, to distinguish growth"), "{ended:?}");
    assert_eq!(leaks(&[&marked]).code, Some(1));

    let mut state = leaking();
    state.events.pick(&[]);
    state.marks.rows.clear();
    let ended = leaks(&[&saved(&folder, "state.memtrack", &state)]);
    assert_eq!(ended.code, Some(3));
    assert!(ended.errors.contains("give several snapshots of the process"), "{ended:?}");

    let ended = leaks(&[&saved(&folder, "empty.memtrack", &empty())]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.errors.contains("it holds no memory and no events"), "{ended:?}");

    // A single mark does not delimit an interval.
    let mut once = leaking();
    once.marks.rows.truncate(1);
    let ended = leaks(&[&saved(&folder, "once.memtrack", &once), "--per", "step"]);
    assert!(ended.text.contains("What each step left behind: marked only once"), "{ended:?}");

    // Four steps are listed individually, but are too few to detect growth.
    let mut few = leaking();
    few.marks.rows.truncate(4);
    let few = saved(&folder, "few.memtrack", &few);
    let ended = leaks(&[&few, "--per", "step"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.errors.contains("step is marked only 4 times"), "{ended:?}");
    assert!(!ended.text.contains("marked only"), "printed once: {ended:?}");
    assert!(
        ended.text.contains("What each step left behind: 3 of 3 left something, median 1000 B"),
        "{ended:?}"
    );
    assert_eq!(leaks(&[&few]).code, Some(1), "by time it is judged");
}

#[test]
fn blocks_older_than_the_trace_are_reported_as_not_judged() {
    let folder = tempfile::tempdir().unwrap();
    let mut late = leaking();
    // The trace contains only the newest 21 steps: the other 179 blocks are known only from the list of live blocks.
    let rows: Vec<u32> = (3 * 179..3 * 200).collect();
    late.events.pick(&rows);
    let file = saved(&folder, "late.memtrack", &late);
    let ended = leaks(&[&file, "--by", "stack"]);
    let older =
        "174.8 KiB in 179 blocks are older than the trace and were not judged: give several snapshots";
    assert!(ended.text.contains(older), "{ended:?}");

    // Even if no other blocks are live, the report does not state that nothing is left.
    late.events.pick(&(0..rows.len() as u32).filter(|row| row % 3 > 0).collect::<Vec<_>>());
    late.blocks.truncate(179);
    let file = saved(&folder, "older.memtrack", &late);
    let ended = leaks(&[&file, "--by", "stack"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        ended.first_line().starts_with("nothing leaks") && ended.first_line().ends_with(older),
        "{ended:?}"
    );
    assert!(!ended.text.contains("nothing that was allocated is left"), "{ended:?}");
    let json = leaks(&[&file, "--by", "stack", "--json"]).json();
    assert_eq!(json["memory"]["devices"][0]["older"]["count"], 179, "{json:#}");
    assert_eq!(json["memory"]["devices"][0]["older"]["requested_bytes"], 179_000, "{json:#}");
}

#[test]
fn errors_about_other_files_contain_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing");
    fs::write(&nothing, "").unwrap();
    for path in [nothing.to_str().unwrap(), "/no/such/file"] {
        let ended = leaks(&[path]);
        assert_eq!(ended.code, Some(3), "{ended:?}");
        assert!(ended.errors.contains(path) && ended.errors.lines().count() == 1, "{ended:?}");
    }
    assert_eq!(leaks(&[]).code, Some(2));
    assert_eq!(leaks(&["-", "-"]).code, Some(2));
    assert_eq!(leaks(&["a", "--periods", "3"]).code, Some(2));
}

/// Returns snapshots of one process. On each of two devices, every snapshot has 20 blocks more than the previous one, and 30
/// blocks that no other snapshot has.
fn series(pid: u32) -> Vec<Snapshot> {
    let snapshot = |number: u64| {
        let mut snapshot = empty();
        snapshot.meta.pid = pid;
        snapshot.clock.last = (1_000_000 * (number + 1), 1_000_000 * (number + 1));
        let [stays, goes] = [0x1234, 0x2345].map(|address| snapshot.stacks.push(&[address, 0x3456]));
        let block = |device, stack, number: u64| LiveBlock {
            device,
            stack,
            ticks: 100 * number,
            ..live(&event(0, Action::Alloc, 0x7000_0000 + 4096 * number, 500))
        };
        for device in [DeviceId(0), DeviceId::HOST] {
            snapshot.blocks.extend((0..20 * (number + 1)).map(|number| block(device, stays, number)));
            let others = 1000 + 50 * number..1030 + 50 * number;
            snapshot.blocks.extend(others.map(|number| block(device, goes, number)));
        }
        snapshot
    };
    (0..4).map(snapshot).collect()
}

#[test]
fn several_snapshots_must_be_of_one_process_and_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let of = |pid: u32, name: &str| -> Vec<String> {
        let all = series(pid).into_iter().enumerate();
        all.map(|(number, snapshot)| saved(&folder, &format!("{name}{number}.memtrack"), &snapshot)).collect()
    };
    let (one, other) = (of(42, "a"), of(43, "b"));
    let all: Vec<&str> = one.iter().map(String::as_str).collect();
    let ended = leaks(&[&all[..], &["--by", "stack"]].concat());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for device in ["device 0", "host heap"] {
        // 60 blocks were allocated after the first snapshot and stayed live.
        let line = format!("{device}: 1 stack leaks 29.3 KiB");
        assert!(ended.text.lines().any(|text| text.starts_with(&line)), "{ended:?}");
    }
    assert!(ended.text.contains("in 3 of 3 periods"), "{ended:?}");
    // The report lists the leak's bytes in each snapshot, and mentions the other blocks.
    let totals = "In successive snapshots: 9.8 KiB, 19.5 KiB, 29.3 KiB, 39.1 KiB";
    assert!(ended.text.contains(totals), "{ended:?}");
    assert!(ended.text.contains("Merely alive: 14.6 KiB in 30 blocks of 1 stack."), "{ended:?}");
    let json = leaks(&[&all[..], &["--by", "stack", "--json"]].concat()).json();
    let leak = &json["memory"]["devices"][0]["leaks"][0];
    assert_eq!(leak["held_bytes"], serde_json::json!([10_000, 20_000, 30_000, 40_000]), "{leak:#}");
    // Suppressed blocks are not counted as merely alive.
    let known = folder.path().join("known.txt");
    fs::write(&known, "*0x1234*\n").unwrap();
    let ended = leaks(&[&all[..], &["--by", "stack", "--suppress", known.to_str().unwrap()]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.text.contains("device 0: nothing leaks: no stack grew steadily over 4 snapshots; 14.6 KiB in 30 blocks are merely alive"), "{ended:?}");
    let twice = folder.path().join("again.memtrack");
    fs::copy(all[1], &twice).unwrap();
    for (files, expected) in [
        (vec![all[0], all[1]], "2 snapshots are too few"),
        (vec![all[0], all[2], all[1]], "was taken before"),
        (vec![all[0], all[1], &other[2]], "not from one process"),
        (vec![all[0], all[1], twice.to_str().unwrap()], "the same snapshot twice"),
        (vec![all[0], all[1], all[1], all[2]], "the same snapshot twice"),
        (vec![all[0], all[1], &fixture("snapshots/samples/basic-1.pickle")], "a series must be of one kind"),
    ] {
        let ended = leaks(&files);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.errors.contains(expected) && ended.text.is_empty(), "{ended:?}");
    }
    let ended = leaks(&[&all[..], &["--per", "step"]].concat());
    assert_eq!(ended.code, Some(2), "{ended:?}");
}

#[test]
fn cycles_are_reported_in_the_text_of_memtrack_cycles() {
    let graph = fs::read_dir(fixture("cycles")).unwrap().map(|entry| entry.unwrap().path());
    let mut graphs: Vec<PathBuf> =
        graph.filter(|path| path.extension().is_some_and(|suffix| suffix == "json")).collect();
    graphs.sort();
    let mut leaking = 0;
    for graph in &graphs {
        let output = Command::new(memtrack()).arg("cycles").arg(graph).output().unwrap();
        if !output.status.success() {
            continue;
        }
        let ended = leaks(&[graph.to_str().unwrap()]);
        assert_eq!(ended.text, String::from_utf8(output.stdout).unwrap());
        leaking += i32::from(ended.code == Some(1));
        assert!(ended.code == Some(0) || ended.code == Some(1), "{ended:?}");
    }
    assert!(leaking > 0, "{graphs:?}");
}
