//! Locates a rank's files and replaces them atomically. The files are written into a hidden folder next to the rank's
//! folder, and the two folders are then exchanged. A rank is either complete or does not exist, even if the writer is
//! killed. If two writers write the same rank, the files of the later writer remain.
//!
//! The hidden folder is `.rank=N.PID-COUNT.memtrack.tmp`. Engines that search for `rank=*` do not find it, and most
//! engines that scan the whole data set skip names that start with a dot. DuckDB's `**` does not, so the files have
//! temporary names (`….parquet.tmp`) until all of them are complete.
//!
//! Writers on many machines share nothing but these folders. A writer decides whether it may replace a rank only when it
//! replaces the rank. If a rank does not exist yet, only one writer can create it, and the other writers then find it.
//!
//! **Why a folder for each rank, and not a folder for each table?** A folder can be exchanged in one step (with
//! `renameat2` through rustix, or with two renames on other systems). If a writer is killed, the rank therefore stays
//! as it was, and all tables of a rank come from the same export. Engines read `job=*/rank=*/TABLE.parquet`.

use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// The suffix that folder names have while the folders are being written.
const FOLDER_SUFFIX: &str = ".memtrack.tmp";
/// The suffix that file names in such a folder have until all of the files are complete.
const FILE_SUFFIX: &str = ".tmp";
/// The age after which an unfinished folder counts as abandoned.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns a job's folder in a data set.
pub(crate) fn job_folder(dataset: &Path, job: &str) -> PathBuf {
    dataset.join(format!("job={}", percent_encode(job)))
}

/// Returns a rank's folder in a data set, which is `job=…/rank=…`.
pub fn rank_folder(dataset: &Path, job: &str, rank: u64) -> PathBuf {
    job_folder(dataset, job).join(format!("rank={rank}"))
}

/// Percent-encodes a name for use in a folder name, from which engines decode it. Every byte except ASCII letters,
/// digits, `-`, `_` and `.` becomes `%` and two hexadecimal digits.
fn percent_encode(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        // Dots are safe, because the prefix `job=` ensures that no folder is named `.` or `..`.
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            text.push(byte.into());
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The contents of a rank's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RankContents {
    /// The folder does not exist.
    Nothing,
    /// A complete rank.
    Rank {
        /// The path of the file from which the rank was made.
        source: String,
    },
    /// Something else, or an incomplete rank, with the reason.
    Other(String),
}

impl RankContents {
    /// Returns the reason why a rank made from the file `source` must not replace these contents without
    /// [`force`](crate::WriteOptions::force), or `None` if it may replace them.
    pub fn refusal(&self, source: &str) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Rank { source: own } if own == source => None,
            Self::Rank { source: own } => Some(format!("is from {own}")),
            Self::Other(why) => Some(format!("cannot be added to: {why}")),
        }
    }
}

/// Returns the contents of a rank's folder in a data set.
pub fn rank_contents(dataset: &Path, job: &str, rank: u64) -> RankContents {
    read_contents(&rank_folder(dataset, job, rank))
}

fn read_contents(folder: &Path) -> RankContents {
    let runs = folder.join(crate::RUNS.file_name());
    // If two folders cannot be exchanged atomically, a rank that is being replaced is missing for a moment.
    for _ in 0..3 {
        if folder.symlink_metadata().is_err() {
            return RankContents::Nothing;
        }
        if !folder.is_dir() {
            return RankContents::Other("it is not a folder".into());
        }
        if let Ok(file) = File::open(&runs) {
            return read_source(file);
        }
    }
    RankContents::Other("it is not a complete rank: it has no runs.parquet".into())
}

/// Returns the contents of a folder with this `runs.parquet`: a rank with its source, or the reason why it is not a
/// rank.
fn read_source(runs: File) -> RankContents {
    match SerializedFileReader::new(runs) {
        Err(error) => RankContents::Other(format!(
            "it is not a complete rank: its runs.parquet cannot be read ({error})"
        )),
        Ok(reader) => {
            let facts = reader.metadata().file_metadata().key_value_metadata();
            let source = facts.and_then(|facts| facts.iter().find(|fact| fact.key == "memtrack.source"));
            match source.and_then(|fact| fact.value.clone()) {
                Some(source) => RankContents::Rank { source },
                None => RankContents::Other("its runs.parquet is not memtrack's".into()),
            }
        }
    }
}

/// The reason why a rank was not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The rank's folder contains a rank from another file, or something else. The text is [the
    /// reason](RankContents::refusal).
    Occupied(String),
    /// A file cannot be written, or the folder cannot be moved to its place.
    Io(io::Error),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Occupied(why) => write!(f, "what is there {why}"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WriteError {}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The hidden folder in which a rank is being written. Dropping the value removes the folder.
pub(crate) struct Staging {
    folder: PathBuf,
    target: PathBuf,
}

impl Staging {
    /// Creates the hidden folder, and removes abandoned folders for the same rank.
    pub(crate) fn begin(dataset: &Path, job: &str, rank: u64) -> io::Result<Self> {
        let target = rank_folder(dataset, job, rank);
        let parent = job_folder(dataset, job);
        fs::create_dir_all(&parent)?;
        let hidden = format!(".rank={rank}.");
        remove_abandoned(&parent, &hidden);
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            let folder = parent.join(format!("{hidden}{}-{count}{FOLDER_SUFFIX}", std::process::id()));
            match fs::create_dir(&folder) {
                Ok(()) => return Ok(Self { folder, target }),
                // A process on another machine has the same pid, or a process that has ended had it.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates a file in the folder.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        File::create_new(self.folder.join(format!("{name}{FILE_SUFFIX}")))
    }

    /// Returns the total size of the files in bytes.
    pub(crate) fn size_bytes(&self) -> io::Result<u64> {
        self.list_files()?.iter().map(|file| file.metadata().map(|data| data.len())).sum()
    }

    fn list_files(&self) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(&self.folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
    }

    /// Moves the folder to its final place, unless `refused` returns a reason why the existing contents must stay.
    /// Returns whether earlier contents were replaced.
    pub(crate) fn commit(
        self,
        refused: impl Fn(&RankContents) -> Option<String>,
    ) -> Result<bool, WriteError> {
        for file in self.list_files()? {
            // This removes only the last suffix.
            fs::rename(&file, file.with_extension(""))?;
        }
        // A rename replaces only an empty folder. Another writer may create or remove the target between these calls, so
        // failures are retried.
        for _ in 0..100 {
            if self.target.symlink_metadata().is_err() {
                if fs::rename(&self.folder, &self.target).is_ok() {
                    return Ok(false);
                }
                continue;
            }
            if let Some(why) = refused(&read_contents(&self.target)) {
                return Err(WriteError::Occupied(why));
            }
            if exchange(&self.folder, &self.target)? {
                // The hidden folder now has the earlier contents, and it is removed when `self` is dropped.
                return Ok(true);
            }
        }
        Ok(fs::rename(&self.folder, &self.target).map(|()| false)?)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // If the folder was renamed, it no longer exists under this path.
        let _ = remove(&self.folder);
    }
}

/// Exchanges two folders or files, atomically if the system supports it. Returns false if one of them does not exist.
fn exchange(new: &Path, old: &Path) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
            Ok(()) => return Ok(true),
            Err(Errno::NOENT) => return Ok(false),
            // This file system does not support the exchange.
            Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut aside = new.as_os_str().to_owned();
    aside.push(".old");
    let aside = PathBuf::from(aside);
    match fs::rename(old, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        moved => moved?,
    }
    if let Err(error) = fs::rename(new, old) {
        // This fails if another writer has created a new folder there.
        let _ = fs::rename(&aside, old);
        return Err(error);
    }
    fs::rename(&aside, new).map(|()| true)
}

fn remove(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Removes folders left by killed writers. The folders of active writers are younger than the limit.
fn remove_abandoned(parent: &Path, hidden: &str) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_of_rank = name.starts_with(hidden) && name.contains(FOLDER_SUFFIX);
        let age = entry.metadata().and_then(|data| data.modified());
        let age = age.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        if is_of_rank && age.is_some_and(|age| age > ABANDONED_AFTER) {
            let _ = remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn stage(dataset: &Path, content: &str) -> Staging {
        let staging = Staging::begin(dataset, "a b/ü", 3).unwrap();
        staging.create("file").unwrap().write_all(content.as_bytes()).unwrap();
        staging
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    /// Allows any contents to be replaced.
    fn accept_all(_: &RankContents) -> Option<String> {
        None
    }

    #[test]
    fn second_file_for_same_new_rank_is_refused() {
        let dataset = tempfile::tempdir().unwrap();
        let (first, second) = (stage(dataset.path(), "first"), stage(dataset.path(), "second"));
        let of_another = |there: &RankContents| there.refusal("second.pickle");
        assert!(!first.commit(of_another).unwrap());
        let Err(WriteError::Occupied(why)) = second.commit(of_another) else { panic!("it took the place") };
        assert!(why.contains("not a complete rank"), "{why}");
        let folder = rank_folder(dataset.path(), "a b/ü", 3);
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "first");
        assert_eq!(names(folder.parent().unwrap()), ["rank=3"]);
    }

    #[test]
    fn other_files_and_damaged_ranks_are_not_replaced() {
        let rank = RankContents::Rank { source: "/run/rank3.pickle".into() };
        assert_eq!(rank.refusal("/run/rank3.pickle"), None);
        assert_eq!(rank.refusal("/other/rank3.pickle").unwrap(), "is from /run/rank3.pickle");
        assert!(RankContents::Other("no".into()).refusal("/run/rank3.pickle").is_some());
        assert_eq!(RankContents::Nothing.refusal("/run/rank3.pickle"), None);
    }

    #[test]
    fn later_of_two_writers_replaces_all_files() {
        let dataset = tempfile::tempdir().unwrap();
        let (first, second) = (stage(dataset.path(), "first"), stage(dataset.path(), "second"));
        first.create("only the first has it").unwrap();
        assert!(!first.commit(accept_all).unwrap());
        let folder = rank_folder(dataset.path(), "a b/ü", 3);
        assert_eq!(names(&folder).len(), 2);
        assert!(second.commit(accept_all).unwrap());
        assert_eq!(names(&folder), ["file"]);
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "second");
        assert_eq!(names(folder.parent().unwrap()), ["rank=3"]);
        assert_eq!(names(dataset.path()), ["job=a%20b%2F%C3%BC"]);
    }

    #[test]
    fn failed_writer_leaves_earlier_rank() {
        let dataset = tempfile::tempdir().unwrap();
        stage(dataset.path(), "old").commit(accept_all).unwrap();
        drop(stage(dataset.path(), "half"));
        let folder = rank_folder(dataset.path(), "a b/ü", 3);
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "old");
        assert_eq!(names(folder.parent().unwrap()), ["rank=3"]);
    }

    #[test]
    fn abandoned_folders_are_removed_after_one_day() {
        let dataset = tempfile::tempdir().unwrap();
        let young = stage(dataset.path(), "young");
        let old = stage(dataset.path(), "old");
        let day = File::open(&old.folder).unwrap();
        day.set_modified(SystemTime::now() - ABANDONED_AFTER - ABANDONED_AFTER).unwrap();
        stage(dataset.path(), "new").commit(accept_all).unwrap();
        assert!(young.folder.exists() && !old.folder.exists());
    }
}
