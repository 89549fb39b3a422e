//! `memtrack tracker -o` writes the figures to files, and overwrites existing files only with `--force`.

use memtrack_tests::{memtrack, oracle};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn tracker(output: &Path, more: &[&str]) -> Output {
    let stats = oracle("memory_tracker/convnet/stats.pickle");
    Command::new(memtrack()).arg("tracker").arg(stats).arg("-o").arg(output).args(more).output().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn html_is_one_page_with_four_figures() {
    let folder = tempfile::tempdir().unwrap();
    let output = tracker(&folder.path().join("run.html"), &[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(names(folder.path()), ["run.html"]);
    let page = fs::read_to_string(folder.path().join("run.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 4);
    assert!(
        page.contains("fw_bw_boundary (at 19)") && page.contains("1.forward.native_batch_norm.default_0")
    );
    assert!(String::from_utf8(output.stdout).unwrap().contains("The number of alloc retries are: 7"));
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("wrote "));
}

#[test]
fn svg_and_png_are_four_files_each() {
    let folder = tempfile::tempdir().unwrap();
    for (suffix, start) in [("svg", &b"<svg"[..]), ("png", b"\x89PNG")] {
        assert_eq!(tracker(&folder.path().join(format!("run.{suffix}")), &[]).status.code(), Some(0));
        for figure in ["active", "all", "allocated", "reserved"] {
            let content = fs::read(folder.path().join(format!("run-{figure}.{suffix}"))).unwrap();
            assert!(content.starts_with(start) && content.len() < 200_000, "{figure}.{suffix}");
        }
    }
    assert_eq!(names(folder.path()).len(), 8);
}

#[test]
fn existing_files_are_kept_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let existing = folder.path().join("run-reserved.svg");
    fs::write(&existing, "old").unwrap();
    let output = tracker(&folder.path().join("run.svg"), &[]);
    assert_eq!(output.status.code(), Some(2));
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.contains("run-reserved.svg exists") && line.contains("--force"), "{line}");
    assert_eq!(names(folder.path()), ["run-reserved.svg"]);
    assert!(output.stdout.is_empty());

    assert_eq!(tracker(&folder.path().join("run.svg"), &["--force"]).status.code(), Some(0));
    assert_ne!(fs::read_to_string(&existing).unwrap(), "old");
    assert_eq!(names(folder.path()).len(), 4);
}

#[test]
fn unknown_suffixes_are_wrong_usage() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["run.pdf", "run"] {
        let output = tracker(&folder.path().join(name), &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8(output.stderr).unwrap().contains(".html, .svg or .png"));
    }
}

#[test]
fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = tracker(&folder.path().join("missing/run.html"), &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8(output.stderr).unwrap().contains("missing/run.html"));
}

#[test]
fn an_invalid_input_leaves_no_figures() {
    let folder = tempfile::tempdir().unwrap();
    let figures = folder.path().join("run.html");
    let bad = oracle("hostile/not_pickle_json.pickle");
    let output = Command::new(memtrack()).arg("tracker").arg(bad).arg("-o").arg(figures).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(names(folder.path()), [""; 0]);
}
