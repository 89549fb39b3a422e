//! The pages of `memtrack ranks`: their content, their links, and files that are not overwritten.

use memtrack_tests::memtrack;
use memtrack_tests::ranks::Job;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn ranks(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(memtrack());
    command.arg("ranks").args(arguments).current_dir(folder).env("COLUMNS", "120");
    command.output().expect("memtrack can be started")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[track_caller]
fn written(folder: &Path, arguments: &[&str], page: &str) -> String {
    let output = ranks(folder, arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::read_to_string(folder.join(page)).unwrap()
}

/// Writes the files of eight ranks to `run/`; rank 5 leaks.
fn run_of_eight() -> TempDir {
    let folder = TempDir::new().unwrap();
    Job::default().write(&folder.path().join("run"), "pickle");
    folder
}

/// Returns the names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_page_has_the_report_and_the_first_step_of_a_difference() {
    let folder = run_of_eight();
    let output = ranks(folder.path(), &["run", "-o", "ranks.html"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stderr), "wrote ranks.html\n");
    // Standard output is the same as without -o.
    assert_eq!(text(&output.stdout), text(&ranks(folder.path(), &["run"]).stdout));
    let page = fs::read_to_string(folder.path().join("ranks.html")).unwrap();
    for expected in [
        "Rank 5 peaks higher than the others: 208.0 MiB, 48.0 MiB more than the median of 160.0 MiB. Rank 5 holds more than the \
         others since step 1.",
        "train.py:88 log_step",
        "in no other rank, 6 blocks",
        "6 steps (ProfilerStep), from 0 to 5.",
        "Steps (ProfilerStep): 6 steps; furthest apart in 5",
        "<tr id=\"m0-r5\" class=\"odd\">",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
    assert!(page.len() < 100_000, "{}", page.len());
    let json = ranks(folder.path(), &["run", "-o", "again.html", "--json"]);
    assert_eq!(json.stdout, ranks(folder.path(), &["run", "--json"]).stdout);
}

#[test]
fn each_rank_has_its_own_page_behind_a_relative_link() {
    let folder = run_of_eight();
    let arguments = ["run", "-o", "out/ranks.html", "--pages", "a b/pages"];
    fs::create_dir(folder.path().join("out")).unwrap();
    let page = written(folder.path(), &arguments, "out/ranks.html");
    let pages = folder.path().join("a b/pages");
    let expected: Vec<String> = (0..8).map(|rank| format!("rank{rank}.html")).collect();
    assert_eq!(names(&pages), expected);
    for name in expected {
        assert!(page.contains(&format!("href=\"../a%20b/pages/{name}\"")), "{name}");
    }
    // The page of rank 5 is the one that `memtrack view` writes.
    let view = Command::new(memtrack())
        .args(["view", "run/rank5.pickle", "-o", "view.html"])
        .current_dir(folder.path())
        .status()
        .unwrap();
    assert!(view.success());
    assert!(
        fs::read(pages.join("rank5.html")).unwrap() == fs::read(folder.path().join("view.html")).unwrap()
    );
}

#[test]
fn existing_files_are_not_replaced_without_force_and_no_page_is_written() {
    let folder = run_of_eight();
    fs::create_dir(folder.path().join("pages")).unwrap();
    fs::write(folder.path().join("pages/rank3.html"), "original").unwrap();
    fs::write(folder.path().join("file"), "original").unwrap();
    let valid = ["run", "-o", "ranks.html", "--pages", "pages"];
    for (arguments, code, expected) in [
        (&valid[..], 2, "pages/rank3.html exists: add --force to replace it"),
        (&["run", "-o", "file"], 2, "file: end the name in .html"),
        (&["run", "-o", "-"], 2, "-: end the name in .html"),
        (&["run", "--pages", "pages"], 2, "--output <FILE.html>"),
        (&["run", "-o", "ranks.html", "--pages", "file"], 2, "file is not a folder"),
        (
            &["run", "-o", "new/rank0.html", "--pages", "new"],
            2,
            "would be the page of all ranks and that of run/rank0.pickle",
        ),
        (&["run", "-o", "nowhere/ranks.html"], 3, "cannot write nowhere/ranks.html"),
    ] {
        let output = ranks(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {output:?}");
        assert!(text(&output.stderr).contains(expected), "{arguments:?} {output:?}");
        assert_eq!(names(folder.path()), ["file", "pages", "run"], "{arguments:?}");
        assert_eq!(names(&folder.path().join("pages")), ["rank3.html"], "{arguments:?}");
    }
    written(folder.path(), &[&valid[..], &["--force"]].concat(), "ranks.html");
    assert!(
        fs::read_to_string(folder.path().join("pages/rank3.html")).unwrap().starts_with("<!doctype html>")
    );
    let again = ranks(folder.path(), &["run", "-o", "ranks.html"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("ranks.html exists"), "{again:?}");
}

#[test]
fn a_page_that_cannot_be_written_is_reported_and_the_others_are_written() {
    let folder = run_of_eight();
    // A file cannot replace a folder.
    fs::create_dir_all(folder.path().join("pages/rank3.html")).unwrap();
    let output = ranks(folder.path(), &["run", "-o", "ranks.html", "--pages", "pages", "--force"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stderr).contains("cannot write pages/rank3.html"), "{output:?}");
    assert!(text(&output.stdout).contains("Rank 5 peaks higher"), "{output:?}");
    let page = fs::read_to_string(folder.path().join("ranks.html")).unwrap();
    assert!(page.contains("pages/rank4.html") && !page.contains("pages/rank3.html"));
    assert_eq!(names(&folder.path().join("pages")).len(), 8, "and no temporary file");
}

#[test]
fn the_page_names_files_that_cannot_be_read() {
    let folder = run_of_eight();
    fs::write(folder.path().join("run/rank3.pickle"), b"\x80\x04broken").unwrap();
    let page = written(folder.path(), &["run", "-o", "ranks.html", "--pages", "pages"], "ranks.html");
    assert!(page.contains("Not read: 1 file") && page.contains("<code>run/rank3.pickle</code>: "), "{page}");
    assert!(!folder.path().join("pages/rank3.html").exists());
}

#[test]
fn a_thousand_ranks_make_a_small_page_that_names_the_odd_one() {
    let folder = TempDir::new().unwrap();
    let job = Job { ranks: 2, steps: 4, leaking: Some(1), leak_bytes: 8 * MIB, ..Job::default() };
    let files = job.write(&folder.path().join("one"), "pickle");
    fs::create_dir(folder.path().join("run")).unwrap();
    for rank in 0..1200 {
        let to = folder.path().join(format!("run/rank{rank}.pickle"));
        fs::hard_link(&files[usize::from(rank == 777)], to).unwrap();
    }
    let page = written(folder.path(), &["run", "-o", "ranks.html"], "ranks.html");
    assert!(page.contains("Rank 777 holds more than the others since step 1."), "{}", &page[..20_000]);
    assert!(page.contains("1,200 ranks, 3 in each row"));
    assert!(page.len() < 500_000, "{}", page.len());
}

#[test]
fn scrubbed_pages_have_no_names() {
    let folder = TempDir::new().unwrap();
    let job =
        Job { code: "/home/zorblatt/secretproject".into(), name: Some("secretjob".into()), ..Job::default() };
    job.write(&folder.path().join("secretrun"), "pickle");
    fs::write(folder.path().join("secretrun/rank9.pickle"), b"").unwrap();
    let arguments = ["secretrun", "-o", "ranks.html", "--pages", "pages", "--scrub", "--scrub-key", "key"];
    let output = ranks(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let page = fs::read_to_string(folder.path().join("ranks.html")).unwrap();
    let files = names(&folder.path().join("pages"));
    assert_eq!(files.len(), 8);
    let all = [page.clone(), text(&output.stdout).to_owned()].into_iter().chain(
        files
            .iter()
            .map(|file| fs::read_to_string(folder.path().join("pages").join(file)).unwrap())
            .chain(files.clone()),
    );
    for written in all {
        for secret in ["zorblatt", "secret", "log_step", "train.py"] {
            assert!(!written.contains(secret), "{secret}");
        }
    }
    // Scrubbing keeps the numbers and the outlier.
    assert!(page.contains("Rank 5 peaks higher than the others: 208.0 MiB, 48.0 MiB more"), "{page}");
    assert!(page.contains("pages/file-6.html"));
}
