//! The `memtrack` command: calls [`memtrack_cli::run`] with the process's arguments and streams.

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
    // `run` has already flushed the output. Any data that is still buffered was meant for a closed pipe, and dropping
    // it must not print an error.
    let _ = stdout.flush();
    ExitCode::from(code)
}
