//! Runs what a test needs as a process of its own: a test of the same program, or another program.
//!
//! A recorder, an environment and the ends of a process belong to all tests of a program. What uses them is a test that
//! begins with [`alone!`](crate::alone), or an ignored one beside the test that runs it by [`this_program`].

use crate::time::{HANG, wait_for};
use std::any::type_name;
use std::env;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Names the test that a process was started for.
const TEST: &str = "MEMTRACK_TESTS_CHILD";

/// Begins a test that must be alone in its process: starts the test's own program for it, which goes on behind this line,
/// and returns when that has ended well.
#[macro_export]
macro_rules! alone {
    () => {{
        fn here() {}
        if !$crate::child::is_alone(here) {
            return;
        }
    }};
}

/// What [`alone!`](crate::alone) asks: whether this process is there for the test that the function `here` lies in. If
/// not, such a one has ended well.
///
/// # Panics
/// When it did not; the message holds what it said.
pub fn is_alone(here: impl Fn()) -> bool {
    let name = name_of(&here).strip_suffix("::here").expect("the function of `alone!`");
    if env::var(TEST).is_ok_and(|test| test == name) {
        #[cfg(target_os = "linux")]
        wait_for("libtest's main thread waits for the test", main_thread_sleeps);
        return true;
    }
    let output = by_name(name).output().expect("the test's program can be started");
    let said = assert_passed(&output);
    print!("{}", said.text);
    eprint!("{}", said.errors);
    false
}

/// Whether the main thread sleeps. Libtest's goes on for a moment beside the test that it has started, and allocates meanwhile, on
/// a loaded machine as late as at the test's end.
#[cfg(target_os = "linux")]
fn main_thread_sleeps() -> bool {
    let process = std::process::id();
    let stat = std::fs::read_to_string(format!("/proc/self/task/{process}/stat")).expect("Linux has it");
    // After the name, which is in brackets and may have some itself.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// The running test's own program, to be started for one of its tests, ignored or not.
pub fn this_program<R>(test: impl Fn() -> R) -> Command {
    by_name(name_of(&test))
}

fn by_name(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("the path of the running test"));
    command.args(["--exact", test, "--include-ignored", "--nocapture", "--quiet"]).env(TEST, test);
    command
}

/// What libtest calls a test: its path in its program.
fn name_of<F>(_test: &F) -> &'static str {
    type_name::<F>().split_once("::").expect("a function lies in a program").1
}

/// What a test said in a process of its own.
#[derive(Debug)]
pub struct Said {
    /// On standard output, without what libtest writes around it.
    pub text: String,
    /// On standard error.
    pub errors: String,
}

/// Asserts that [`this_program`] ran its test, and that it passed.
///
/// # Panics
/// When it did not; the message holds what it said.
pub fn assert_passed(output: &Output) -> Said {
    let [text, errors] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    let inside = || {
        let (text, _) =
            text.strip_prefix("\nrunning 1 test\n")?.rsplit_once("\ntest result: ok. 1 passed;")?;
        text.trim_end().strip_suffix('.')
    };
    match inside() {
        Some(text) if output.status.success() => Said { text: text.into(), errors: errors.into() },
        _ => panic!("{}\n{text}\n{errors}", output.status),
    }
}

/// Starts `program SCENARIO` in `folder`, with its output piped.
///
/// # Panics
/// When it cannot be started.
pub fn start(program: &str, arguments: &[&str], folder: &Path) -> Child {
    Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program can be started")
}

/// Runs it to its end.
///
/// # Panics
/// When it hangs: it is killed then.
pub fn run(program: &str, arguments: &[&str], folder: &Path) -> Output {
    wait(start(program, arguments, folder), &format!("{arguments:?}"))
}

/// Runs a command to its end, with its output piped, and asserts that it ended well.
///
/// # Panics
/// When it hangs or fails; the message holds what it said.
pub fn ends_well(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = format!("{command:?}");
    let output = wait(spawned(command), &what);
    assert_well(&output, &what);
    output
}

/// Starts it, again where its file was just written and a child that another test has forked has it open for a moment.
fn spawned(command: &mut Command) -> Child {
    let mut child = None;
    wait_for("the program's file is free", || match command.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => false,
        started => {
            child = Some(started.expect("the program can be started"));
            true
        }
    });
    child.expect("it was started")
}

fn wait(mut child: Child, what: &str) -> Output {
    let start = Instant::now();
    while child.try_wait().expect("the child can be waited for").is_none() {
        if start.elapsed() > HANG {
            // It is ours; whether it can still be killed does not matter for the message.
            let _ = child.kill();
            panic!("{what} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("the child's output can be read")
}

/// Runs it and asserts that it ended well.
///
/// # Panics
/// When it hangs or fails; the message holds what it said.
pub fn run_well(program: &str, arguments: &[&str], folder: &Path) -> Output {
    let output = run(program, arguments, folder);
    assert_well(&output, &format!("{arguments:?}"));
    output
}

fn assert_well(output: &Output, what: &str) {
    assert!(
        output.status.success(),
        "{what}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
