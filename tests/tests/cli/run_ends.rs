//! `memtrack run`: the recording's content however the program ends, and the recordings of its children and of programs
//! after `exec`.

use memtrack_core::event::{Action, DeviceId};
use memtrack_tests::run::{Bench, allocations, assert_work, bytes, count_stderr_lines, load, stderr_text};

const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

#[test]
fn every_end_of_a_program_leaves_a_recording() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "thread", "--", PLAIN, "exit_from_a_thread"]);
    assert_eq!(output.status.code(), Some(7));
    assert_work(&bench.path("thread"), true);
    // In parallel, because each run waits until its events have been written.
    std::thread::scope(|scope| {
        for (name, signal) in [("abort", 6), ("killed", 9), ("ended", 15)] {
            let bench = &bench;
            scope.spawn(move || {
                let output =
                    bench.run_until_recorded(name, &[], &[PLAIN, "signal", &signal.to_string()], &[]);
                assert_eq!(output.status.code(), Some(128 + signal), "{}", stderr_text(&output));
                assert_work(&bench.path(name), true);
            });
        }
    });
}

/// The program causes SIGSEGV itself; no other process sends it.
#[test]
fn a_crash_leaves_a_recording_up_to_the_crash() {
    let bench = Bench::new();
    let output = bench.run_until_recorded("crashed", &[], &[PLAIN, "crash"], &[]);
    assert_eq!(output.status.code(), Some(128 + libc::SIGSEGV), "{}", stderr_text(&output));
    assert_work(&bench.path("crashed"), true);
}

#[test]
fn frees_by_exit_handlers_are_recorded() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "freed", "--snapshot-on", "exit", "--", PLAIN, "free_at_exit"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let (snapshot, report) = load(&bench.path("freed"));
    assert!(report.complete);
    // `work` leaves 2 MiB live; five blocks were allocated in total.
    assert_eq!((bytes(&snapshot, DeviceId(0)), allocations(&snapshot, DeviceId(0))), (2 << 20, 5));
    let frees = snapshot.events.rows_of(DeviceId(0));
    let large = frees.filter(|&row| {
        snapshot.events.action[row] == Action::SegmentFree && snapshot.events.size_bytes[row] == 8 << 20
    });
    assert_eq!(large.count(), 2);
}

/// What hooks have written is read after the process has ended.
#[test]
fn a_killed_forked_child_loses_no_events() {
    const COUNT: usize = 15_000;
    const THREADS: usize = 2;
    let bench = Bench::new();
    let output = bench.run(&["-o", "forked", "--", PLAIN, "fork_and_be_killed", &COUNT.to_string()]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_work(&bench.path("forked"), true);
    let name = &bench.files()[1];
    let (child, report) = load(&bench.path(name));
    assert!(report.complete, "{report:?}");
    let events = |thread| {
        let rows = child.events.rows_of(DeviceId(0));
        rows.filter(|&row| child.events.thread[row] == thread && child.events.size_bytes[row] == 512).count()
    };
    let mut threads: Vec<_> = child.events.thread.clone();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), THREADS, "{threads:?}");
    // Each allocation is recorded as a block and a segment.
    let counts: Vec<usize> = threads.into_iter().map(events).collect();
    let dropped: u64 = child.devices.iter().map(|counts| counts.dropped).sum();
    assert_eq!(counts.iter().sum::<usize>() + dropped as usize, THREADS * 2 * COUNT, "{counts:?}");
}

#[test]
fn children_record_into_separate_files() {
    let bench = Bench::new();
    assert!(bench.run(&["-o", "forked", "--", PLAIN, "fork"]).status.success());
    assert_work(&bench.path("forked"), true);
    let files = bench.files();
    assert_eq!(files.len(), 2, "a child in which nothing happens leaves no file: {files:?}");
    let child = load(&bench.path(&files[1])).0;
    assert_eq!(
        (bytes(&child, DeviceId(0)), child.meta.pid),
        (5 << 20, files[1]["forked.".len()..].parse().unwrap())
    );

    let bench = Bench::new();
    assert!(bench.run(&["-o", "spawned", "--", PLAIN, "spawn"]).status.success());
    assert_work(&bench.path("spawned"), true);
    assert_work(&bench.path(&bench.files()[1]), true);
}

#[test]
fn exec_loses_no_events() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "first", "--", PLAIN, "exec"]);
    assert!(output.status.success());
    let files = bench.files();
    assert_eq!(files.len(), 2, "{files:?}");
    // No events are lost, and the driver's readings are recorded too.
    assert_work(&bench.path("first"), true);
    assert!(!load(&bench.path("first")).0.driver.is_empty());
    assert_work(&bench.path(&files[1]), true);
    let text = stderr_text(&output);
    assert!(text.contains("memtrack: after exec: recorded ") && text.contains(&files[1]), "{text}");
    assert_eq!(count_stderr_lines(&output), 2, "{text}");

    // `execl` with more arguments than fit in registers.
    let bench = Bench::new();
    let output = bench.run(&["-o", "list", "--", PLAIN, "exec_list"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_work(&bench.path("list"), true);
    let sizes: Vec<u64> =
        load(&bench.path(&bench.files()[1])).0.blocks.iter().map(|block| block.size_bytes).collect();
    assert_eq!(sizes.len(), 8);
    assert!((1..=8).all(|size| sizes.contains(&size)), "{sizes:?}");
}

#[test]
fn a_program_continues_after_a_failed_exec() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "same", "--", PLAIN, "exec_fails"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let (snapshot, report) = load(&bench.path("same"));
    assert!(report.complete);
    assert_eq!(bytes(&snapshot, DeviceId(0)), 6 << 20);
    assert_eq!(bench.files(), ["same"]);
}

#[test]
fn an_end_without_exit_handlers_loses_no_events() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "short", "--", PLAIN, "end_at_once", "9"]);
    assert_eq!(output.status.code(), Some(9));
    assert_work(&bench.path("short"), true);

    // Children that end without exit handlers: the first starts to record after the fork, and the second is forked while its
    // parent records.
    let bench = Bench::new();
    let output = bench.run(&["-o", "children", "--", PLAIN, "fork_and_end_at_once"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_work(&bench.path("children"), true);
    let children: Vec<u64> =
        bench.files()[1..].iter().map(|name| bytes(&load(&bench.path(name)).0, DeviceId(0))).collect();
    assert_eq!(children.len(), 2, "{:?}", bench.files());
    assert!(children.contains(&(2 << 20)) && children.contains(&(5 << 20)), "{children:?}");
}

/// The child runs in its parent's memory until `exec`: it must not change the parent's state.
#[test]
fn a_vforked_child_does_not_disturb_its_parent() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "parent", "--", PLAIN, "vfork"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_work(&bench.path("parent"), true);
    assert_work(&bench.path(&bench.files()[1]), true);
}
