//! `memtrack ranks`: the rank that leaks is named with its line and its bytes, equal ranks have no outlier, and unreadable files
//! and files of different jobs are reported separately.

use memtrack_core::event::{Action, DeviceId, Event, ThreadId};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::memtrack;
use memtrack_tests::ranks::{ACTIVATIONS, Job, PARAMETERS};
use memtrack_tests::snapshots::{empty, event, live};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// The exit code and the output of the command.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    text: String,
    errors: String,
}

fn ranks(folder: &Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new(memtrack());
    command.arg("ranks").args(arguments).current_dir(folder).env("COLUMNS", "120");
    let output = command.output().expect("memtrack can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ended { code: output.status.code(), text: text(output.stdout), errors: text(output.stderr) }
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let ended = ranks(folder, &[arguments, &["--json"]].concat());
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(&ended.text).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Writes the files of eight ranks to `run/`; rank 5 leaks.
fn run_of_eight(suffix: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    Job::default().write(&folder.path().join("run"), suffix);
    folder
}

fn outlier<'a>(answer: &'a Value, measure: &str) -> Vec<&'a Value> {
    let outliers = answer["memories"][0]["outliers"].as_array().unwrap();
    outliers.iter().filter(|one| one["measure"] == measure).collect()
}

#[test]
fn the_rank_that_leaks_is_named_with_its_line_and_its_bytes() {
    let folder = run_of_eight("pickle");
    let answer = json(folder.path(), &["run/rank*.pickle"]);
    let leaked = 6 * 8 * MIB;
    let odd = outlier(&answer, "peak");
    assert_eq!(odd.len(), 1, "{odd:?}");
    assert_eq!(odd[0]["rank"], 5);
    assert_eq!(odd[0]["own_bytes"], PARAMETERS + ACTIVATIONS + leaked);
    assert_eq!(odd[0]["median_bytes"], PARAMETERS + ACTIVATIONS);
    assert_eq!(odd[0]["change_bytes"], leaked);
    let why = odd[0]["why"].as_array().unwrap();
    assert_eq!(why.len(), 1, "{why:?}");
    assert_eq!(why[0]["key"], "/job/src/train.py:88 log_step");
    assert_eq!(why[0]["change_bytes"], leaked);
    assert_eq!((&why[0]["own_count"], &why[0]["other_ranks"]), (&6.into(), &0.into()));
    assert_eq!(outlier(&answer, "end")[0]["change_bytes"], leaked);

    let text = ranks(folder.path(), &["run"]);
    assert!(
        text.text.contains(
            "Rank 5 peaks higher than the others: 208.0 MiB, 48.0 MiB more than the median of 160.0 MiB."
        ),
        "{text:?}"
    );
    assert!(text.text.contains("+48.0 MiB  train.py:88 log_step  in no other rank, 6 blocks"), "{text:?}");
    assert_eq!(text.errors, "");
}

#[test]
fn each_rank_has_the_numbers_of_memtrack_peak() {
    let folder = run_of_eight("pickle");
    let answer = json(folder.path(), &["run"]);
    for rank in answer["ranks"].as_array().unwrap() {
        let path = folder.path().join(rank["path"].as_str().unwrap());
        let peak = memtrack_tests::verbs::json(&["peak"], &path);
        let (highest, device) = (&peak["devices"][0]["highest"], &rank["devices"][0]);
        for key in ["requested_bytes", "reserved_bytes", "event", "seconds"] {
            assert_eq!(device["peak"][key], highest[key], "{path:?} {key}");
        }
        let reserved = memtrack_tests::verbs::json(&["peak", "--of", "reserved"], &path);
        let highest = &reserved["devices"][0]["highest"];
        for key in ["requested_bytes", "reserved_bytes", "event"] {
            assert_eq!(device["reserved"][key], highest[key], "{path:?} {key}");
        }
        let numbers = |key: &str| highest[key].as_u64().unwrap();
        assert_eq!(device["waste_bytes"], numbers("reserved_bytes") - numbers("requested_bytes"));
    }
}

#[test]
fn steps_are_matched_and_the_highest_rank_is_counted() {
    let folder = run_of_eight("pickle");
    let answer = json(folder.path(), &["run"]);
    let skew = &answer["memories"][0]["skew"];
    assert_eq!(skew["name"], "ProfilerStep");
    let steps = skew["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 6);
    for (number, step) in steps.iter().enumerate() {
        let number = number as u64;
        assert_eq!(step["number"], number);
        assert_eq!(step["ranks"], 8);
        assert_eq!(step["median_bytes"], PARAMETERS + ACTIVATIONS);
        assert_eq!(step["most_bytes"], PARAMETERS + ACTIVATIONS + (number + 1) * 8 * MIB);
        assert_eq!(step["end_median_bytes"], PARAMETERS);
        assert_eq!(step["end_most_bytes"], PARAMETERS + (number + 1) * 8 * MIB);
        assert_eq!(answer["ranks"][step["highest"].as_u64().unwrap() as usize]["rank"], 5);
    }
    assert_eq!((&skew["highest"][0]["rank"], &skew["highest"][0]["steps"]), (&5.into(), &6.into()));
}

#[test]
fn equal_ranks_have_no_outlier_and_two_ranks_are_too_few() {
    let folder = TempDir::new().unwrap();
    let job = Job { leaking: None, ..Job::default() };
    job.write(&folder.path().join("equal"), "pickle");
    let answer = json(folder.path(), &["equal"]);
    assert_eq!(answer["memories"][0]["outliers"], Value::Array(vec![]));
    assert_eq!(answer["answer"][0], "No rank is odd: each peaks at 160.0 MiB.");
    assert_eq!(answer["memories"][0]["skew"]["highest"], Value::Array(vec![]));

    Job { ranks: 2, leaking: Some(1), ..job }.write(&folder.path().join("two"), "pickle");
    let text = ranks(folder.path(), &["two"]).text;
    assert!(text.contains("Cannot determine the odd rank: with two ranks, neither is"), "{text}");
    assert!(!text.contains("Why "), "{text}");
}

#[test]
fn compressed_files_recordings_and_links_are_ranks_like_others() {
    let folder = TempDir::new().unwrap();
    let run = folder.path().join("run");
    let job = Job { leaking: Some(2), ..Job::default() };
    let plain = job.write(&run, "pickle");
    for (rank, suffix) in [(2, "pickle.gz"), (3, "pickle.zst")] {
        let snapshot = job.snapshot(rank);
        let mut names = memtrack_core::stack::symbols::Symbolizer::of(&snapshot);
        snapshot.save_as(run.join(format!("rank{rank}.{suffix}")), &mut names).unwrap();
        fs::remove_file(&plain[rank as usize]).unwrap();
    }
    fs::rename(&plain[7], folder.path().join("elsewhere.pickle")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("../elsewhere.pickle", run.join("rank7.pickle")).unwrap();
    fs::write(run.join("notes.txt"), "not a rank").unwrap();
    let answer = json(folder.path(), &["run", "-j", "3"]);
    let numbers: Vec<u64> =
        answer["ranks"].as_array().unwrap().iter().map(|rank| rank["rank"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(outlier(&answer, "peak")[0]["rank"], 2);
}

#[test]
fn unreadable_files_are_named_and_the_rest_is_reported() {
    let folder = run_of_eight("pickle");
    let run = folder.path().join("run");
    fs::write(run.join("rank3.pickle"), b"\x80\x04broken").unwrap();
    fs::write(run.join("rank10.pickle"), b"").unwrap();
    let whole = fs::read(run.join("rank4.pickle")).unwrap();
    fs::write(run.join("rank4.pickle"), &whole[..whole.len() / 2]).unwrap();
    let ended = ranks(folder.path(), &["run"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.text.contains("Rank 5 peaks higher than the others"), "{ended:?}");
    let unread: Vec<&str> =
        ended.text.lines().skip_while(|line| *line != "Not read: 3 files").skip(1).collect();
    let names: Vec<&str> = unread.iter().map(|line| line.trim_start().split(':').next().unwrap()).collect();
    assert_eq!(names, ["run/rank3.pickle", "run/rank4.pickle", "run/rank10.pickle"], "{ended:?}");
    assert!(ended.errors.contains("3 files could not be read; the report covers the rest"), "{ended:?}");
    let answer = json(folder.path(), &["run"]);
    assert_eq!(answer["unread"][2]["path"], "run/rank10.pickle");
    assert_eq!(answer["ranks"].as_array().unwrap().len(), 6);

    fs::create_dir(folder.path().join("broken")).unwrap();
    fs::write(folder.path().join("broken/rank0.pickle"), b"").unwrap();
    let ended = ranks(folder.path(), &["broken/rank0.pickle", "broken"]);
    assert_eq!((ended.code, &*ended.text), (Some(3), ""), "{ended:?}");
    assert!(ended.errors.contains("cannot read broken/rank0.pickle"), "{ended:?}");
}

#[test]
fn ranks_of_different_jobs_are_refused_or_doubted() {
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let job = Job { ranks: 3, steps: 2, leaking: None, ..Job::default() };
    for name in ["a", "b"] {
        job.write(&at(name), "pickle");
        Job { name: Some(name.into()), ..job.clone() }.write(&at(&format!("named-{name}")), "pickle");
        job.write(&at(&format!("job={name}/rank=0")), "pickle");
    }
    let ended = ranks(folder.path(), &["a", "b"]);
    assert_eq!((ended.code, &*ended.text), (Some(2), ""), "{ended:?}");
    assert!(ended.errors.contains("rank 0 occurs once in each of a, b"), "{ended:?}");
    let ended = ranks(folder.path(), &["named-a", "named-b/rank2.pickle"]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.errors.contains("different jobs: a (named-a/rank0.pickle), b (named-b/rank2.pickle)"),
        "{ended:?}"
    );
    assert_eq!(ranks(folder.path(), &["job=a", "job=b", "-r"]).code, Some(2));
    // One job with two nodes, each of which numbers its ranks from 0.
    for name in ["a", "b"] {
        job.write(&at(&format!("job=c/{name}")), "pickle");
    }
    assert_eq!(json(folder.path(), &["job=c", "-r"])["ranks"].as_array().unwrap().len(), 6);
    assert_eq!(json(folder.path(), &["named-a"])["ranks"][0]["job"], "a");

    // A file of another program in the folder is reported, and the rest is analysed.
    Job { ranks: 8, code: "/other/program".into(), ..job.clone() }.write(&at("other"), "pickle");
    fs::copy(at("other/rank7.pickle"), at("a/rank7.pickle")).unwrap();
    fs::copy(at("a/rank1.pickle"), at("a/rank1-again.pickle")).unwrap();
    let doubts = json(folder.path(), &["a"])["doubts"].to_string();
    assert!(doubts.contains("allocates in rank 7"), "{doubts}");
    assert!(doubts.contains("rank 1 occurs 2 times: a/rank1-again.pickle, a/rank1.pickle"), "{doubts}");
}

#[test]
fn bad_arguments_and_missing_files_have_the_usual_exit_codes() {
    let folder = run_of_eight("pickle");
    fs::create_dir(folder.path().join("empty")).unwrap();
    for (arguments, code, expected) in [
        (&["run/rank*.gz"][..], 2, "run/rank*.gz matches no file"),
        (&["run/[.pickle"], 2, "is not a valid file pattern"),
        (&["empty"], 2, "empty has no file that ends with .pickle"),
        (&["."], 2, "--recursive searches the folders in it"),
        (&["nowhere.pickle"], 3, "cannot read nowhere.pickle: there is no such file or folder"),
        (&["-"], 2, "standard input is one file"),
        (&[], 2, "required arguments were not provided"),
        (&["run", "-j", "0"], 2, "expected a whole number, 1 or more"),
        (&["run", "--per", "epoch"], 2, "--per epoch: no interval has this name in any of the files"),
    ] {
        let ended = ranks(folder.path(), arguments);
        assert_eq!((ended.code, &*ended.text), (Some(code), ""), "{arguments:?}: {ended:?}");
        assert!(ended.errors.contains(expected), "{arguments:?}: {ended:?}");
    }
    assert_eq!(json(folder.path(), &[".", "-r"])["ranks"].as_array().unwrap().len(), 8);
}

#[test]
fn files_are_ranks_by_the_number_in_which_their_names_differ() {
    let folder = run_of_eight("pickle");
    let other = folder.path().join("other");
    fs::create_dir(&other).unwrap();
    for rank in 0..8 {
        let from = folder.path().join(format!("run/rank{rank}.pickle"));
        fs::copy(from, other.join(format!("snapshot_{}_v2.pickle", rank * 5))).unwrap();
    }
    let answer = json(folder.path(), &["other"]);
    let numbers: Vec<&Value> = answer["ranks"].as_array().unwrap().iter().map(|rank| &rank["rank"]).collect();
    assert_eq!(numbers, [0, 5, 10, 15, 20, 25, 30, 35]);
    // If one of the names has no such number, ranks are named after their files.
    fs::rename(other.join("snapshot_25_v2.pickle"), other.join("last.pickle")).unwrap();
    let text = ranks(folder.path(), &["other"]).text;
    assert!(text.contains("ther/last.pickle peaks higher than the others"), "{text}");
}

#[test]
fn recordings_with_marks_are_compared_and_heaps_apart_from_devices() {
    let folder = TempDir::new().unwrap();
    for rank in 0..4u64 {
        let mut snapshot = empty();
        let extra = if rank == 2 { 50 * MIB } else { 0 };
        for step in 0..3u64 {
            let at = |offset| 1_000 * step + offset;
            let big = Event {
                device: DeviceId(rank as u16),
                ..event(at(10), Action::Alloc, 0x1000, 20 * MIB + extra * (step + 1))
            };
            snapshot.events.push(&big);
            snapshot.events.push(&event(at(20), Action::Alloc, 0x9000 + step * 16, 10));
            snapshot.blocks.push(live(&event(at(20), Action::Alloc, 0x9000 + step * 16, 10)));
            snapshot.events.push(&Event { action: Action::Free, ticks: at(30), ..big });
            snapshot.marks.push(at(40), ThreadId(1), "step");
        }
        snapshot.save(folder.path().join(format!("rank{rank}.memtrack"))).unwrap();
    }
    let answer = json(folder.path(), &["."]);
    let names: Vec<&Value> =
        answer["memories"].as_array().unwrap().iter().map(|memory| &memory["device"]["name"]).collect();
    // The device's number equals the rank, so it does not identify one device of all ranks: the report says just "device".
    assert_eq!(names, ["device", "host heap"]);
    let odd = outlier(&answer, "peak");
    assert_eq!((odd.len(), &odd[0]["rank"]), (1, &2.into()));
    assert_eq!(odd[0]["change_bytes"], 150 * MIB);
    assert_eq!(answer["memories"][1]["outliers"], Value::Array(vec![]));
    let steps = &answer["memories"][0]["skew"]["steps"];
    let most: Vec<u64> =
        steps.as_array().unwrap().iter().map(|step| step["most_bytes"].as_u64().unwrap()).collect();
    assert_eq!(most, [70 * MIB, 120 * MIB, 170 * MIB]);
}

#[test]
fn a_narrow_terminal_and_many_ranks_get_a_table_that_fits() {
    let folder = TempDir::new().unwrap();
    Job { ranks: 30, steps: 1, leaking: Some(29), ..Job::default() }.write(folder.path(), "pickle");
    for columns in ["60", "80", "200"] {
        let mut command = Command::new(memtrack());
        command.args(["ranks", "."]).current_dir(folder.path()).env("COLUMNS", columns);
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let room: usize = columns.parse().unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= room), "{columns}: {text}");
        assert!(text.contains("… and 10 more ranks (-n 0 shows all)"), "{text}");
        // The outlier is listed, although it is the last rank.
        assert!(text.lines().any(|line| line.trim_start().starts_with("29 ")), "{text}");
    }
}
