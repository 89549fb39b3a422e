//! `memtrack run --host`: the names of code that a program generates while it runs, from its perf map or its jitdump file. The
//! program is written in C and lists its functions itself, so no language runtime is needed.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::memtrack;
use memtrack_tests::run::{Bench, compile_c, load_each, stderr_text};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const JIT: &str = include_str!("../../src/c/jit.c");

/// A recording, after the files of its program have been removed.
struct Recorded {
    bench: Bench,
    stderr: String,
    /// The innermost function of each of the blocks of a million bytes and more, by millions.
    functions: BTreeMap<u64, String>,
}

/// Records the program with a kind of list.
fn record(kind: &str) -> Recorded {
    let bench = Bench::new();
    compile_c(bench.folder.path(), JIT, &["-O0", "-o", "jit"]);
    fs::create_dir(bench.path("elsewhere")).expect("a folder");
    let output = match kind {
        "dump" => bench.run_until("run", &["--host"], &["./jit", kind], &[], has_names),
        _ => bench.run(&["--host", "-o", "run", "--", "./jit", kind]),
    };
    let pid = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(!pid.is_empty(), "{}", stderr_text(&output));
    let _ = fs::remove_file(PathBuf::from(format!("/tmp/perf-{pid}.map")));
    let _ = fs::remove_dir_all(bench.path("elsewhere"));
    let functions =
        load_each(&bench.path("run")).iter().flat_map(|(_, snapshot)| functions(snapshot)).collect();
    Recorded { stderr: stderr_text(&output), functions, bench }
}

/// Returns whether the command has read the names of generated code.
fn has_names(snapshot: &Snapshot) -> bool {
    snapshot.names.frames.values().flatten().any(|frame| frame.function == "makeBuffers")
}

/// Returns the place and the name of the function that allocated each large block.
fn functions(snapshot: &Snapshot) -> BTreeMap<u64, String> {
    let mut symbols = Symbolizer::of(snapshot);
    let large = |size: u64| (1_000_000..10_000_000).contains(&size);
    let blocks =
        snapshot.blocks.iter().filter(|block| block.device == DeviceId::HOST && large(block.size_bytes));
    let mut function = |stack: &[u64]| {
        let frames = symbols.stack(stack);
        // The frame inside `main`'s: the walk went on through the generated code.
        let main = frames.iter().position(|frame| frame.function == "main");
        let frame = main.and_then(|main| frames[..main].last()).unwrap_or_else(|| panic!("{frames:?}"));
        let line = frame.line.map_or(String::new(), |line| format!(":{line}"));
        let file = frame.file.as_deref().map_or(String::new(), |file| format!(" {file}{line}"));
        frame.function.clone() + &file
    };
    blocks.map(|block| (block.size_bytes / 1_000_000, function(snapshot.stacks.get(block.stack)))).collect()
}

fn is_address(function: &str) -> bool {
    function.strip_prefix("0x").is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok())
}

#[test]
fn generated_code_has_the_names_of_the_perf_map() {
    let recorded = record("map");
    let functions = &recorded.functions;
    assert_eq!(functions[&1], "makeBuffers /home/kim/app.js:3");
    assert_eq!(functions[&2], "void [App] Main::Run(string[])");
    assert_eq!(functions[&3], "first or second", "two functions were at this address");
    assert!(is_address(&functions[&4]), "its line of the map is cut: {functions:?}");
    assert!(is_address(&functions[&5]), "it has no line: {functions:?}");
    let top = Command::new(memtrack())
        .args(["top", "run", "--by", "line", "--at", "end", "--device", "host"])
        .current_dir(recorded.bench.folder.path())
        .output()
        .expect("memtrack can be started");
    let text = String::from_utf8_lossy(&top.stdout);
    assert!(text.contains("\n app.js:3 makeBuffers "), "{text}");
}

#[test]
fn generated_code_has_the_names_of_the_dump() {
    let Recorded { functions, stderr, .. } = record("dump");
    assert_eq!(functions[&1], "julia_make_7 /home/kim/make.jl:12", "{stderr}");
    assert_eq!(functions[&2], "makeBuffers /home/kim/app.js:3");
    assert!(is_address(&functions[&3]), "{functions:?}");
}

#[test]
fn map_behind_a_link_is_refused() {
    let Recorded { functions, stderr, .. } = record("link");
    assert_eq!(functions.len(), 5);
    assert!(functions.values().all(|function| is_address(function)), "{functions:?}");
    assert!(stderr.contains("functions that process "), "{stderr}");
    assert!(stderr.contains(".map: "), "{stderr}");
}

#[test]
fn program_that_executes_another_one_keeps_its_names() {
    let Recorded { functions, stderr, .. } = record("exec");
    assert_eq!(functions.get(&1).map(String::as_str), Some("makeBuffers /home/kim/app.js:3"), "{stderr}");
}
