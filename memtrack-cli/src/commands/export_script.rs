//! `memtrack export-script`: the Python script that writes operator traces.

use crate::Streams;
use crate::args::ExportScriptArgs;
use crate::error::{CliError, Exit};
use crate::output::{check_targets, write_files};
use std::path::Path;

/// The script. It is Python, so that it can look into the profiler of the program that it runs in.
const SCRIPT: &str = include_str!("../export/optrace.py");

/// Prints the script, or writes it to a file.
pub(crate) fn run(args: &ExportScriptArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    match args.output.as_deref().filter(|&target| target != Path::new("-")) {
        None => streams.stdout.write_all(SCRIPT.as_bytes())?,
        Some(target) => {
            check_targets([target], args.force)?;
            write_files(&[(target.to_owned(), SCRIPT.into())])?;
            // A hint; when nobody can read it, the file is there all the same.
            let _ = writeln!(streams.stderr, "wrote {}", target.display());
        }
    }
    Ok(Exit::Fine)
}
