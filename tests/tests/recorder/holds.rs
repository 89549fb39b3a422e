//! The "who holds" report that a program prints when memory runs out, at a dump and at the program's end. It is printed even if
//! the program is killed afterwards, and does not disturb the program.

use memtrack_core::event::Action;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_tests::child::run_well;
use memtrack_tests::time::HANG;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");

/// Runs a scenario whose output depends on the halfway point of its recording. If the scenario exits with `DELAYED`, because it
/// was too slow at that point, it is run again with pauses that are twice as long.
fn run_in_halves(arguments: &[&str], folder: &Path) -> Output {
    let start = Instant::now();
    let mut pause_ms = 400;
    loop {
        let mut command = Command::new(CHILD);
        command.args(arguments).current_dir(folder).env("MEMTRACK_TESTS_PAUSE_MS", pause_ms.to_string());
        let output = command.output().unwrap();
        const DELAYED: i32 = 75;
        if output.status.code() != Some(DELAYED) {
            return output;
        }
        assert!(start.elapsed() < HANG, "{}", messages(&output));
        pause_ms *= 2;
    }
}

/// Returns a scenario's stderr without times and line numbers, which differ between runs.
fn messages(output: &Output) -> String {
    plain(&String::from_utf8_lossy(&output.stderr))
}

fn plain(text: &str) -> String {
    let line = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for word in 2..words.len() {
            if words[word].starts_with("earlier") {
                words[word - 2] = "TIME".into();
                words[word - 1] = "before".into();
            }
        }
        for word in &mut words {
            if let Some((file, _)) = word.split_once(".rs:") {
                *word = format!("{file}.rs:LINE");
            }
        }
        words.join(" ").replace("TIME before earlier", "TIME earlier") + "\n"
    };
    text.lines().map(line).collect()
}

const AT_OOM: &str = "\
memtrack: out of memory on device 0: 200.0 MiB requested, 100.0 MiB free of 4.00 GiB, in head.softmax
memtrack: who holds device 0 now: 1.75 GiB in 8 blocks
memtrack:   1. 1.50 GiB (85.7 %) by holds.rs:LINE weights (phase forward)
memtrack:   2. 256.0 MiB (14.3 %) by holds.rs:LINE activations (module encoder, phase forward)
memtrack:   cache 256.0 MiB, all between blocks, the largest piece 64.0 MiB
memtrack:   since the halfway point, TIME earlier: 256.0 MiB more were allocated and are still held, all by \
holds.rs:LINE activations
memtrack:   first: try expandable segments (expandable_segments:True): 256.0 MiB are cached, in pieces of at most 64.0 MiB
";

#[test]
fn out_of_memory_on_a_device_prints_who_holds_it() {
    let output = run_in_halves(&["holds_device", ""], Path::new("."));
    assert!(output.status.success());
    assert_eq!(messages(&output), AT_OOM);
}

#[test]
fn the_report_is_printed_before_the_dump_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no/such/folder/oom.memtrack");
    let text = messages(&run_in_halves(&["holds_device", path.to_str().unwrap()], folder.path()));
    let (before, after) = text.split_at(AT_OOM.len());
    assert!(before == AT_OOM && after.contains("the dump could not be written: "), "{text}");
}

#[test]
fn the_report_is_printed_only_by_option_or_on_request() {
    let output = run_well(CHILD, &["holds_silent"], Path::new("."));
    assert!(output.stderr.is_empty(), "{}", messages(&output));
    let text = plain(&String::from_utf8_lossy(&output.stdout));
    assert!(
        text.starts_with("who holds device 0 now: 1.75 GiB in 8 blocks\n  1. 1.50 GiB (85.7 %) by holds.rs"),
        "{text}"
    );
}

#[test]
fn a_thousand_failures_print_a_few_reports_and_a_count() {
    let text = messages(&run_well(CHILD, &["holds_flood"], Path::new(".")));
    let reports = text.matches("memtrack: who holds device 0 now").count();
    assert!((3..=20).contains(&reports), "{text}");
    assert!(text.contains("nothing was allocated that is still held"), "{text}");
    let number = |line: &str, before: &str, after: &str| -> usize {
        let rest = line.split_once(before).map_or("", |(_, rest)| rest);
        rest.split_once(after).and_then(|(number, _)| number.parse().ok()).unwrap_or(0)
    };
    let left_out: usize = text
        .lines()
        .map(|line| number(line, "; and ", " times before") + number(line, "were refused ", " times more"))
        .sum();
    assert_eq!(reports + left_out, 1000, "{text}");
}

#[test]
fn a_dump_reports_the_growth_since_the_last_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.memtrack");
    let text = messages(&run_well(CHILD, &["holds_dumps", path.to_str().unwrap()], folder.path()));
    let heads: Vec<&str> = text.lines().filter(|line| line.contains("who holds")).collect();
    assert_eq!(
        heads,
        [
            "memtrack: who holds device 0 now: 1.75 GiB in 8 blocks",
            "memtrack: who holds device 0 now: 2.12 GiB in 9 blocks"
        ]
    );
    let grown = "since the last dump, TIME earlier: 384.0 MiB more were allocated and are still held, all by holds.rs:LINE \
                 weights";
    assert!(text.contains(grown), "{text}");
}

#[test]
fn a_printed_recording_begins_with_the_report() {
    let output = run_well(CHILD, &["holds_end"], Path::new("."));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(lines.lines().all(|line| line.chars().count() <= 120), "{lines}");
    let text = plain(&String::from_utf8_lossy(&output.stdout));
    assert!(
        text.starts_with(
            "who holds device 0 at its peak: 1.75 GiB in 8 blocks\n  \
             1. 1.50 GiB (85.7 %) by holds.rs:LINE weights (phase forward)\n"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "\n  first: look at holds.rs:LINE weights: 85.7 % of the memory is from there\n\nTop operators"
        ),
        "{text}"
    );
}

#[test]
fn a_failed_heap_allocation_prints_who_holds_the_heap() {
    let output = run_well(CHILD, &["holds_heap", "0"], Path::new("."));
    let text = messages(&output);
    let begin = "memtrack: out of memory on host: 64.00 TiB requested, in service.load\n\
                 memtrack: who holds the host heap now: 120.0 MiB in 41 blocks\n\
                 memtrack:   1. 120.0 MiB (100.0 %) by holds.rs:LINE rows → alloc::vec::from_elem (module service, phase \
                 forward)\n";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("not recorded: at least ") && text.contains(" resident (code, stacks"), "{text}");
    // If the stack is too small for naming functions, scopes are named instead.
    assert!(text.contains("memtrack: there is not enough memory to list lines"), "{text}");
    assert!(text.contains("memtrack:   120.0 MiB in service.load\n"), "{text}");
}

#[test]
fn without_memory_scopes_are_named_and_recording_continues() {
    let output = run_well(CHILD, &["holds_heap", "20"], Path::new("."));
    let text = messages(&output);
    let expected = "memtrack: out of memory on host: 64.00 TiB requested, in service.load\n\
                memtrack: there is not enough memory to list lines; 120.0 MiB in blocks that are tracked \
                individually:\nmemtrack:   120.0 MiB in service.load\n";
    assert!(text.starts_with(expected), "{text}");
    assert!(!text.contains("while recording"), "the reserve was not needed: {text}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(" events"));
}

#[test]
fn a_program_continues_when_its_stderr_is_unusable() {
    for how in ["closed", "broken", "full"] {
        let output = run_well(CHILD, &["holds_unread_stderr", how], Path::new("."));
        assert_eq!(String::from_utf8_lossy(&output.stdout), "lives on\n", "{how}");
    }
}

#[test]
fn the_report_is_printed_and_streamed_before_the_program_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("killed.memtrack");
    let output = run_in_halves(&["holds_until_killed", path.to_str().unwrap()], folder.path());
    assert_eq!(output.status.signal(), Some(libc::SIGKILL));
    assert_eq!(messages(&output), AT_OOM);
    let loaded = Snapshot::open(&path, LoadOptions::default()).unwrap();
    assert!(!loaded.report.unwrap().complete);
    assert_eq!(loaded.snapshot.events.action.last(), Some(&Action::Oom));
}

#[test]
fn out_of_memory_in_the_caching_allocator_is_reported() {
    let output = run_well(CHILD, &["holds_allocator"], Path::new("."));
    let text = messages(&output);
    let begin = "memtrack: out of memory on device 0: 20.0 MiB requested, 4.0 MiB free of 64.0 MiB\n\
                 memtrack: who holds device 0 now: 24.0 MiB in 3 blocks\n\
                 memtrack:   1. 24.0 MiB (100.0 %) by holds.rs:LINE kept";
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("cache 36.0 MiB, all between blocks, the largest piece 8.0 MiB"), "{text}");
    assert!(text.contains("first: try expandable segments"), "{text}");
}
