//! `memtrack run --host`: a program with jemalloc linked into it.

use memtrack_core::event::DeviceId;
use memtrack_tests::memtrack;
use memtrack_tests::run::{Bench, bytes, compile_c, load, stderr_text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Output};

const SOURCE: &str = include_str!("../../src/c/jemalloc.c");

fn compile(bench: &Bench, arguments: &[&str]) {
    let linked = ["-fno-builtin", "-o", "program", "-l:libjemalloc.a", "-lm"];
    compile_c(bench.folder.path(), SOURCE, &[&linked, arguments].concat());
}

fn plain(bench: &Bench) -> Output {
    Command::new(bench.path("program")).output().expect("the program can be started")
}

/// Returns the usable bytes that the program printed for each of its numbered lines, by the line in the source.
fn expected(output: &Output) -> BTreeMap<u64, u64> {
    let printed = String::from_utf8_lossy(&output.stdout);
    let sums: Vec<u64> = printed.lines().map(|line| line.parse().expect("a number")).collect();
    let of_line = |(place, line): (usize, &str)| {
        let number: usize = line.split_once("; // ")?.1.parse().ok()?;
        Some((place as u64 + 1, sums[number]))
    };
    SOURCE.lines().enumerate().filter_map(of_line).filter(|&(_, bytes)| bytes > 0).collect()
}

#[test]
#[cfg_attr(not(jemalloc), ignore = "needs /usr/lib/x86_64-linux-gnu/libjemalloc.a")]
fn its_blocks_are_the_heap() {
    let bench = Bench::new();
    compile(&bench, &[]);
    let plain = plain(&bench);
    let recorded = bench.run(&["--host", "-o", "run", "--", "./program"]);
    assert_eq!((recorded.status.code(), &recorded.stdout), (Some(0), &plain.stdout));
    let mut command = Command::new(memtrack());
    command.args(["top", "run", "--by", "line", "--at", "end", "--device", "host", "-n", "100", "--json"]);
    let top = command.current_dir(bench.folder.path()).output().expect("memtrack can be started");
    let top: Value = serde_json::from_slice(&top.stdout).expect("JSON");
    let mut held: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for row in top["devices"][0]["rows"].as_array().unwrap() {
        let Some(line) = row["mine"]["line"].as_u64() else { continue };
        let (bytes, error) = held.entry(line).or_default();
        *bytes += row["requested_bytes"].as_f64().unwrap();
        *error += row["requested_bytes_error"]["standard_error"].as_f64().unwrap_or(0.0);
    }
    let expected = expected(&plain);
    let (snapshot, _) = load(&bench.path("run"));
    for (line, &bytes) in &expected {
        let (shown, error) = held.remove(line).unwrap_or_default();
        // On a slow machine, small blocks are sampled, and some lines have no sample of theirs. Large ones are exact.
        if !snapshot.may_lack_small_blocks() || bytes > 64 << 20 {
            assert!(
                (shown - bytes as f64).abs() <= 5.0 * error,
                "line {line}: {shown} ± {error}, not {bytes}"
            );
        }
    }
    // The sums are exact in any case, and the C library's own blocks are few.
    let counts = snapshot.exact_counts(DeviceId::HOST).expect("the recorder counted");
    let live = counts.allocated_bytes - counts.freed_bytes;
    let kept: u64 = expected.values().sum();
    assert!((kept..kept + (1 << 20)).contains(&live), "{live} B are live, of which the program keeps {kept}");
    // What jemalloc maps is not counted in addition.
    assert!(bytes(&snapshot, DeviceId::MAPPED) < 1 << 20);
    assert!(!stderr_text(&recorded).contains("jemalloc ("), "{}", stderr_text(&recorded));
}

#[test]
#[cfg_attr(not(jemalloc), ignore = "needs /usr/lib/x86_64-linux-gnu/libjemalloc.a")]
fn without_symbols_it_is_not_found() {
    let bench = Bench::new();
    compile(&bench, &["-s"]);
    let plain = plain(&bench);
    let recorded = bench.run(&["--host", "-o", "run", "--", "./program"]);
    assert_eq!((recorded.status.code(), &recorded.stdout), (Some(0), &plain.stdout));
    // What it maps is mapped memory, as far as the command read it before the program ended.
    let (snapshot, _) = load(&bench.path("run"));
    let counted = snapshot.exact_counts(DeviceId::HOST).map_or(0, |counts| counts.allocated_bytes);
    assert!(counted < 1 << 20, "{counted} B");
}
