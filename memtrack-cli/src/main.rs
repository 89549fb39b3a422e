//! The `memtrack` command: wires the process to [`memtrack_cli::run`] and nothing else.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut stdout = BufWriter::new(io::stdout().lock());
    let code = memtrack_cli::run(
        std::env::args_os(),
        &mut io::stdin().lock(),
        &mut stdout,
        &mut io::stderr().lock(),
    );
    // `run` has flushed. Data that is still buffered belongs to a pipe that was closed, and dropping it must
    // stay quiet.
    let _ = stdout.flush();
    ExitCode::from(code)
}
