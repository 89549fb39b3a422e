//! `memtrack run`: the content of the recording however the program ends, and the recordings of its children and of programs
//! after `exec`.

use memtrack_core::event::{Action, DeviceId};
use memtrack_core::snapshot::ProcessEnd;
use memtrack_tests::run::{
    Bench, allocations, assert_is_work, assert_work, bytes, count_stderr_lines, load, load_each, stderr_text,
};

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

/// Events that hooks wrote to shared memory are read by the collector even after their process has ended.
#[test]
fn a_killed_forked_child_loses_no_events() {
    const COUNT: usize = 15_000;
    const THREADS: usize = 2;
    let bench = Bench::new();
    let output = bench.run(&["-o", "forked", "--", PLAIN, "fork_and_be_killed", &COUNT.to_string()]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_work(&bench.path("forked"), true);
    assert_eq!(bench.files(), ["forked"]);
    let (row, child) = load_each(&bench.path("forked")).remove(1);
    assert!(row.is_forked && child.meta.complete, "{row:?}");
    // The signal is known only if the collector opened the process before its parent waited for it.
    assert!(matches!(row.end, ProcessEnd::Signal(libc::SIGKILL) | ProcessEnd::Ended), "{row:?}");
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
fn children_are_processes_of_one_recording() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "forked", "--", PLAIN, "fork"]);
    assert!(output.status.success());
    assert_eq!(bench.files(), ["forked"]);
    // A reader that chooses no process gets the recording of the process that `memtrack run` started.
    assert_work(&bench.path("forked"), true);
    let processes = load_each(&bench.path("forked"));
    assert_eq!(processes.len(), 2, "a child in which nothing happens is not listed: {processes:?}");
    let [(parent, of_parent), (child, of_child)] = &processes[..] else { unreachable!() };
    assert_is_work(of_parent);
    assert_eq!((bytes(of_child, DeviceId(0)), of_child.meta.pid), (5 << 20, child.pid));
    assert_eq!((parent.is_first, child.is_first, child.is_forked), (true, false, true));
    assert_eq!((child.parent, parent.end), (parent.pid, ProcessEnd::Code(0)));
    let text = stderr_text(&output);
    let line = format!(": process {}, cuda_plain fork, and 1 other process; memtrack processes ", parent.pid);
    assert!(text.contains(&line), "{text}");

    let bench = Bench::new();
    assert!(bench.run(&["-o", "spawned", "--", PLAIN, "spawn"]).status.success());
    assert_eq!(bench.files(), ["spawned"]);
    let processes = load_each(&bench.path("spawned"));
    assert_eq!(processes.len(), 2);
    processes.iter().for_each(|(_, snapshot)| assert_is_work(snapshot));
    assert!(!processes[1].0.is_forked);
}

#[test]
fn exec_loses_no_events() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "first", "--", PLAIN, "exec"]);
    assert!(output.status.success());
    assert_eq!(bench.files(), ["first"]);
    let processes = load_each(&bench.path("first"));
    // No events are lost, and the driver's readings are recorded too.
    let [(before, of_before), (after, of_after)] = &processes[..] else { panic!("{processes:?}") };
    assert_is_work(of_before);
    assert!(!of_before.driver.is_empty());
    assert_is_work(of_after);
    assert_eq!((before.pid, before.end), (after.pid, ProcessEnd::Replaced));
    assert_eq!(load(&bench.path("first")).1.chosen, [after.number], "reports are about what it became");
    let text = stderr_text(&output);
    assert!(text.contains("and what it was before; memtrack processes "), "{text}");
    assert_eq!(count_stderr_lines(&output), 1, "{text}");

    // `execl` with more arguments than fit in registers.
    let bench = Bench::new();
    let output = bench.run(&["-o", "list", "--", PLAIN, "exec_list"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let processes = load_each(&bench.path("list"));
    assert_is_work(&processes[0].1);
    let sizes: Vec<u64> = processes[1].1.blocks.iter().map(|block| block.size_bytes).collect();
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
    let processes = load_each(&bench.path("children"));
    let children: Vec<u64> =
        processes[1..].iter().map(|(_, snapshot)| bytes(snapshot, DeviceId(0))).collect();
    assert_eq!(children.len(), 2, "{processes:?}");
    assert!(children.contains(&(2 << 20)) && children.contains(&(5 << 20)), "{children:?}");
}

/// The child runs in its parent's memory until `exec`: it must not change the parent's state.
#[test]
fn a_vforked_child_does_not_disturb_its_parent() {
    let bench = Bench::new();
    let output = bench.run(&["-o", "parent", "--", PLAIN, "vfork"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let processes = load_each(&bench.path("parent"));
    assert_eq!(processes.len(), 2);
    processes.iter().for_each(|(_, snapshot)| assert_is_work(snapshot));
}
