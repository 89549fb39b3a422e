//! `memtrack export --parquet` as a user runs it: the content of the files, and existing files.

use memtrack_core::dataset::{Column, TABLES};
use memtrack_tests::ranks::Job;
use memtrack_tests::{fixture, memtrack};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const SAMPLE: &str = "snapshots/samples/basic-1.pickle";
const OTHER: &str = "snapshots/samples/basic-2.pickle";

/// A folder of snapshots, and the data set to which they are exported.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// Copies the fixture `of` into the folder under this `name`.
    fn file(&self, name: &str, of: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::copy(fixture(of), &path).unwrap();
        path
    }

    fn set(&self) -> PathBuf {
        self.folder.path().join("set")
    }

    fn rank(&self, rank: u64) -> PathBuf {
        self.set().join("job=7").join(format!("rank={rank}"))
    }

    fn export(&self, files: &[&Path], more: &[&str]) -> Output {
        let mut command = Command::new(memtrack());
        command.arg("export").arg("--parquet").arg(self.set()).args(["--job", "7"]).args(files).args(more);
        command.output().unwrap()
    }

    /// Returns all files of the data set with their contents.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        fn walk(folder: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found)
                } else {
                    found.push((path.clone(), fs::read(&path).unwrap()))
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.set(), &mut found);
        found.sort();
        found
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn table(folder: &Path, name: &str) -> SerializedFileReader<File> {
    SerializedFileReader::new(File::open(folder.join(format!("{name}.parquet"))).unwrap()).unwrap()
}

fn rows(folder: &Path, name: &str) -> i64 {
    table(folder, name).metadata().file_metadata().num_rows()
}

#[test]
fn the_tables_have_the_numbers_of_reports() {
    let bench = Bench::new();
    let file = bench.file("rank3.pickle", SAMPLE);
    let output = bench.export(&[&file], &["--events", "--bins", "17"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let folder = bench.rank(3);
    let answer = Command::new(memtrack()).args(["ranks", "--json"]).arg(&file).output().unwrap();
    let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let rank = &answer["ranks"][0];
    let devices = rank["devices"].as_array().unwrap();
    assert!(!devices.is_empty());
    assert_eq!(rows(&folder, "runs"), 1);
    assert_eq!(rows(&folder, "timeline"), 17 * devices.len() as i64);
    let events = rank["events"].as_i64().unwrap();
    assert_eq!(rows(&folder, "events"), events);
    let reader = table(&folder, "devices");
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let column = |name: &str| schema.columns().iter().position(|column| column.name() == name).unwrap();
    for (row, device) in reader.get_row_iter(None).unwrap().map(Result::unwrap).zip(devices) {
        let long = |name: &str| row.get_long(column(name)).unwrap();
        assert_eq!(long("peak_bytes"), device["peak"]["requested_bytes"].as_i64().unwrap());
        assert_eq!(long("end_bytes"), device["end_requested_bytes"].as_i64().unwrap());
        assert_eq!(long("waste_bytes"), device["waste_bytes"].as_i64().unwrap());
        assert_eq!(
            row.get_double(column("peak_seconds")).unwrap(),
            device["peak"]["seconds"].as_f64().unwrap()
        );
    }
    let reader = table(&folder, "events");
    let rows = reader.get_row_iter(None).unwrap().map(Result::unwrap);
    let numbers: Vec<i64> = rows.map(|row| row.get_long(0).unwrap()).collect();
    assert_eq!(numbers, (0..events).collect::<Vec<_>>());
}

#[test]
fn a_recording_is_exported_with_its_names() {
    let bench = Bench::new();
    let file = bench.folder.path().join("rank0.memtrack");
    let snapshot = memtrack_tests::snapshots::small();
    memtrack_core::snapshot::SnapshotFiles::save(&snapshot, &file).unwrap();
    let output = bench.export(&[&file], &["--events"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let folder = bench.rank(0);
    assert_eq!(rows(&folder, "events"), snapshot.events.len() as i64);
    let text: Vec<String> =
        table(&folder, "events").get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
    assert!(text.iter().any(|row| row.contains("encoder") && row.contains("\"main\"")), "{text:?}");
    assert!(rows(&folder, "frames") > 0 && rows(&folder, "stacks") >= rows(&folder, "frames"));
}

/// Returns all tables of a data set as text, with the names of the data set's folders.
fn text_of(set: &Path) -> String {
    let mut all = String::new();
    for job in fs::read_dir(set).unwrap().map(|entry| entry.unwrap().path()) {
        all += &job.file_name().unwrap().to_string_lossy();
        for rank in fs::read_dir(&job).unwrap().map(|entry| entry.unwrap().path()) {
            for one in TABLES.iter() {
                let reader = table(&rank, one.name);
                all += &format!("{:?}", reader.metadata().file_metadata().key_value_metadata());
                let rows = reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string());
                all.extend(rows);
            }
        }
    }
    all
}

#[test]
fn scrubbed_tables_have_no_names_of_the_program_and_the_same_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job { code: "/home/anastasia/secret".into(), name: Some("moonshot".into()), ..Job::default() };
    let private = folder.path().join("confidential");
    let file = &job.write(&private, "pickle")[5];
    let export = |set: &Path, more: &[&str]| {
        let mut command = Command::new(memtrack());
        command.args(["export", "--events", "--parquet"]).arg(set).arg(file).args(more);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        text_of(set)
    };
    let plain = export(&folder.path().join("plain"), &[]);
    let scrubbed = export(&folder.path().join("scrubbed"), &["--scrub", "--scrub-key", "k"]);
    for name in ["secret", "anastasia", "moonshot", "confidential", "log_step", "train.py"] {
        assert!(plain.contains(name), "{name} is missing without --scrub");
        assert!(!scrubbed.contains(name), "{name} is not scrubbed");
    }
    // The rank and the steps are still recognized.
    let numbers = |set: &str| {
        let job = folder.path().join(set).read_dir().unwrap().next().unwrap().unwrap().path();
        let rows = |name| {
            table(&job.join("rank=5"), name)
                .get_row_iter(None)
                .unwrap()
                .map(|row| row.unwrap().to_string())
                .collect::<Vec<_>>()
        };
        (rows("devices"), rows("steps"), rows("timeline"))
    };
    assert!(numbers("plain") == numbers("scrubbed"));
}

#[test]
fn without_events_the_table_of_events_is_empty() {
    let bench = Bench::new();
    let file = bench.file("rank0.pickle", SAMPLE);
    assert_eq!(bench.export(&[&file], &[]).status.code(), Some(0));
    assert_eq!(rows(&bench.rank(0), "events"), 0);
    assert!(rows(&bench.rank(0), "live") > 0 && rows(&bench.rank(0), "stacks") > 0);
    let mut names: Vec<String> = bench
        .files()
        .iter()
        .map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let mut expected: Vec<String> = TABLES.iter().map(|table| table.file_name()).collect();
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn a_rank_is_added_and_replaced_without_touching_the_others() {
    let bench = Bench::new();
    let (first, second) = (bench.file("rank0.pickle", SAMPLE), bench.file("rank1.pickle", OTHER));
    assert_eq!(bench.export(&[&first], &[]).status.code(), Some(0));
    let before = bench.files();
    let output = bench.export(&[&second], &["--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&answer["ranks"][0]["rank"], &answer["ranks"][0]["replaced"]), (&1.into(), &false.into()));
    let both = bench.files();
    assert_eq!(both.len(), 2 * before.len());
    assert!(before.iter().all(|file| both.contains(file)));
    // Exports the same path again, now with the content of the first snapshot.
    fs::copy(fixture(SAMPLE), &second).unwrap();
    let output = bench.export(&[&second], &["--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["ranks"][0]["replaced"], true);
    let after = bench.files();
    assert_eq!(after.len(), both.len());
    assert!(before.iter().all(|file| after.contains(file)));
    assert_ne!(after, both);
}

#[cfg(unix)]
#[test]
fn a_link_has_the_rank_in_its_name() {
    let bench = Bench::new();
    let file = bench.file("snapshot.pickle", SAMPLE);
    let link = bench.folder.path().join("rank4.pickle");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    // Two files, because a single one would be rank 0.
    let output = bench.export(&[&link, &bench.file("rank1.pickle", OTHER)], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(bench.rank(4).is_dir() && bench.rank(1).is_dir());
}

#[test]
fn a_rank_from_another_file_or_a_damaged_one_is_replaced_only_with_force() {
    let bench = Bench::new();
    let (first, second) = (bench.file("rank0.pickle", SAMPLE), bench.file("other-rank0.pickle", OTHER));
    assert_eq!(bench.export(&[&first], &[]).status.code(), Some(0));
    let before = bench.files();
    let output = bench.export(&[&second], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("rank0.pickle; add --force to replace it"), "{}", stderr(&output));
    assert_eq!(bench.files(), before);
    assert_eq!(bench.export(&[&second], &["--force"]).status.code(), Some(0));
    assert_ne!(bench.files(), before);

    let runs = bench.rank(0).join("runs.parquet");
    let whole = fs::read(&runs).unwrap();
    for damaged in [None, Some(&whole[..whole.len() / 2]), Some(&[][..])] {
        match damaged {
            None => fs::remove_file(&runs).unwrap(),
            Some(part) => fs::write(&runs, part).unwrap(),
        }
        let before = bench.files();
        let output = bench.export(&[&second], &[]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains("it is not a complete rank"), "{}", stderr(&output));
        assert_eq!(bench.files(), before);
    }
    assert_eq!(bench.export(&[&second], &["--force"]).status.code(), Some(0));
    assert_eq!(fs::read(&runs).unwrap(), whole);
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_others_are_exported() {
    let bench = Bench::new();
    let good = bench.file("rank0.pickle", SAMPLE);
    let bad = bench.folder.path().join("rank1.pickle");
    fs::write(&bad, b"\x80\x04not a pickle").unwrap();
    let output = bench.export(&[&bad, &good], &["--json"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("rank1.pickle"), "{}", stderr(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["ranks"].as_array().unwrap().len(), 1);
    assert_eq!(answer["failed"][0]["file"], bad.to_string_lossy().as_ref());
    assert!(bench.rank(0).is_dir() && !bench.rank(1).exists());
}

#[test]
fn files_without_a_distinct_rank_are_refused() {
    let bench = Bench::new();
    let (a, b) = (bench.file("a.pickle", SAMPLE), bench.file("b.pickle", OTHER));
    let (one, same) = (bench.file("rank1.pickle", SAMPLE), bench.file("x-rank1.pickle", OTHER));
    for (files, more, why) in [
        (vec![&a, &b], vec![], "cannot determine the rank of"),
        (vec![&a, &b], vec!["--rank", "3"], "--rank is for one file"),
        (vec![&one, &same], vec![], "are both rank 1 of job 7"),
        (vec![&a], vec!["--bins", "0"], "--bins"),
        (vec![&a], vec!["--job", ""], "--job"),
        (vec![&a], vec!["--require-rank"], "cannot determine the rank of"),
    ] {
        let files: Vec<&Path> = files.into_iter().map(PathBuf::as_path).collect();
        let output = bench.export(&files, &more);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
    // The first of two files with rank 1 was exported before the second was refused, so `--force` is needed.
    let output = bench.export(&[&one], &["--require-rank", "--force"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // A single file needs no rank.
    assert_eq!(bench.export(&[&a], &[]).status.code(), Some(0));
    assert!(bench.rank(0).is_dir());
}

#[test]
fn a_data_set_that_cannot_be_written_is_an_error() {
    let bench = Bench::new();
    let file = bench.file("rank0.pickle", SAMPLE);
    fs::write(bench.set(), "original").unwrap();
    let output = bench.export(&[&file], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is not a folder"), "{}", stderr(&output));
    fs::remove_file(bench.set()).unwrap();
    fs::create_dir(bench.set()).unwrap();
    fs::write(bench.set().join("job=7"), "original").unwrap();
    let output = bench.export(&[&file], &[]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert_eq!(bench.files().len(), 1);
}

/// Returns the columns of a table in docs/RANKS.md: name, type, and whether values may be missing.
fn documented(text: &str, table: &str) -> Vec<(String, String, bool)> {
    let heading = format!("| column of `{table}` |");
    let section = match text.split_once(&heading) {
        Some((_, rest)) => rest,
        None => text.split_once(&format!("### `{table}`")).unwrap_or_else(|| panic!("{table}")).1,
    };
    let lines = section
        .lines()
        .skip_while(|line| !line.starts_with("| `"))
        .take_while(|line| line.starts_with("| `"));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            (cells[0].trim_matches('`').to_owned(), cells[1].to_owned(), !cells[3].is_empty())
        })
        .collect()
}

#[test]
fn every_column_is_documented() {
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/RANKS.md")).unwrap();
    for table in TABLES {
        let declared =
            |column: &Column| (column.name.to_owned(), column.kind.sql().to_owned(), column.nullable);
        let declared: Vec<_> = table.columns.iter().map(declared).collect();
        assert_eq!(documented(&text, table.name), declared, "{}", table.name);
    }
}
