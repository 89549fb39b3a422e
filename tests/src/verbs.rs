//! Runs verbs of `memtrack` on files.

use crate::memtrack;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a verb with its arguments, followed by the file.
///
/// # Panics
/// When `memtrack` cannot be started.
pub fn run(arguments: &[&str], file: &Path) -> Output {
    Command::new(memtrack()).args(arguments).arg(file).output().expect("memtrack can be started")
}

/// Runs a verb and returns what it prints.
///
/// # Panics
/// When the exit code is not 0, or the output is not UTF-8.
pub fn text(arguments: &[&str], file: &Path) -> String {
    let output = run(arguments, file);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a verb with `--json` and returns its output, whatever its exit code.
///
/// # Panics
/// When the output is not JSON.
pub fn json(arguments: &[&str], file: &Path) -> Value {
    let output = run(&[arguments, &["--json"]].concat(), file);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error} {output:?}"))
}

/// Returns a row's name or, in parentheses, the reason why it has none, as in printed reports.
///
/// # Panics
/// When the row has neither.
pub fn name(row: &Value) -> String {
    row["name"].as_str().map_or_else(
        || format!("({})", row["why_no_name"].as_str().expect("a name or the reason why there is none")),
        str::to_owned,
    )
}

/// Runs a verb with `input` on its standard input.
///
/// # Panics
/// When `memtrack` cannot be started or waited for.
pub fn piped(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(memtrack())
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("memtrack can be started");
    // Writing fails if a usage error ends the program before it reads.
    let _ = child.stdin.take().expect("it is piped").write_all(input);
    child.wait_with_output().expect("it ends")
}
