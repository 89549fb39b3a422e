//! `memtrack run --host` on programs with unusual behaviour: they exit with hardly any stack left, cancel their threads, write
//! data to the descriptor number of stderr, or fork without the C library. All of them end as they do without memtrack.

use memtrack_core::event::DeviceId;
use memtrack_tests::child::ends_well;
use memtrack_tests::run::{Bench, compile_c, load, load_each, stderr_text};
use std::fs;
use std::process::{Command, Output};

const GUEST: &str = include_str!("../../src/c/guest.c");
const POOL: &str = include_str!("../../src/c/pool.c");

fn guest() -> Bench {
    let bench = Bench::new();
    compile_c(bench.folder.path(), GUEST, &["-o", "guest"]);
    bench
}

/// Runs the guest without memtrack and then with it; both must succeed.
fn run(bench: &Bench, arguments: &[&str]) -> Output {
    ends_well(Command::new("./guest").args(arguments).current_dir(bench.folder.path()));
    let recording = ["--host", "--force", "-o", "recording", "--", "./guest"];
    ends_well(bench.command().args(recording).args(arguments))
}

#[test]
fn a_constructor_waits_for_threads_that_compete() {
    let bench = guest();
    compile_c(bench.folder.path(), POOL, &["-shared", "-fPIC", "-o", "pool.so"]);
    for _ in 0..2 {
        run(&bench, &["load", "./pool.so"]);
    }
}

#[test]
fn a_program_ends_with_hardly_any_stack_left() {
    let bench = guest();
    for way in ["exit", "child-exits", "child-execs", "coroutine", "handler"] {
        run(&bench, &[way]);
        let (snapshot, report) = load(&bench.path("recording"));
        assert!(report.complete && snapshot.device_ids().contains(&DeviceId::HOST), "{way}");
    }
}

#[test]
fn a_program_without_room_for_the_library_runs_without_it() {
    let bench = Bench::new();
    for limit in ["5000", "8000"] {
        let script = format!("ulimit -v {limit}; exec ls / ''");
        let plain = Command::new("sh").args(["-c", &script]).output().expect("a shell");
        let name = format!("of_{limit}");
        let output = bench.run(&["--host", "-o", &name, "--", "sh", "-c", &script]);
        assert_eq!(
            (output.status, &output.stdout),
            (plain.status, &plain.stdout),
            "{}",
            stderr_text(&output)
        );
        assert!(stderr_text(&output).contains("limited to less than 256 MiB"), "{}", stderr_text(&output));
        let processes = load_each(&bench.path(&name));
        assert!(processes.iter().all(|(row, _)| row.name() != "ls"), "{processes:?}");
    }
    // `execl` starts `ls` with memtrack's library in spite of the small limit. The library in `ls` does not record, but counts
    // `ls` among the programs that are not recorded.
    const SOURCE: &str = "#include <sys/resource.h>\n#include <unistd.h>\nint main(void) {
    struct rlimit limit = {200000000, 200000000};\n    setrlimit(RLIMIT_AS, &limit);\n    execl(\"/bin/ls\", \"ls\", \"/\", NULL);\n}\n";
    compile_c(bench.folder.path(), SOURCE, &["-o", "limits_itself"]);
    let output = ends_well(bench.command().args(["--host", "-o", "counted", "--", "./limits_itself"]));
    assert!(stderr_text(&output).contains("limited to less than 256 MiB"), "{}", stderr_text(&output));
    // With more address space, the program is recorded.
    let output = bench.run(&["--host", "-o", "room", "--", "sh", "-c", "ulimit -v 400000; exec ls /"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert!(load_each(&bench.path("room")).iter().any(|(row, _)| row.name() == "ls"));
}

/// A child that shares its parent's memory and has separate, zeroed thread-local storage, as Chromium's sandbox creates it.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_child_without_the_c_librarys_thread_local_storage_ends_as_without_memtrack() {
    const SOURCE: &str = "#define _GNU_SOURCE\n#include <sched.h>\n#include <signal.h>\n#include <stdlib.h>\n#include <string.h>
#include <sys/wait.h>\n#include <unistd.h>
static int child(void *how) {
    char *arguments[] = {\"true\", NULL};
    if (!strcmp(how, \"exec\")) execv(\"/bin/true\", arguments);
    if (!strcmp(how, \"heap\")) { void *volatile block = malloc(100); free(block); }
    _exit(7);
}
int main(int count, char **arguments) {
    static char stack[65536] __attribute__((aligned(16))), storage[65536] __attribute__((aligned(16)));
    int flags = CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD, status;
    int process = clone(child, stack + sizeof stack, flags, arguments[count - 1], 0, storage + 32768, 0);
    waitpid(process, &status, 0);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == (strcmp(arguments[count - 1], \"exec\") ? 7 : 0));
}";
    let bench = Bench::new();
    compile_c(bench.folder.path(), SOURCE, &["-o", "guest"]);
    for how in ["end", "exec", "heap"] {
        run(&bench, &[how]);
    }
}

#[test]
fn threads_are_cancelled_where_the_program_allows_it() {
    run(&guest(), &["cancel"]);
}

#[test]
fn a_file_with_stderrs_number_contains_only_the_programs_data() {
    let bench = guest();
    run(&bench, &["stderr"]);
    assert_eq!(fs::read_to_string(bench.path("data")).unwrap(), "datadata");
}

#[test]
fn children_of_a_raw_fork_write_nothing_into_the_stream() {
    let bench = guest();
    let output = run(&bench, &["raw-fork"]);
    let (snapshot, report) = load(&bench.path("recording"));
    assert!(report.complete, "{}", stderr_text(&output));
    let counts = snapshot.devices.iter().find(|counts| counts.device == DeviceId::HOST).unwrap();
    assert!((2_000..4_000).contains(&counts.allocations), "{counts:?}");
}

#[test]
fn the_stream_thread_is_not_recorded() {
    let bench = guest();
    run(&bench, &["frees-all"]);
    let (snapshot, _) = load(&bench.path("recording"));
    let counts = snapshot.devices.iter().find(|counts| counts.device == DeviceId::HOST).unwrap();
    assert_eq!(counts.allocations, counts.frees, "{counts:?}");
    assert_eq!(counts.allocated_bytes, counts.freed_bytes, "{counts:?}");
}
