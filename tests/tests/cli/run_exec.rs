//! `memtrack run --exec`: the command becomes the program, and another process reports.

use memtrack_core::snapshot::ProcessEnd;
use memtrack_tests::run::{Bench, assert_work, load_each, stderr_text};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

#[test]
fn the_program_has_the_commands_process_id_and_no_children() {
    let bench = Bench::new();
    // The shell's builtin `read` reads the file, so that the shell itself has no children.
    let script = "read -r children < /proc/$$/task/$$/children; echo \"$$ [$children]\"; exit 7";
    let mut command = bench.command();
    command.args(["--exec", "--host", "-o", "run", "--", "sh", "-c", script]);
    let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let process = started.id();
    // Standard error is closed when the other process has reported.
    let output = started.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!("{process} []\n"),
        "{}",
        stderr_text(&output)
    );
    assert_eq!(output.status.code(), Some(7));
    assert!(stderr_text(&output).contains("memtrack: recorded "), "{}", stderr_text(&output));
    let processes = load_each(&bench.path("run"));
    let (row, snapshot) = processes.last().unwrap();
    assert_eq!((row.pid, row.is_first, snapshot.meta.complete), (process, true, true));
    // Since Linux 6.15, a process other than the parent can query the exit code; on older kernels it is unknown.
    assert!(matches!(row.end, ProcessEnd::Code(7) | ProcessEnd::Ended), "{row:?}");
}

#[test]
fn the_recording_and_the_answer_are_those_of_the_program() {
    let bench = Bench::new();
    let output = bench.run(&["--exec", "--json", "run.json", "-o", "run", "--", PLAIN, "work"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    assert_work(&bench.path("run"), true);
    let answer: serde_json::Value =
        serde_json::from_slice(&fs::read(bench.path("run.json")).unwrap()).unwrap();
    assert_eq!((&answer["processes"], &answer["main_process"]), (&1.into(), &answer["process"]));
}

#[test]
fn a_program_that_cannot_be_run_is_an_error_and_leaves_no_process() {
    let bench = Bench::new();
    let broken = bench.path("broken");
    fs::write(&broken, "\x7fELF is not all of it").unwrap();
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o755)).unwrap();
    // This call returns only when no process has the standard error open any more, so it shows that no process is left.
    let output = bench.run(&["--exec", "-o", "run", "--", "./broken"]);
    assert_eq!(output.status.code(), Some(126), "{}", stderr_text(&output));
    assert_eq!(stderr_text(&output).lines().count(), 1, "{}", stderr_text(&output));
    assert_eq!(bench.files(), ["broken"]);
    let output = bench.run(&["--exec", "--snapshot-on", "signal", "--", PLAIN, "work"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr_text(&output));
}
