//! The command as tests run it: what `memtrack-cli/src/main.rs` does, and a look at what it answers with `--json`. An
//! answer that is not what its schema says ends with a code that no test expects, and says what is wrong.

use memtrack_tests::schema::check_answer;
use serde_json::Value;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

/// Answers are looked at up to this many bytes; tests of bounds on memory make larger ones.
const MOST: usize = 4 << 20;

/// The code of a wrong answer.
const WRONG: u8 = 99;

/// What writes files answers on standard error where its data goes to standard output.
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

/// Passes on what is written, and keeps a copy.
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
        self.copy.take_if(|copy| copy.len() > MOST);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let own = arguments.iter().map(|argument| argument.to_str().unwrap_or_default());
    // What comes after is the program's that it runs.
    let own: Vec<&str> = own.skip(1).take_while(|&argument| argument != "--").collect();
    let verb = own.first().copied().unwrap_or_default().replace('_', "-");
    // Their form is others'.
    let is_others = own.contains(&"--tensors") || own.contains(&"--nodes");
    let answers = own.contains(&"--json") && !is_others;
    let copy = || (answers && verb != "run").then(Vec::new);
    let mut stdout = Copying { to: BufWriter::new(io::stdout().lock()), copy: copy() };
    let mut stderr = Copying { to: io::stderr().lock(), copy: copy() };
    let code =
        memtrack_cli::run(arguments.iter().cloned(), &mut io::stdin().lock(), &mut stdout, &mut stderr);
    let _ = stdout.flush();
    // A usage error answers nothing.
    let (said, hints) = (stdout.copy.unwrap_or_default(), stderr.copy.unwrap_or_default());
    let answer = match &*verb {
        "run" if answers => file_of_run(&own),
        verb if WRITERS.contains(&verb) && !said.starts_with(b"{\n  \"schema\"") => {
            beginning_with_schema(hints)
        }
        _ => said,
    };
    drop(stderr.to);
    match checked(&verb, &answer) {
        Ok(()) => ExitCode::from(code),
        Err(why) => {
            eprintln!("WRONG ANSWER of memtrack {}: {why}", own.join(" "));
            ExitCode::from(WRONG)
        }
    }
}

/// Checks an answer, if there is one.
fn checked(verb: &str, answer: &[u8]) -> Result<(), String> {
    if answer.is_empty() {
        return Ok(());
    }
    match serde_json::from_slice::<Value>(answer) {
        Ok(answer) => check_answer(verb, &answer),
        // A pipe that was closed has only the beginning.
        Err(error) if error.is_eof() => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// What `memtrack run` wrote to the file that it was given.
fn file_of_run(arguments: &[&str]) -> Vec<u8> {
    let place = arguments.iter().position(|&argument| argument == "--json").map(|place| place + 1);
    let file = place.and_then(|place| arguments.get(place));
    file.and_then(|file| std::fs::read(file).ok()).unwrap_or_default()
}

/// The answer behind hints.
fn beginning_with_schema(hints: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8_lossy(&hints).into_owned();
    text.find("{\n  \"schema\"").map(|begin| text.as_bytes()[begin..].to_vec()).unwrap_or_default()
}
