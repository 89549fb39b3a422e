//! Errors about files that a verb does not take: they name the file's kind and list the verbs that take it. The same applies to a
//! superfluous second file, and to a file in place of a verb.

use memtrack_tests::verbs::piped;
use memtrack_tests::{fixture, memtrack, oracle};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file of each kind, and the text about this file in the error of a verb that does not take it.
const KINDS: [(&str, &str); 16] = [
    (
        "train.py",
        "this is Python source, not a snapshot; memtrack run -- python3 train.py records the program",
    ),
    ("script", "this is Python source"),
    ("stats.pickle", "these are statistics of PyTorch's MemoryTracker, for memtrack tracker"),
    ("snapshot.pickle", "this is a PyTorch snapshot, for memtrack summary, top, peak"),
    ("snapshot.json", "this is a PyTorch snapshot, for memtrack summary, top, peak"),
    ("run.memtrack", "this is a recording of memtrack, for memtrack summary, top, peak"),
    (
        "run.optrace.jsonl.gz",
        "this is an operator trace, for memtrack categories, timeline, modules and advise",
    ),
    ("graph.json", "this is a graph of references, for memtrack cycles"),
    ("workload.jsonl", "this is a workload of allocator requests, for memtrack simulate"),
    ("chrome.json", "this is a profiler's trace for Chrome"),
    ("page.html", "this is a page for the browser"),
    ("model.pt", "this is a zip archive, as torch.save writes for tensors"),
    (
        "snapshot.db",
        "this is an SQLite database, which memtrack does not read; torch.cuda.memory._dump_snapshot",
    ),
    ("massif.out.12", "this is a profile of Valgrind's massif, which memtrack does not read"),
    ("output.bin", "this is a profile of memray, which memtrack does not read"),
    ("notes.txt", "this is text, not a snapshot or recording"),
];

/// A verb, its other arguments, and the files that it takes.
const VERBS: [(&str, &[&str], &[&str]); 10] = [
    ("summary", &[], &["snapshot.pickle", "snapshot.json", "run.memtrack"]),
    ("view", &["-o", "out.html"], &["snapshot.pickle", "snapshot.json", "run.memtrack"]),
    ("stats", &[], &["snapshot.pickle", "snapshot.json", "run.memtrack"]),
    ("check", &["--max-peak", "1GiB"], &["snapshot.pickle", "snapshot.json", "run.memtrack"]),
    ("convert", &["out.json"], &["snapshot.pickle", "snapshot.json", "run.memtrack"]),
    ("categories", &[], &["snapshot.pickle", "snapshot.json", "run.memtrack", "run.optrace.jsonl.gz"]),
    ("modules", &[], &["run.optrace.jsonl.gz"]),
    ("tracker", &[], &["stats.pickle"]),
    ("cycles", &[], &["graph.json"]),
    ("simulate", &[], &["workload.jsonl"]),
];

/// Verbs with a kind of file for which the error is more specific: it explains how to make an operator trace, and which verb
/// reports categories without one.
const SPECIFIC_ERRORS: [(&str, &str); 3] =
    [("modules", "snapshot.pickle"), ("modules", "snapshot.json"), ("modules", "run.memtrack")];

/// Returns the path of a fixture, or of a file in the reference data if there is no such fixture.
fn file(name: &str) -> PathBuf {
    Some(fixture(name)).filter(|path| path.exists()).unwrap_or_else(|| oracle(name))
}

fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
    let copy = |name: &str, from: &str| write(name, &fs::read(file(from)).unwrap());
    write("train.py", b"# trains\nprint(1)\n");
    write("script", b"#!/usr/bin/env python3\nprint(1)\n");
    copy("stats.pickle", "memory_tracker/mlp/stats.pickle");
    copy("snapshot.pickle", "snapshots/recorded/run.pickle");
    copy("run.optrace.jsonl.gz", "advice/kept.optrace.jsonl.gz");
    copy("graph.json", "cycles/trainer.json");
    copy("workload.jsonl", "allocator/ties.workload.jsonl");
    write("chrome.json", br#"{"schemaVersion": 1, "traceEvents": []}"#);
    write("page.html", b"<!DOCTYPE html><title>memtrack</title>");
    write("model.pt", b"PK\x03\x04 and so on");
    write("snapshot.db", b"SQLite format 3\0\x10\0\x01\x01");
    write("massif.out.12", b"desc: (none)\ncmd: ./a.out\ntime_unit: i\n");
    write("output.bin", b"memray\0\x0c\0\0\0\0\x01");
    write("notes.txt", b"the loss went up\n");
    for name in ["snapshot.json", "run.memtrack"] {
        let made = run(folder.path(), &["convert", "snapshot.pickle", name]);
        assert!(made.status.success(), "{made:?}");
    }
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(memtrack()).args(arguments).current_dir(folder).output().expect("memtrack can be started")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn errors_about_other_kinds_of_files_list_the_verbs_that_take_them() {
    let folder = files();
    for (verb, rest, accepted) in VERBS {
        for (file, kind) in KINDS {
            if accepted.contains(&file) || SPECIFIC_ERRORS.contains(&(verb, file)) {
                continue;
            }
            let output = run(folder.path(), &[&[verb, file], rest].concat());
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(3), "{verb} {file}: {text}");
            assert!(
                text.starts_with(&format!("memtrack: cannot read {file}: {kind}")),
                "{verb} {file}: {text}"
            );
            assert!(text.lines().count() == 1 && output.stdout.is_empty(), "{verb} {file}: {text}");
        }
        for file in accepted {
            let output = run(folder.path(), &[&[verb, *file], rest].concat());
            assert_ne!(output.status.code(), Some(2), "{verb} {file}: {}", stderr(&output));
            assert!(!stderr(&output).contains("this is"), "{verb} {file}: {}", stderr(&output));
            for made in ["out.html", "out.json"] {
                let _ = fs::remove_file(folder.path().join(made));
            }
        }
    }
}

#[test]
fn errors_about_standard_input_state_its_kind() {
    for (verb, file, kind) in [
        ("summary", "memory_tracker/mlp/stats.pickle", "these are statistics"),
        ("summary", "cycles/trainer.json", "this is a graph of references"),
        ("tracker", "snapshots/recorded/run.pickle", "this is a PyTorch snapshot"),
        ("simulate", "advice/kept.optrace.jsonl.gz", "this is an operator trace"),
        ("modules", "cycles/trainer.json", "this is a graph of references"),
        ("cycles", "allocator/ties.workload.jsonl", "this is a workload"),
    ] {
        let output = piped(&[verb, "-"], &fs::read(self::file(file)).unwrap());
        assert_eq!(output.status.code(), Some(3), "{verb} {file}");
        let text = stderr(&output);
        assert!(
            text.starts_with(&format!("memtrack: cannot read standard input: {kind}")),
            "{verb} {file}: {text}"
        );
    }
}

/// The reader's error is more specific than the kind of the file.
#[test]
fn a_damaged_file_gets_the_error_of_its_reader() {
    let folder = files();
    let whole = fs::read(folder.path().join("snapshot.pickle")).unwrap();
    fs::write(folder.path().join("cut.pickle"), &whole[..whole.len() / 2]).unwrap();
    let text = stderr(&run(folder.path(), &["summary", "cut.pickle"]));
    assert!(text.contains("the pickle ends too early"), "{text}");
}

#[test]
fn a_second_file_names_the_verbs_that_take_two() {
    let folder = files();
    for verb in ["summary", "top", "peak", "view"] {
        let output = run(folder.path(), &[verb, "snapshot.pickle", "run.memtrack"]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("unexpected argument 'run.memtrack'"), "{text}");
        assert!(
            text.contains("memtrack diff BEFORE AFTER") && text.contains("memtrack compare BEFORE AFTER"),
            "{text}"
        );
    }
    // The error about a mistyped option does not mention files.
    let text = stderr(&run(folder.path(), &["summary", "snapshot.pickle", "--jsn"]));
    assert!(text.contains("--json") && !text.contains("memtrack diff"), "{text}");
}

#[test]
fn the_error_about_a_file_in_place_of_a_verb_suggests_one() {
    let folder = files();
    for (file, line) in [
        ("snapshot.pickle", "memtrack summary snapshot.pickle"),
        ("stats.pickle", "memtrack tracker stats.pickle"),
        ("run.optrace.jsonl.gz", "memtrack categories run.optrace.jsonl.gz"),
        ("train.py", "memtrack run -- python3 train.py"),
    ] {
        let output = run(folder.path(), &[file]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(line), "{}", stderr(&output));
    }
    let text = stderr(&run(folder.path(), &["sumary", "snapshot.pickle"]));
    assert!(text.contains("'summary'"), "{text}");
}

#[cfg(unix)]
#[test]
fn the_error_about_running_python_source_suggests_python3() {
    let folder = files();
    for (name, code) in [("train.py", 127), ("./train.py", 126)] {
        let output = run(folder.path(), &["run", name]);
        assert_eq!(output.status.code(), Some(code));
        assert!(stderr(&output).contains(&format!("memtrack run -- python3 {name}")), "{}", stderr(&output));
    }
}
