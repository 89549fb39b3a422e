//! The location of a rank's files, and their replacement: they are written into a hidden folder beside it, which is
//! then exchanged with the earlier one. A rank exists as a whole or not at all, even if the writer is killed; of two
//! writers of one rank the later wins as a whole.
//!
//! The hidden folder is `.rank=N.PID-COUNT.memtrack.tmp`. Engines that search for `rank=*` do not see it, and most
//! that scan the whole data set skip names with a dot in front. DuckDB's `**` does not, so files have temporary names
//! (`….parquet.tmp`) until all are complete.
//!
//! Writers on many machines share nothing but these folders. Whether a rank may be replaced is decided at the moment
//! of the replacement: an empty place can be taken by one writer only, and the others then see its rank.
//!
//! **Why a folder for each rank, and not a file in a folder for each table?** A folder can be exchanged in one step
//! (`renameat2`, by rustix; two renames elsewhere): a killed writer leaves the rank as it was, and all tables of a rank
//! come from one export. Engines read `job=*/rank=*/TABLE.parquet`.

use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// The ending of the names of folders that are being written.
const SUFFIX: &str = ".memtrack.tmp";
/// The ending of the names of their files until all are complete.
const UNFINISHED: &str = ".tmp";
/// The age after which an unfinished folder counts as abandoned.
const STALE: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns the folder of a job in a data set.
pub(crate) fn job_folder(dataset: &Path, job: &str) -> PathBuf {
    dataset.join(format!("job={}", escaped(job)))
}

/// Returns the folder of a rank in a data set: `job=…/rank=…`.
pub fn rank_folder(dataset: &Path, job: &str, rank: u64) -> PathBuf {
    job_folder(dataset, job).join(format!("rank={rank}"))
}

/// Encodes a name for folders, where engines decode it again: all but letters, digits and a few signs is `%` and its
/// two hexadecimal digits.
fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        // A dot may be in a name, but a name of dots alone is another folder, which the `job=` before it prevents.
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            text.push(byte.into());
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The contents of a rank's place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Present {
    /// Nothing.
    Nothing,
    /// A complete rank, and the file that it was made from.
    Rank {
        /// Its path.
        source: String,
    },
    /// Something else, or a part of a rank, with the reason.
    Other(String),
}

impl Present {
    /// Returns the reason why a rank that is made from the file `source` may not take this place, unless it is
    /// forced; none if it may.
    pub fn refusal(&self, source: &str) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Rank { source: own } if own == source => None,
            Self::Rank { source: own } => Some(format!("is from {own}")),
            Self::Other(why) => Some(format!("cannot be added to: {why}")),
        }
    }
}

/// Returns the contents of a rank's place in a data set.
pub fn present(dataset: &Path, job: &str, rank: u64) -> Present {
    at(&rank_folder(dataset, job, rank))
}

fn at(folder: &Path) -> Present {
    let runs = folder.join(crate::RUNS.file_name());
    // Where two folders cannot be exchanged atomically, a rank that is being replaced is missing for a moment.
    for _ in 0..3 {
        if folder.symlink_metadata().is_err() {
            return Present::Nothing;
        }
        if !folder.is_dir() {
            return Present::Other("it is not a folder".into());
        }
        if let Ok(file) = File::open(&runs) {
            return source_of(file);
        }
    }
    Present::Other("it is not a complete rank: it has no runs.parquet".into())
}

/// Returns the source of a rank with this `runs.parquet`.
fn source_of(runs: File) -> Present {
    match SerializedFileReader::new(runs) {
        Err(error) => {
            Present::Other(format!("it is not a complete rank: its runs.parquet cannot be read ({error})"))
        }
        Ok(reader) => {
            let facts = reader.metadata().file_metadata().key_value_metadata();
            let source = facts.and_then(|facts| facts.iter().find(|fact| fact.key == "memtrack.source"));
            match source.and_then(|fact| fact.value.clone()) {
                Some(source) => Present::Rank { source },
                None => Present::Other("its runs.parquet is not memtrack's".into()),
            }
        }
    }
}

/// The reason why a rank was not written.
#[derive(Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// Its place contains a rank from another file, or a damaged one: [the reason](Present::refusal).
    InTheWay(String),
    /// A file cannot be written, or the folder cannot be moved to its place.
    Io(io::Error),
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InTheWay(why) => write!(f, "what is there {why}"),
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

/// A rank's folder that is being written. Dropping it removes the folder.
pub(crate) struct Staging {
    folder: PathBuf,
    target: PathBuf,
}

impl Staging {
    /// Creates one, and removes abandoned ones of the same rank.
    pub(crate) fn begin(dataset: &Path, job: &str, rank: u64) -> io::Result<Self> {
        let target = rank_folder(dataset, job, rank);
        let beside = job_folder(dataset, job);
        fs::create_dir_all(&beside)?;
        let hidden = format!(".rank={rank}.");
        remove_stale(&beside, &hidden);
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            let folder = beside.join(format!("{hidden}{}-{count}{SUFFIX}", std::process::id()));
            match fs::create_dir(&folder) {
                Ok(()) => return Ok(Self { folder, target }),
                // A process of another machine with the same number, or one that died.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Creates one of its files.
    pub(crate) fn create(&self, name: &str) -> io::Result<File> {
        File::create_new(self.folder.join(format!("{name}{UNFINISHED}")))
    }

    /// Returns the bytes of its files.
    pub(crate) fn size_bytes(&self) -> io::Result<u64> {
        self.files()?.iter().map(|file| file.metadata().map(|data| data.len())).sum()
    }

    fn files(&self) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(&self.folder)?.map(|entry| entry.map(|entry| entry.path())).collect()
    }

    /// Moves it to its place, unless `refused` returns a reason why the contents there must stay; returns whether it
    /// replaced something.
    pub(crate) fn commit(self, refused: impl Fn(&Present) -> Option<String>) -> Result<bool, WriteError> {
        for file in self.files()? {
            // This removes only the last ending.
            fs::rename(&file, file.with_extension(""))?;
        }
        // Renaming replaces an empty folder, and nothing else. Another writer may take the place meanwhile, or
        // release it.
        for _ in 0..100 {
            if self.target.symlink_metadata().is_err() {
                if fs::rename(&self.folder, &self.target).is_ok() {
                    return Ok(false);
                }
                continue;
            }
            if let Some(why) = refused(&at(&self.target)) {
                return Err(WriteError::InTheWay(why));
            }
            if exchange(&self.folder, &self.target)? {
                // The earlier contents are in the hidden folder now, which is dropped.
                return Ok(true);
            }
        }
        Ok(fs::rename(&self.folder, &self.target).map(|()| false)?)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // After it took an empty place there is none.
        let _ = remove(&self.folder);
    }
}

/// Exchanges two entries, atomically where the system can do that. False: one of them did not exist.
fn exchange(new: &Path, old: &Path) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, new, CWD, old, RenameFlags::EXCHANGE) {
            Ok(()) => return Ok(true),
            Err(Errno::NOENT) => return Ok(false),
            // Not supported on this file system.
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
        // Unless another writer has put its own there.
        let _ = fs::rename(&aside, old);
        return Err(error);
    }
    fs::rename(&aside, new).map(|()| true)
}

fn remove(path: &Path) -> io::Result<()> {
    if path.symlink_metadata()?.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
}

/// Removes folders of killed writers. Those of other active writers are younger.
fn remove_stale(beside: &Path, hidden: &str) {
    let Ok(entries) = fs::read_dir(beside) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_of_rank = name.starts_with(hidden) && name.contains(SUFFIX);
        let age = entry.metadata().and_then(|data| data.modified());
        let age = age.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        if is_of_rank && age.is_some_and(|age| age > STALE) {
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

    /// Accepts any contents for replacement.
    fn anything(_: &Present) -> Option<String> {
        None
    }

    #[test]
    fn the_second_of_two_files_for_a_place_that_was_empty_at_first_is_refused() {
        let dataset = tempfile::tempdir().unwrap();
        let (first, second) = (stage(dataset.path(), "first"), stage(dataset.path(), "second"));
        let of_another = |there: &Present| there.refusal("second.pickle");
        assert!(!first.commit(of_another).unwrap());
        let Err(WriteError::InTheWay(why)) = second.commit(of_another) else { panic!("it took the place") };
        assert!(why.contains("not a complete rank"), "{why}");
        let folder = rank_folder(dataset.path(), "a b/ü", 3);
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "first");
        assert_eq!(names(folder.parent().unwrap()), ["rank=3"]);
    }

    #[test]
    fn other_files_and_damaged_ranks_are_not_replaced() {
        let rank = Present::Rank { source: "/run/rank3.pickle".into() };
        assert_eq!(rank.refusal("/run/rank3.pickle"), None);
        assert_eq!(rank.refusal("/other/rank3.pickle").unwrap(), "is from /run/rank3.pickle");
        assert!(Present::Other("no".into()).refusal("/run/rank3.pickle").is_some());
        assert_eq!(Present::Nothing.refusal("/run/rank3.pickle"), None);
    }

    #[test]
    fn the_later_of_two_writers_wins_and_leaves_nothing_of_the_other() {
        let dataset = tempfile::tempdir().unwrap();
        let (first, second) = (stage(dataset.path(), "first"), stage(dataset.path(), "second"));
        first.create("only the first has it").unwrap();
        assert!(!first.commit(anything).unwrap());
        let folder = rank_folder(dataset.path(), "a b/ü", 3);
        assert_eq!(names(&folder).len(), 2);
        assert!(second.commit(anything).unwrap());
        assert_eq!(names(&folder), ["file"]);
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "second");
        assert_eq!(names(folder.parent().unwrap()), ["rank=3"]);
        assert_eq!(names(dataset.path()), ["job=a%20b%2F%C3%BC"]);
    }

    #[test]
    fn a_failed_writer_leaves_the_earlier_rank() {
        let dataset = tempfile::tempdir().unwrap();
        stage(dataset.path(), "old").commit(anything).unwrap();
        drop(stage(dataset.path(), "half"));
        let folder = rank_folder(dataset.path(), "a b/ü", 3);
        assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), "old");
        assert_eq!(names(folder.parent().unwrap()), ["rank=3"]);
    }

    #[test]
    fn folders_of_killed_writers_are_removed_by_the_next_after_a_day() {
        let dataset = tempfile::tempdir().unwrap();
        let young = stage(dataset.path(), "young");
        let old = stage(dataset.path(), "old");
        let day = File::open(&old.folder).unwrap();
        day.set_modified(SystemTime::now() - STALE - STALE).unwrap();
        stage(dataset.path(), "new").commit(anything).unwrap();
        assert!(young.folder.exists() && !old.folder.exists());
    }
}
