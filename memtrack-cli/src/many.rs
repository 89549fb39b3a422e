//! Treats many files as one input. Selects them by pattern or folder, and reads as many at a time as there are cores; each thread
//! drops a file before it reads the next.
//!
//! **Why the `glob` crate?** It is maintained by the rust-lang organisation (MIT or Apache-2.0), has no dependencies, and does
//! what shell users expect of a quoted pattern. The more general `globset` and `wax` pull in `regex`.

use crate::args::{PatternsArgs, RulesArgs};
use crate::error::CliError;
use crate::ownership::read_rules;
use crate::progress::Progress;
use memtrack_core::analysis::ranks::DigestOptions;
use memtrack_core::analysis::top::By;
use memtrack_core::snapshot::Format;
use memtrack_core::snapshot::pytorch::{Compression, format_of};
use memtrack_core::snapshot::recording::older_parts;
use std::collections::HashSet;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// The formats of the files to select in a folder by suffix. JSON is left out, because folders often contain unrelated JSON
/// files.
const FORMATS: [Format; 2] = [Format::Pickle, Format::Recording];
/// The maximum depth of nested folders. It is limited because links may form a cycle.
const MAX_DEPTH: usize = 32;
/// The stack size of a thread in bytes, which is the usual size for a main thread.
const STACK_BYTES: usize = 8 << 20;

/// Returns the selected files without duplicates, in the order of the arguments. The files from one pattern or folder are sorted
/// by name.
///
/// # Errors
/// Returns a usage error for a pattern that is invalid or matches nothing, or for a folder without snapshots and recordings;
/// returns an input error for a file or folder that does not exist.
pub(crate) fn expand(paths: &[PathBuf], recursive: bool) -> Result<Vec<PathBuf>, CliError> {
    let mut files = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            return Err(CliError::Usage("standard input is one file, and several are needed".into()));
        }
        // An existing file takes precedence, even if its name contains wildcards.
        if path.symlink_metadata().is_ok() {
            add(path, recursive, &mut files)?;
            continue;
        }
        let text = path.to_str().filter(|text| text.contains(['*', '?', '[']));
        let Some(pattern) = text else {
            return Err(CliError::input(path, "there is no such file or folder"));
        };
        let found = glob::glob(pattern).map_err(|error| {
            CliError::Usage(format!("{pattern} is not a valid file pattern: {}", error.msg))
        })?;
        let mut any = false;
        for found in found {
            let found = found.map_err(|error| CliError::input(error.path(), error.error()))?;
            any = true;
            add(&found, recursive, &mut files)?;
        }
        if !any {
            return Err(CliError::Usage(format!("{pattern} matches no file")));
        }
    }
    let mut seen = HashSet::new();
    files.retain(|file| seen.insert(file.clone()));
    Ok(files)
}

/// Adds a file, or the snapshots and recordings in a folder.
fn add(path: &Path, recursive: bool, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut found = Vec::new();
    search_folder(path, if recursive { MAX_DEPTH } else { 0 }, &mut found)?;
    if found.is_empty() {
        let deeper = if recursive { "" } else { "; --recursive searches the folders in it" };
        let suffixes: Vec<String> =
            FORMATS.iter().flat_map(|format| format.suffixes()).map(|suffix| format!(".{suffix}")).collect();
        let (last, others) = suffixes.split_last().expect("each format has a suffix");
        return Err(CliError::Usage(format!(
            "{} has no file that ends with {} or {last}, or with .gz or .zst after it{deeper}",
            path.display(),
            others.join(", ")
        )));
    }
    found.sort();
    // A recording that consists of several files is opened through the last one, which leads to the others.
    let older: HashSet<PathBuf> =
        found.iter().filter(|file| is_recording(file)).flat_map(|file| older_parts(file)).collect();
    found.retain(|file| !older.contains(file));
    files.extend(found);
    Ok(())
}

fn search_folder(folder: &Path, deep: usize, files: &mut Vec<PathBuf>) -> Result<(), CliError> {
    let entries = folder.read_dir().map_err(|error| CliError::input(folder, error))?;
    for entry in entries {
        let path = entry.map_err(|error| CliError::input(folder, error))?.path();
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if is_hidden {
            continue;
        }
        if path.is_dir() {
            if deep > 0 {
                search_folder(&path, deep - 1, files)?;
            }
        } else if is_selected(&path) {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns whether a file is named like a snapshot or recording.
fn is_selected(path: &Path) -> bool {
    format_of(path).is_ok_and(|(format, _)| FORMATS.contains(&format))
}

/// Returns whether a file is named like an uncompressed recording.
fn is_recording(path: &Path) -> bool {
    format_of(path) == Ok((Format::Recording, Compression::None))
}

/// Calls `read` for each file on `jobs` threads, or by default on as many as there are cores, and returns the results in the
/// order of the files. On a terminal, a bar shows the progress.
pub(crate) fn read_all<T: Send>(
    files: &[PathBuf],
    jobs: Option<NonZero<usize>>,
    read: impl Fn(&Path) -> T + Sync,
) -> Vec<T> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    crate::c_heap::return_large_blocks_to_the_system();
    let cores = || thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
    let threads = jobs.unwrap_or_else(cores).get().min(files.len());
    let next = AtomicUsize::new(0);
    let mut answers: Vec<Option<T>> = files.iter().map(|_| None).collect();
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let (next, read) = (&next, &read);
        for _ in 0..threads {
            let sender = sender.clone();
            let work = move || {
                while let Some((at, file)) = claim_next(next, files) {
                    if sender.send((at, read(file))).is_err() {
                        break;
                    }
                }
            };
            // If a thread cannot be started, the others do its work. If none can be, the current thread does all of it.
            let _ = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        }
        drop(sender);
        let template = "reading {wide_bar} {pos} of {len} files  {eta} left";
        let mut progress = Progress::new(template, Some(files.len() as u64));
        let own = std::iter::from_fn(|| claim_next(next, files).map(|(at, file)| (at, read(file))));
        for (done, (at, answer)) in (1..).zip(receiver.into_iter().chain(own)) {
            answers[at] = Some(answer);
            if Progress::is_watched() {
                progress.show(done);
            }
        }
    });
    answers.into_iter().flatten().collect()
}

/// Returns the options for reducing each of many files to its sums.
pub(crate) fn digest_options(
    by: By,
    per: Option<&str>,
    rules: &RulesArgs,
    patterns: &PatternsArgs,
) -> Result<DigestOptions, CliError> {
    let options = DigestOptions::new().by(by).rules(read_rules(rules)?).patterns(patterns.patterns());
    Ok(match per {
        Some(name) => options.per(name),
        None => options,
    })
}

/// Claims the next file that no thread has claimed yet, and returns it with its index.
fn claim_next<'a>(next: &AtomicUsize, files: &'a [PathBuf]) -> Option<(usize, &'a Path)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    files.get(at).map(|file| (at, &**file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_folder_are_selected_by_name() {
        for (name, meant) in [
            ("rank0.pickle", true),
            ("rank0.PKL", true),
            ("rank0.memtrack", true),
            ("rank0.pickle.gz", true),
            ("rank0.memtrack.zst", true),
            ("rank0.pickle.zstd", true),
            ("rank0.json", false),
            ("notes.gz", false),
            ("pickle", false),
            ("rank0.pickle.bz2", false),
        ] {
            assert_eq!(is_selected(Path::new(name)), meant, "{name}");
        }
    }

    #[test]
    fn results_are_in_file_order() {
        let files: Vec<PathBuf> = (0..100).map(|number| PathBuf::from(number.to_string())).collect();
        for jobs in [None, NonZero::new(1), NonZero::new(7), NonZero::new(1000)] {
            let names = read_all(&files, jobs, |file| file.to_path_buf());
            assert_eq!(names, files);
        }
        assert!(read_all(&[], None, |_| ()).is_empty());
    }
}
