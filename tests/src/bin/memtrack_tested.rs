//! The command as tests run it: `memtrack-cli/src/main.rs`, plus a check of its `--json` output. Output that violates its schema
//! is reported on standard error, and the exit code is one that no test expects.

use memtrack_tests::schema::check_answer;
use serde_json::Value;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// The size of the largest output that is checked; tests of memory bounds print larger outputs.
const MAX_BYTES: usize = 4 << 20;

/// The exit code for output that violates its schema.
const INVALID: u8 = 99;

/// The verbs that write files. They print JSON to standard error if their data goes to standard output.
const WRITERS: [&str; 8] = [
    "convert",
    "export-script",
    "profile-plot",
    "segment-plot",
    "simulate",
    "timeline",
    "trace-plot",
    "view",
];

/// A writer that also keeps a copy of its output, unless the output exceeds [`MAX_BYTES`].
struct Copying<W> {
    to: W,
    copy: Option<Vec<u8>>,
}

impl<W: Write> Write for Copying<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        if let Some(copy) = &mut self.copy {
            copy.extend_from_slice(&bytes[..written]);
        }
        self.copy.take_if(|copy| copy.len() > MAX_BYTES);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let words = arguments.iter().map(|argument| argument.to_str().unwrap_or_default());
    // The words after `--` belong to the program that `memtrack run` starts.
    let words: Vec<&str> = words.skip(1).take_while(|&word| word != "--").collect();
    let verb = words.first().copied().unwrap_or_default().replace('_', "-");
    // These formats are not memtrack's and have no schema.
    let has_other_format = words.contains(&"--tensors") || words.contains(&"--nodes");
    let is_checked = words.contains(&"--json") && !has_other_format;
    let copy = || (is_checked && verb != "run").then(Vec::new);
    let mut stdout = Copying { to: BufWriter::new(io::stdout().lock()), copy: copy() };
    let mut stderr = Copying { to: io::stderr().lock(), copy: copy() };
    let code =
        memtrack_cli::run(arguments.iter().cloned(), &mut io::stdin().lock(), &mut stdout, &mut stderr);
    let _ = stdout.flush();
    // A copy that was not kept counts as empty, and is not checked.
    let (printed, hints) = (stdout.copy.unwrap_or_default(), stderr.copy.unwrap_or_default());
    let answer = match &*verb {
        "run" if is_checked => file_of_run(&words),
        verb if WRITERS.contains(&verb) && !printed.starts_with(b"{\n  \"schema\"") => {
            beginning_with_schema(hints)
        }
        _ => printed,
    };
    drop(stderr.to);
    match checked(&verb, &answer) {
        Ok(()) => ExitCode::from(code),
        Err(why) => {
            eprintln!("INVALID OUTPUT of memtrack {}: {why}", words.join(" "));
            ExitCode::from(INVALID)
        }
    }
}

/// Checks the JSON output, if there is any.
fn checked(verb: &str, answer: &[u8]) -> Result<(), String> {
    if answer.is_empty() {
        return Ok(());
    }
    match serde_json::from_slice::<Value>(answer) {
        Ok(answer) => check_answer(verb, &schema_of(verb)?, &answer),
        // If the reader closed the pipe, only the beginning was written.
        Err(error) if error.is_eof() => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the schema that the command prints for a verb.
fn schema_of(verb: &str) -> Result<Value, String> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    memtrack_cli::run(
        ["memtrack", "schema", verb].map(Into::into),
        &mut io::empty(),
        &mut stdout,
        &mut stderr,
    );
    serde_json::from_slice(&stdout)
        .map_err(|error| format!("{verb}: {error}: {}", String::from_utf8_lossy(&stderr)))
}

/// Returns the content of the file that `memtrack run --json FILE` wrote.
fn file_of_run(arguments: &[&str]) -> Vec<u8> {
    let place = arguments.iter().position(|&argument| argument == "--json").map(|place| place + 1);
    let file = place.and_then(|place| arguments.get(place));
    file.and_then(|file| std::fs::read(file).ok()).unwrap_or_default()
}

/// Returns the JSON output that follows the hints on standard error.
fn beginning_with_schema(hints: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8_lossy(&hints).into_owned();
    text.find("{\n  \"schema\"").map(|begin| text.as_bytes()[begin..].to_vec()).unwrap_or_default()
}
