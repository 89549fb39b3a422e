//! `memtrack convert`: a snapshot in another format.

use crate::Streams;
use crate::answers;
use crate::args::ConvertArgs;
use crate::error::{CliError, Exit};
use crate::load::load;
use crate::output::check_targets;
use crate::report::mention_samples;
use crate::scrub;
use memtrack_core::ReplacingFile;
use memtrack_core::snapshot::Format;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::{Compression, format_of, formats_listed};
use memtrack_core::stack::symbols::Symbolizer;
use std::io;
use std::path::Path;

/// Loads the snapshot and writes it as the output's name or `--to` says.
pub(crate) fn run(args: &ConvertArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let (format, compression) = format_asked(args)?;
    let to_stdout = args.output == Path::new("-");
    if !to_stdout {
        check_targets([args.output.as_path()], args.force)?;
    }
    let loaded = load(&args.file, args.input, streams)?;
    let loaded = scrub::loaded(loaded, &args.scrub, &args.symbols, streams);
    let symbols = Symbolizer::of(&loaded.snapshot);
    let mut symbols = args.symbols.iter().fold(symbols, |symbols, folder| symbols.with_folder(folder));
    if to_stdout {
        let written = loaded.snapshot.write_as(&mut *streams.stdout, format, compression, &mut symbols);
        written.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => CliError::output(&args.output, error),
            _ => error.into(),
        })?;
        answers::CONVERT.tell_written(&args.output, &name_of(format, compression), args.written, streams)?;
        return Ok(Exit::Fine);
    }
    let written = ReplacingFile::create(&args.output).and_then(|mut file| {
        loaded.snapshot.write_as(&mut file, format, compression, &mut symbols)?;
        file.commit()
    });
    written.map_err(|error| CliError::output(&args.output, error))?;
    answers::CONVERT.tell_written(&args.output, &name_of(format, compression), args.written, streams)?;
    if format != Format::Recording {
        mention_samples(&loaded.snapshot, streams);
    }
    Ok(Exit::Fine)
}

/// What files in that format end with.
fn name_of(format: Format, compression: Compression) -> String {
    let format = match format {
        Format::Recording => "memtrack",
        Format::Pickle => "pickle",
        Format::Json => "json",
    };
    let packed = match compression {
        Compression::None => "",
        Compression::Gzip => ".gz",
        Compression::Zstd => ".zst",
    };
    format!("{format}{packed}")
}

/// What to write.
fn format_asked(args: &ConvertArgs) -> Result<(Format, Compression), CliError> {
    if let Some(to) = &args.to {
        let name = format!("output.{}", to.trim_start_matches('.'));
        return format_of(Path::new(&name)).map_err(|_| {
            CliError::Usage(format!(
                "--to {to}: use {}, followed by .gz or .zst to compress it",
                formats_listed()
            ))
        });
    }
    if args.output == Path::new("-") {
        return Err(CliError::Usage(
            "choose the format for standard output with --to, such as --to json".into(),
        ));
    }
    format_of(&args.output)
        .map_err(|why| CliError::Usage(format!("cannot tell the format of {}: {why}", args.output.display())))
}
