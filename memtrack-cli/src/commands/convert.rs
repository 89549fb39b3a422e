//! `memtrack convert`: a snapshot in another format.

use crate::Streams;
use crate::args::ConvertArgs;
use crate::error::{CliError, Exit};
use crate::load::load;
use crate::output::check_targets;
use memtrack_core::snapshot::pytorch::format_of;
use memtrack_core::stack::symbols::Symbolizer;

/// Loads the snapshot and writes it as the output's name says.
pub(crate) fn run(args: &ConvertArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    format_of(&args.output).map_err(|why| {
        CliError::Usage(format!("cannot tell what to write to {}: {why}", args.output.display()))
    })?;
    check_targets([args.output.as_path()], args.force)?;
    let loaded = load(&args.file, args.input, streams)?;
    let symbols = Symbolizer::of(&loaded.snapshot);
    let mut symbols = args.symbols.iter().fold(symbols, |symbols, folder| symbols.with_folder(folder));
    let written = loaded.snapshot.save_as(&args.output, &mut symbols);
    written.map_err(|error| CliError::output(&args.output, error))?;
    // A hint; when nobody can read it, the file is there all the same.
    let _ = writeln!(streams.stderr, "wrote {}", args.output.display());
    Ok(Exit::Fine)
}
