//! Writes a command's output files. No file is replaced without `--force`, and none is left half written. All of a command's
//! targets are checked before the first is written, and all are written before the first appears under its name.

use crate::error::CliError;
use memtrack_core::__ReplacingFile as ReplacingFile;
use std::io::Write;
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
