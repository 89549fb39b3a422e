//! `memtrack timeline`: what memory was for over time, as PyTorch's exports.

use super::optrace;
use crate::Streams;
use crate::args::TimelineArgs;
use crate::error::{CliError, Exit};
use crate::output::{check_targets, write_files};
use flate2::Compression;
use flate2::write::GzEncoder;
use memtrack_core::profile::analysis::Profile;
use memtrack_core::profile::export::{Coalesced, write_raw};
use memtrack_core::profile::optrace_model::DeviceIndex;
use std::io::{self, Write};
use std::path::Path;

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Coalesced,
    Raw,
}

/// What the name of an output asks for, and whether it is compressed.
fn form(output: &Path) -> Result<(Form, bool), CliError> {
    let name = output.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let (plain, packed) = name.strip_suffix(".gz").map_or((&*name, false), |plain| (plain, true));
    let forms = [(".raw.json", Form::Raw), (".json", Form::Coalesced)];
    forms.into_iter().find(|(suffix, _)| plain.ends_with(suffix)).map(|(_, form)| (form, packed)).ok_or_else(
        || {
            CliError::Usage(format!(
                "{}: end the name in .html, .svg, .png, .json, .json.gz, .raw.json.gz or .pickle",
                output.display()
            ))
        },
    )
}

/// Analyses the trace and writes the output.
pub(crate) fn run(args: &TimelineArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let to_stdout = args.output == Path::new("-");
    let (form, packed) = if to_stdout { (Form::Coalesced, false) } else { form(&args.output)? };
    if !to_stdout {
        check_targets([args.output.as_path()], args.force)?;
    }
    let read = optrace::load(&args.trace, streams)?;
    let (profile, _) = optrace::analysed(&args.trace, &read, streams)?;
    let device = optrace::device(&args.trace, &profile)?;
    if to_stdout {
        write(&profile, device, form, &mut *streams.stdout)?;
        writeln!(streams.stdout)?;
        return Ok(Exit::Fine);
    }
    let failed = |error| CliError::output(&args.output, error);
    let mut content = Vec::new();
    write(&profile, device, form, &mut content).map_err(failed)?;
    if packed {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        content = gzip.write_all(&content).and_then(|()| gzip.finish()).map_err(failed)?;
    }
    write_files(&[(args.output.clone(), content)])?;
    // A hint; when nobody can read it, the file is there all the same.
    let _ = writeln!(streams.stderr, "wrote {}", args.output.display());
    Ok(Exit::Fine)
}

fn write(profile: &Profile<'_>, device: DeviceIndex, form: Form, out: impl Write) -> io::Result<()> {
    match form {
        Form::Coalesced => Coalesced::of(profile, device).write(out),
        Form::Raw => write_raw(profile, device, out),
    }
}
