//! The snapshots of `memtrack run`: their content, the effect of options, and the verbs that read them.

use memtrack_core::event::{Action, DeviceId, StackId};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::memtrack;
use memtrack_tests::opcodes::assert_known_to_the_viewer;
use memtrack_tests::run::{Bench, Waiting, holds_work, load, load_each, stderr_text};
use memtrack_tests::time::wait_for;
use std::fs;
use std::process::{Command, Output};

const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

/// Runs a verb in the folder of the bench.
fn verb(bench: &Bench, arguments: &[&str]) -> Output {
    Command::new(memtrack())
        .args(arguments)
        .current_dir(bench.folder.path())
        .output()
        .expect("memtrack can be started")
}

#[test]
fn running_out_of_memory_is_reported_and_in_the_snapshots() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "oom", "--snapshot-on", "oom,exit", "--", PLAIN, "oom"]);
    assert!(output.status.success());
    let text = stderr_text(&output);
    assert!(
        text.contains("out of memory on device 0: 1.00 TiB requested, 16.00 GiB free of 16.00 GiB"),
        "{text}"
    );
    assert!(
        text.contains("2.0 MiB recorded here, 0 B not recorded (contexts, libraries, other processes)"),
        "{text}"
    );
    assert!(text.contains("client.rs:66 alloc") && text.contains("2.0 MiB"), "{text}");
    assert_eq!(bench.files(), ["oom", "oom.1.pickle", "oom.2.pickle"]);
}

#[test]
fn repeated_out_of_memory_keeps_the_first_snapshot_and_the_newest_seven() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "oom", "--snapshot-on", "oom", "--", PLAIN, "oom_until", "oom.9.pickle"]);
    let text = stderr_text(&output);
    assert!(output.status.success(), "{text}");
    let expected = [1, 3, 4, 5, 6, 7, 8, 9].map(|number| format!("oom.{number}.pickle"));
    assert_eq!(bench.files()[1..], expected, "{text}");
    assert!(
        text.contains("oom.9.pickle; ") && text.contains("; 2 is gone: the first is kept, and the newest 7"),
        "{text}"
    );
    // Every out-of-memory error is reported, either by a snapshot or in a count.
    let times: usize = String::from_utf8_lossy(&output.stdout).trim().parse().expect("how often");
    let written = text.matches("out of memory: wrote ").count();
    let count = |before: char, after: &str| {
        let number = text.split(before).find_map(|part| part.strip_prefix(' ')?.split_once(after));
        number.map_or(0, |(number, _)| number.parse::<usize>().expect("a number"))
    };
    let left_out = count(';', " times before there was no time for one");
    assert!(left_out > 0, "the twenty at once were too many: {text}");
    // The program continues for a while after the last snapshot was written. Out-of-memory errors during that time are counted
    // in a separate message.
    let later =
        text.split("memtrack: memory ran out ").nth(1).map_or(0, |rest| match rest.split(' ').next() {
            Some("once") => 1,
            number => number.and_then(|number| number.parse().ok()).expect("a number"),
        });
    assert_eq!((written, left_out + later), (9, times - 9), "{text}");
}

#[test]
fn signals_keep_the_first_snapshot_the_newest_seven_and_replaced_files() {
    let bench = Bench::new();
    let waiting = Waiting::new(
        &bench,
        &["-o", "by_signal", "--snapshot-on", "signal", "--", PLAIN, "wait_for_a_signal"],
    );
    let path = |number: u32| bench.path(&format!("by_signal.{number}.pickle"));
    // One snapshot more than the test changes below: the last file appears only after the previous file's identity was
    // registered.
    for number in 1..=4 {
        waiting.request_snapshot(&path(number));
    }
    fs::write(path(2), "another program's").unwrap();
    // The user moves this snapshot to an archive.
    fs::rename(path(3), bench.path("kept.pickle")).unwrap();
    // One snapshot more than the test checks: the last file appears only after all messages about the previous one.
    for number in 5..=12 {
        waiting.request_snapshot(&path(number));
    }
    // The oldest snapshot is removed only after the newest one was written.
    wait_for("the oldest is gone", || !path(5).exists());
    waiting.send("TERM");
    let text = stderr_text(&waiting.end());
    let numbers = [1, 10, 11, 12, 2, 6, 7, 8, 9].map(|number| format!("by_signal.{number}.pickle"));
    assert_eq!(
        bench.files(),
        [&["by_signal".to_owned()], &numbers[..], &["kept.pickle".to_owned()]].concat()
    );
    assert_eq!(fs::read(path(2)).unwrap(), b"another program's");
    Snapshot::open(path(12), LoadOptions::default()).expect("it is whole");
    for words in [
        "SIGUSR2: wrote ",
        "by_signal.9.pickle; 2 was changed after it was written, and is kept\n",
        "by_signal.10.pickle\n",
        "by_signal.11.pickle; 4 is gone: the first is kept, and the newest 7\n",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn only_100_forked_processes_leave_snapshots() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "many", "--snapshot-on", "exit", "--", PLAIN, "fork_many", "103"]);
    let text = stderr_text(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("3 forked processes are not recorded: --max-processes is 100"), "{text}");
    let (snapshots, recordings): (Vec<_>, Vec<_>) =
        bench.files().into_iter().partition(|name| name.ends_with(".1.pickle"));
    assert_eq!((snapshots.len(), recordings), (101, vec!["many".to_owned()]), "{text}");
    assert_eq!(load_each(&bench.path("many")).len(), 101);
}

/// Verbs that take a snapshot, and their arguments after the file.
const VERBS: [(&str, &[&str]); 22] = [
    ("stats", &[]),
    ("trace", &[]),
    ("segments", &["--output", "OUT.svg"]),
    ("memory", &["--output", "OUT.svg"]),
    ("summary", &[]),
    ("top", &[]),
    ("peak", &[]),
    ("sizes", &[]),
    ("tasks", &[]),
    ("check", &["--max-peak", "1TiB", "--max-leak", "1TiB", "--max-fragmentation", "100%"]),
    ("compare", &["oom.1.pickle", "--output", "OUT.svg"]),
    ("diff", &["oom.1.pickle"]),
    ("convert", &["OUT.pickle"]),
    ("convert", &["OUT.json.gz"]),
    ("convert", &["OUT.memtrack"]),
    ("ranks", &[]),
    ("replay", &[]),
    ("replay", &["--set", "expandable_segments:True"]),
    ("view", &["--output", "OUT.html"]),
    ("trace-plot", &["--output", "OUT.html"]),
    ("segment-plot", &["--output", "OUT.html"]),
    ("profile-plot", &["--output", "OUT.html"]),
];

/// Verbs that take other files, or that cannot report on these files.
const OTHER_VERBS: [&str; 18] = [
    "advise",
    "categories",
    "completions",
    "cycles",
    "export",
    "export-script",
    "gpus",
    "leaks",
    "man",
    "modules",
    "processes",
    "rss",
    "run",
    "schema",
    "simulate",
    "timeline",
    "tracker",
    "help",
];

/// A Python script that loads snapshots, and checks that they contain the program's live memory.
const CHECK: &str = "import pickle,sys
for name in sys.argv[1:]:
    s = pickle.load(open(name, 'rb'))
    assert sum(x['total_size'] for x in s['segments']) == 2 << 20, name
    assert sum(b['size'] for x in s['segments'] for b in x['blocks'] if b['state'] == 'active_allocated') == 2 << 20, name
    assert sum(x['total_size'] for x in s['host_segments']) == 1 << 16, name
    assert len(s['device_traces'][0]) >= 12 and len(s['host_traces']) == 2, name
print(len(sys.argv) - 1, 'fine')";

/// A Python script that prints sizes and counts of a snapshot.
const SIZES: &str = "import pickle,sys; s=pickle.load(open(sys.argv[1],'rb')); \
    print(sum(x['total_size'] for x in s['segments']), sum(x['total_size'] for x in s['host_segments']), \
    len(s['device_traces'][0]), len(s['host_traces']), s['device_traces'][0][-1]['action'])";

const FILES: [&str; 5] = ["by_signal", "by_signal.1.pickle", "oom", "oom.1.pickle", "oom.2.pickle"];

/// Makes every kind of recording and snapshot that `memtrack run` can write.
fn all_files() -> Bench {
    let bench = Bench::new();
    assert!(bench.run(&["-o", "oom", "--snapshot-on", "oom,exit", "--", PLAIN, "oom"]).status.success());
    let waiting = Waiting::new(
        &bench,
        &["-o", "by_signal", "--snapshot-on", "signal", "--", PLAIN, "wait_for_a_signal"],
    );
    waiting.request_snapshot(&bench.path("by_signal.1.pickle"));
    wait_for("the recording holds the work", || holds_work(&load(&bench.path("by_signal")).0));
    waiting.send("TERM");
    waiting.end();
    assert_eq!(bench.files(), FILES);
    bench
}

#[test]
fn every_verb_reads_every_snapshot() {
    let bench = all_files();

    // The two lists contain every verb.
    let help = String::from_utf8(verb(&bench, &["--help"]).stdout).expect("text");
    let all = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let all: Vec<_> =
        all.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next()).collect();
    assert!(all.len() > 10, "{help}");
    for name in all {
        assert!(VERBS.iter().any(|verb| verb.0 == name) || OTHER_VERBS.contains(&name), "{name} is new");
    }

    for file in FILES {
        for (number, (name, rest)) in VERBS.iter().enumerate() {
            let rest = rest.iter().map(|word| word.replace("OUT", &format!("{number}.{file}")));
            let arguments: Vec<String> =
                [(*name).to_owned(), file.to_owned()].into_iter().chain(rest).collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let output = verb(&bench, &arguments);
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr_text(&output));
            let written = arguments.last().filter(|last| last.starts_with(&format!("{number}.")));
            match written {
                Some(written) => assert!(fs::metadata(bench.path(written)).is_ok_and(|data| data.len() > 0)),
                None => assert!(!output.stdout.is_empty(), "{arguments:?}"),
            }
        }
    }

    // These pickles include the files that were converted above.
    let pickles: Vec<_> = bench.files().into_iter().filter(|name| name.ends_with(".pickle")).collect();
    assert_eq!(pickles.len(), 3 + FILES.len());
    for name in &pickles {
        assert_known_to_the_viewer(name, &fs::read(bench.path(name)).expect("it is there"));
    }
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn cpython_reads_every_snapshot() {
    let bench = all_files();
    for file in FILES {
        let output = verb(&bench, &["convert", file, &format!("converted.{file}.pickle")]);
        assert!(output.status.success(), "{file}: {}", stderr_text(&output));
    }
    let python = |script: &str, files: &[&str]| {
        let mut python = Command::new("python3");
        let output = python.args(["-c", script]).args(files).current_dir(bench.folder.path()).output();
        let output = output.expect("python3 can be started");
        assert!(output.status.success(), "{}", stderr_text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let files = bench.files();
    let pickles: Vec<_> = files.iter().map(String::as_str).filter(|name| name.ends_with(".pickle")).collect();
    assert_eq!(python(CHECK, &pickles), "8 fine\n");
    assert_eq!(python(SIZES, &["oom.2.pickle"]), "2097152 65536 13 2 oom\n");
}

/// Returns the program's innermost function on each stack, or an empty string if there is no stack, without consecutive
/// repetitions.
fn named(snapshot: &Snapshot, stacks: impl Iterator<Item = StackId>) -> Vec<String> {
    let mut symbols = Symbolizer::of(snapshot);
    let mut names: Vec<_> = stacks
        .map(|stack| {
            let frames = symbols.stack(snapshot.stacks.get(stack));
            let client = frames.iter().find(|frame| frame.function.starts_with("cuda_plain::client::"));
            client.map_or_else(String::new, |frame| frame.function["cuda_plain::client::".len()..].to_owned())
        })
        .collect();
    names.dedup();
    names
}

#[test]
fn the_limit_of_entries_and_the_stacks_follow_the_options() {
    // The value of `--stacks`, and the expected functions on the stacks of frees and of live blocks.
    for (stacks, of_frees, of_blocks) in
        [("none", "", ""), ("state", "", "alloc"), ("alloc", "alloc", "alloc"), ("all", "free", "alloc")]
    {
        let bench = Bench::new();
        let output = bench.run(&[
            "-o",
            "a",
            "--max-entries",
            "3",
            "--stacks",
            stacks,
            "--snapshot-on",
            "exit",
            "--",
            PLAIN,
            "work",
        ]);
        assert!(output.status.success(), "{}", stderr_text(&output));
        // The recording contains all events: the allocations of three segments and their blocks, and the frees of two segments
        // and two blocks.
        let (snapshot, _) = load(&bench.path("a"));
        let count = |snapshot: &Snapshot| snapshot.events.rows_of(DeviceId(0)).count();
        assert_eq!(count(&snapshot), 10, "{stacks}");
        let events = snapshot.events.iter().filter(|event| event.device == DeviceId(0));
        let frees = events.filter(|event| event.action == Action::SegmentFree).map(|event| event.stack);
        assert_eq!(named(&snapshot, frees), [of_frees], "{stacks}");
        let blocks = snapshot.blocks.iter().filter(|block| block.device == DeviceId(0));
        assert_eq!(named(&snapshot, blocks.map(|block| block.stack)), [of_blocks], "{stacks}");

        // The snapshot contains the newest three events. PyTorch has two events for the free of a block, so there are four.
        let loaded = Snapshot::open(bench.path("a.1.pickle"), LoadOptions::default());
        assert_eq!(count(&loaded.expect("it can be read").snapshot), 4, "{stacks}");
    }
}
