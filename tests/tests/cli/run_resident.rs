//! `memtrack run --host` and `memtrack rss`: the rows of resident memory are those that a program knows.

use memtrack_tests::memtrack;
use memtrack_tests::run::{Bench, Waiting, compile_c, stderr_text};
use memtrack_tests::time::wait_for;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

const PAGES: &str = include_str!("../../src/c/pages.c");

/// Returns `memtrack rss run --json`; `None` while the recording has no readings.
fn rss(bench: &Bench) -> Option<Value> {
    let mut command = Command::new(memtrack());
    command.args(["rss", "run", "--json"]).current_dir(bench.folder.path());
    let output = command.output().expect("memtrack can be started");
    output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("JSON"))
}

/// Waits for a reading that began after now, and returns the report.
fn next_reading(bench: &Bench) -> Value {
    let readings = |report: &Value| report["readings"].as_u64().unwrap();
    let before = rss(bench).as_ref().map_or(0, readings);
    let mut report = Value::Null;
    // The next reading may have begun already.
    wait_for("there are two more readings", || {
        report = rss(bench).unwrap_or_default();
        !report.is_null() && readings(&report) >= before + 2
    });
    report
}

fn row(ledger: &Value, what: &str) -> u64 {
    let rows = ledger["rows"].as_array().unwrap();
    rows.iter().find(|row| row["what"] == what).map_or(0, |row| row["bytes"].as_u64().unwrap())
}

/// Reads the program's lines `NAME NUMBER`.
fn truth(program: &mut Waiting, lines: usize) -> BTreeMap<String, u64> {
    let line = |_| {
        let line = program.line();
        let (name, number) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
        (name.to_owned(), number.parse().unwrap())
    };
    (0..lines).map(line).collect()
}

fn check(arguments: &[&str]) {
    let bench = Bench::new();
    compile_c(bench.folder.path(), PAGES, &[&["-O1", "-o", "pages"], arguments].concat());
    let mut program =
        Waiting::started(&bench, &["--host", "--exact", "--stacks", "alloc", "-o", "run", "--", "./pages"]);
    let truth_before = truth(&mut program, 4);
    let report = next_reading(&bench);
    let end = &report["end"];
    let rows = end["rows"].as_array().unwrap();
    let sum: u64 = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert_eq!(sum, end["resident_bytes"].as_u64().unwrap(), "the rows add up: {end:#}");
    let is_close = |name: &str, found: u64, share: f64| {
        let known = truth_before[name];
        // The C library has some blocks of its own.
        let slack = known as f64 * share + 64e3;
        assert!((found as f64 - known as f64).abs() <= slack, "{name}: {found}, not {known}: {end:#}");
    };
    is_close("resident", sum, 0.01);
    let is_known = rows.iter().all(|row| row["what"] != "heap");
    if is_known {
        is_close("live", row(end, "live_heap"), 0.03);
        is_close("fragmentation", row(end, "fragmentation"), 0.03);
        let kept = row(end, "kept_by_allocator");
        // The allocator also keeps pages that no block has been on.
        assert!(kept + 64_000 >= truth_before["kept"], "{kept}: {truth_before:?} {end:#}");
        assert!(row(end, "stacks") > 3 * 200_000, "{end:#}");
        assert!(row(end, "mapped") > 1 << 20 && row(end, "not_explained") < sum / 50, "{end:#}");
        let pins = &end["sparse_pages"]["pinned_by"][0];
        let line = PAGES.lines().position(|line| line.contains("survivors */")).unwrap() + 1;
        assert_eq!(pins["name"], format!("source.c:{line} insert"), "{end:#}");
        assert!(pins["share"].as_f64().unwrap() > 0.9, "{pins}");
        assert!(end["live_not_resident_bytes"].as_u64().unwrap() > 40 << 20, "{end:#}");
    } else {
        eprintln!("the machine was too busy: the command lost events, and the report says so");
    }
    fs::write(bench.path("trim"), "").unwrap();
    let trimmed = truth(&mut program, 1)["trimmed"];
    if let Some(most) = end["trim_at_most_bytes"].as_u64() {
        assert!(trimmed <= most + 64_000, "a trim returned {trimmed}, and at most {most} was promised");
        // jemalloc keeps pages of small blocks in slabs, which a purge does not return.
        assert!(!arguments.is_empty() || trimmed as f64 > 0.5 * most as f64, "{trimmed} of {most}");
        let after = &next_reading(&bench)["end"];
        let fell =
            end["resident_bytes"].as_u64().unwrap().abs_diff(after["resident_bytes"].as_u64().unwrap());
        assert!(fell.abs_diff(trimmed) <= 256_000, "{fell}, not {trimmed}: {after:#}");
    }
    fs::write(bench.path("end"), "").unwrap();
    let output = program.end();
    assert!(output.status.success(), "{}", stderr_text(&output));
}

#[test]
fn rows_are_what_the_program_knows() {
    check(&[]);
}

#[test]
#[cfg_attr(not(jemalloc), ignore = "needs /usr/lib/x86_64-linux-gnu/libjemalloc.a")]
fn rows_are_what_a_program_with_jemalloc_knows() {
    check(&["-DJEMALLOC", "-fno-builtin", "-l:libjemalloc.a", "-lm"]);
}

#[test]
fn files_without_readings_are_refused_with_the_reason() {
    let bench = Bench::new();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(memtrack());
        command.args(arguments).current_dir(bench.folder.path()).output().expect("memtrack can be started")
    };
    fs::write(bench.path("snapshot.json"), r#"{"segments": [], "device_traces": []}"#).unwrap();
    let refused = run(&["rss", "snapshot.json"]);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr_text(&refused));
    assert!(
        stderr_text(&refused).contains("`memtrack run --host -- PROGRAM` records it"),
        "{}",
        stderr_text(&refused)
    );
    let exact = bench.run(&["--exact", "--", "true"]);
    assert_eq!(exact.status.code(), Some(2), "{}", stderr_text(&exact));
    assert!(stderr_text(&exact).contains("--host"), "{}", stderr_text(&exact));
}
