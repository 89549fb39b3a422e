//! Runs the programs that a test of the recorder needs as processes of their own.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a child may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(100);

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
    let output = wait(command.spawn().expect("the program can be started"), &what);
    assert_well(&output, &what);
    output
}

fn wait(mut child: Child, what: &str) -> Output {
    let start = Instant::now();
    while child.try_wait().expect("the child can be waited for").is_none() {
        if start.elapsed() > PATIENCE {
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
