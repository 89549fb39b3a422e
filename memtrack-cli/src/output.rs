//! Writes a command's output files, and reports what was written. No file is replaced without `--force`, and none is left half
//! written. All of a command's targets are checked before the first is written, and all are written before the first appears under
//! its name.

use crate::Streams;
use crate::answers::Answer;
use crate::args::WrittenArgs;
use crate::error::CliError;
use memtrack_core::__ReplacingFile as ReplacingFile;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Rejects targets that exist, unless `force` is set.
///
/// # Errors
/// Returns a usage error that names the first target that exists.
pub(crate) fn check_targets<'a>(
    targets: impl IntoIterator<Item = &'a Path>,
    force: bool,
) -> Result<(), CliError> {
    for target in targets {
        // A dangling link counts as existing, because writing through the link would be surprising.
        if !force && target.symlink_metadata().is_ok() {
            return Err(CliError::Usage(format!(
                "{} exists: add --force to replace it, or choose another name",
                target.display()
            )));
        }
    }
    Ok(())
}

/// Checks that a folder to write to exists or can be created.
///
/// # Errors
/// Returns a usage error if there is a file at the path.
pub(crate) fn check_folder(folder: &Path) -> Result<(), CliError> {
    match folder.symlink_metadata().is_ok() && !folder.is_dir() {
        true => Err(CliError::Usage(format!("{} is not a folder: choose another name", folder.display()))),
        false => Ok(()),
    }
}

/// Rejects an output that exists, unless `force` is set or it is `-`, which is standard output.
///
/// # Errors
/// Returns a usage error that names the file.
pub(crate) fn check_output(output: &Path, force: bool) -> Result<(), CliError> {
    check_targets(Some(output).filter(|&output| output != Path::new("-")), force)
}

/// Calls `write` with a writer for `output`, which is standard output if it is `-`.
///
/// # Errors
/// Fails if the output cannot be written. In that case an existing file is left unchanged.
pub(crate) fn write_output(
    output: &Path,
    streams: &mut Streams<'_>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), CliError> {
    if output != Path::new("-") {
        return write_file(output, write);
    }
    write(&mut *streams.stdout).map_err(|error| match error.kind() {
        // The format cannot hold the data.
        io::ErrorKind::InvalidInput => CliError::output(output, error),
        _ => error.into(),
    })
}

/// Calls `write` with a writer for a file.
///
/// # Errors
/// Fails if the file cannot be written. In that case an existing file is left unchanged.
pub(crate) fn write_file(
    target: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), CliError> {
    let written = ReplacingFile::create(target).and_then(|mut file| {
        write(&mut file)?;
        file.commit()
    });
    written.map_err(|error| CliError::output(target, error))
}

/// Writes `files`, each of which is a path with its content.
///
/// # Errors
/// Fails if a file cannot be written. In that case none of `files` appears, unless a rename fails after another has succeeded.
pub(crate) fn write_files(files: &[(PathBuf, Vec<u8>)]) -> Result<(), CliError> {
    let mut written = Vec::with_capacity(files.len());
    for (target, content) in files {
        let file = ReplacingFile::create(target).and_then(|mut file| file.write_all(content).map(|()| file));
        written.push((target, file.map_err(|error| CliError::output(target, error))?));
    }
    for (target, file) in written {
        file.commit().map_err(|error| CliError::output(target, error))?;
    }
    Ok(())
}

/// Reports a file that was written on standard error.
pub(crate) fn mention_written(target: &Path, streams: &mut Streams<'_>) {
    streams.note(format_args!("wrote {}", target.display()));
}

/// A file that was written.
#[derive(Serialize, JsonSchema)]
pub(crate) struct WrittenAnswer {
    /// The file's path; null for standard output.
    pub(crate) path: Option<String>,
    /// The file's format, as a file name suffix.
    pub(crate) format: String,
    /// The file's size in bytes; null for standard output.
    pub(crate) size_bytes: Option<u64>,
}

impl Answer<WrittenAnswer> {
    /// Reports the file that was written, as JSON if requested. The JSON goes to standard output, or to standard error if the
    /// data itself goes to standard output.
    pub(crate) fn report_written(
        &self,
        target: &Path,
        format: &str,
        args: WrittenArgs,
        streams: &mut Streams<'_>,
    ) -> Result<(), CliError> {
        let to_stdout = target == Path::new("-");
        if !args.json {
            if !to_stdout {
                mention_written(target, streams);
            }
            return Ok(());
        }
        let answer = WrittenAnswer {
            path: (!to_stdout).then(|| target.to_string_lossy().into_owned()),
            format: format.to_owned(),
            size_bytes: target.metadata().ok().filter(|_| !to_stdout).map(|data| data.len()),
        };
        if to_stdout {
            let _ = self.write(&answer, &mut *streams.stderr);
            return Ok(());
        }
        self.print(&answer, streams)
    }
}
