//! `memtrack tracker` prints the same text as PyTorch, byte for byte.

use memtrack_tests::{memtrack, oracle};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn tracker(arguments: &[&str], stats: &Path) -> Output {
    Command::new(memtrack()).arg("tracker").arg(stats).args(arguments).output().unwrap()
}

/// Compares the summaries of the recorded runs in a folder.
fn check(folder: &Path) {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let runs: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    assert!(runs.len() >= 3);
    for run in runs {
        for stats in ["stats.pickle", "stats_no_op_index.pickle"] {
            for top in ["20", "5"] {
                let output = tracker(&["--top", top], &run.join(stats));
                let expected = fs::read(run.join(format!("summary_{top}.txt"))).unwrap();
                assert_eq!(output.status.code(), Some(0));
                assert!(output.stdout == expected, "{} {stats} --top {top}", run.display());
                assert!(output.stderr.is_empty());
            }
        }
    }
}

#[test]
fn summaries_equal_pytorchs() {
    check(&oracle("memory_tracker"));
}

#[test]
fn twenty_rows_are_the_default_and_all_can_be_requested() {
    let stats = oracle("memory_tracker/encoder/stats.pickle");
    assert_eq!(tracker(&[], &stats).stdout, tracker(&["--top", "20"], &stats).stdout);
    let all = tracker(&["--top", "1000000"], &stats).stdout;
    assert!(String::from_utf8(all).unwrap().lines().count() > 100);
    assert_eq!(String::from_utf8(tracker(&["--top", "0"], &stats).stdout).unwrap().lines().count(), 4);
}

#[test]
fn json_contains_the_same_numbers() {
    let output = tracker(&["--top", "2", "--json"], &oracle("memory_tracker/mlp/stats.pickle"));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let expected = serde_json::json!({
        "schema": "memtrack/tracker/1",
        "num_alloc_retries": 0,
        "top": 2,
        "operators": [
            { "operator": "4.forward.mm.default_3", "growth_bytes": 1 << 20 },
            { "operator": "4.forward.mm.default_4", "growth_bytes": 1 << 19 },
        ],
        "folded_operators": 0,
    });
    assert_eq!(summary, expected);
}

#[test]
fn a_dash_reads_standard_input() {
    let file = fs::File::open(oracle("memory_tracker/mlp/stats.pickle")).unwrap();
    let output = Command::new(memtrack())
        .args(["tracker", "-", "--top", "5"])
        .stdin(Stdio::from(file))
        .output()
        .unwrap();
    assert_eq!(output.stdout, fs::read(oracle("memory_tracker/mlp/summary_5.txt")).unwrap());
}

#[test]
fn help_has_examples() {
    let output = Command::new(memtrack()).args(["tracker", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(help.contains("Examples:") && help.contains("figures.html") && help.contains("Exit codes:"));
}

#[test]
fn compressed_statistics_are_read_like_plain_ones() {
    use std::io::Write as _;
    let stats = oracle("memory_tracker/encoder/stats.pickle");
    let folder = tempfile::tempdir().unwrap();
    let compressed = folder.path().join("stats.pickle.gz");
    let mut packer =
        flate2::write::GzEncoder::new(fs::File::create(&compressed).unwrap(), flate2::Compression::fast());
    packer.write_all(&fs::read(&stats).unwrap()).unwrap();
    packer.finish().unwrap();
    assert_eq!(tracker(&[], &compressed).stdout, tracker(&[], &stats).stdout);
    let piped = Command::new(memtrack())
        .args(["tracker", "-"])
        .stdin(fs::File::open(&compressed).unwrap())
        .output()
        .unwrap();
    assert_eq!(piped.stdout, tracker(&[], &stats).stdout);
}
