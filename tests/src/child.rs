//! Runs a test of the same program, or another program, in a separate process.
//!
//! All tests of a program share its recorder, its environment and its exit. A test that uses one of them begins with
//! [`alone!`](crate::alone), or is ignored and run by another test through [`this_program`].

use crate::time::{HANG, wait_for};
use std::any::type_name;
use std::env;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The environment variable that names the test that a process was started for.
const TEST: &str = "MEMTRACK_TESTS_CHILD";

/// Begins a test that must be alone in its process: starts the test program again for this test alone. The child continues
/// after this line; the parent waits for it to pass, and returns.
#[macro_export]
macro_rules! alone {
    () => {{
        fn here() {}
        if !$crate::child::is_alone(here) {
            return;
        }
    }};
}

/// Returns whether this process was started for the test that contains the function `here`. If not, runs such a process and
/// returns after it has passed.
///
/// # Panics
/// When that process fails; the message contains its output.
pub fn is_alone(here: impl Fn()) -> bool {
    let name = name_of(&here).strip_suffix("::here").expect("the function of `alone!`");
    if env::var(TEST).is_ok_and(|test| test == name) {
        #[cfg(target_os = "linux")]
        wait_for("libtest's main thread waits for the test", main_thread_sleeps);
        return true;
    }
    let output = by_name(name).output().expect("the test's program can be started");
    let printed = assert_passed(&output);
    print!("{}", printed.text);
    eprint!("{}", printed.errors);
    false
}

/// Returns whether the main thread sleeps. Libtest's main thread keeps running for a moment after it has started the test, and
/// allocates meanwhile: on a loaded machine, possibly as late as the test's end.
#[cfg(target_os = "linux")]
fn main_thread_sleeps() -> bool {
    let process = std::process::id();
    let stat = std::fs::read_to_string(format!("/proc/self/task/{process}/stat")).expect("Linux has it");
    // The state follows the name, which is in parentheses and may contain parentheses.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// Returns a command that runs one test of the running program, ignored or not.
pub fn this_program<R>(test: impl Fn() -> R) -> Command {
    by_name(name_of(&test))
}

fn by_name(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("the path of the running test"));
    command.args(["--exact", test, "--include-ignored", "--nocapture", "--quiet"]).env(TEST, test);
    command
}

/// Returns the name that libtest gives to a test: its path in the test program.
fn name_of<F>(_test: &F) -> &'static str {
    type_name::<F>().split_once("::").expect("a function lies in a program").1
}

/// The output of a test that ran in a separate process.
#[derive(Debug)]
pub struct TestOutput {
    /// Standard output, without libtest's lines around it.
    pub text: String,
    /// Standard error.
    pub errors: String,
}

/// Asserts that [`this_program`] ran its test, and that the test passed.
///
/// # Panics
/// When the test did not run or did not pass; the message contains its output.
pub fn assert_passed(output: &Output) -> TestOutput {
    let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let inside = || {
        let (text, _) =
            text.strip_prefix("\nrunning 1 test\n")?.rsplit_once("\ntest result: ok. 1 passed;")?;
        text.trim_end().strip_suffix('.')
    };
    match inside() {
        Some(text) if output.status.success() => TestOutput { text: text.into(), errors: errors.into() },
        _ => panic!("{}\n{text}\n{errors}", output.status),
    }
}

/// Starts a program with `arguments` in `folder`, with its output piped.
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

/// Runs a program to completion.
///
/// # Panics
/// When the program hangs; it is then killed.
pub fn run(program: &str, arguments: &[&str], folder: &Path) -> Output {
    wait(start(program, arguments, folder), &format!("{arguments:?}"))
}

/// Runs a command to completion, with its output piped, and asserts that it succeeds.
///
/// # Panics
/// When it hangs or fails; the message contains its output.
pub fn ends_well(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = format!("{command:?}");
    let output = wait(spawned(command), &what);
    assert_success(&output, &what);
    output
}

/// Starts a command. Retries while its file is busy: just written, and still open in a child that another test has forked.
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
            // The panic message is the same whether or not the child can be killed.
            let _ = child.kill();
            panic!("{what} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("the child's output can be read")
}

/// Runs a program and asserts that it succeeds.
///
/// # Panics
/// When it hangs or fails; the message contains its output.
pub fn run_well(program: &str, arguments: &[&str], folder: &Path) -> Output {
    let output = run(program, arguments, folder);
    assert_success(&output, &format!("{arguments:?}"));
    output
}

fn assert_success(output: &Output, what: &str) {
    assert!(
        output.status.success(),
        "{what}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
