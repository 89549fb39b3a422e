//! Which of the snapshots of `memtrack run` stay: a program that lives on may run out of memory again and again, and a
//! script may ask for a snapshot each minute for a month. Of each kind the first stays, which the later ones are compared
//! with, and of those the newest; `dumps` asks. What took a snapshot's name meanwhile is never removed.
//!
//! **Why has `SIGUSR2` no limit on its share of the time?** The sender decides how often. The numbering continues when
//! old snapshots are removed, because a file was announced by its name.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How many snapshots of a kind a process keeps.
pub(super) const MOST: usize = 8;

/// The snapshots of a kind that this process has to keep.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The oldest first; no more than [`MOST`] of them.
    snapshots: Vec<Snapshot>,
}

/// A snapshot that was written.
#[derive(Debug)]
struct Snapshot {
    number: u32,
    path: PathBuf,
    identity: Identity,
}

/// What tells a file from others that may be at its path later. Device and inode alone would not do: when a file is removed,
/// the next one is often given its inode.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size_bytes: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl Identity {
    /// That of the file at `path`; `None` where there is none. What a link leads to is not the file at its path.
    fn of(path: &Path) -> Option<Self> {
        let data = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
        let modified = (data.mtime(), data.mtime_nsec());
        Some(Self { device: data.dev(), inode: data.ino(), size_bytes: data.len(), modified })
    }
}

impl Kept {
    /// The snapshot with that number was written; the one that there is no room for is removed. Returns what is to be told of
    /// it, to be appended to a message.
    pub(super) fn add(&mut self, number: u32, path: PathBuf) -> Option<String> {
        // Whoever took it away already has it.
        let identity = Identity::of(&path)?;
        self.snapshots.push(Snapshot { number, path, identity });
        let Snapshot { number, path, identity } =
            (self.snapshots.len() > MOST).then(|| self.snapshots.remove(1))?;
        if path.symlink_metadata().is_err() {
            return None;
        }
        Some(if Identity::of(&path) != Some(identity) {
            format!("; {number} is not as it was written, and stays")
        } else if let Err(error) = fs::remove_file(&path) {
            format!("; {number} cannot be removed: {error}")
        } else {
            format!("; {number} is gone: the first is kept, and the newest {}", MOST - 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder in which snapshots are written.
    struct Written {
        folder: tempfile::TempDir,
        kept: Kept,
    }

    impl Written {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), kept: Kept::default() }
        }

        fn path(&self, number: u32) -> PathBuf {
            self.folder.path().join(number.to_string())
        }

        /// Writes the snapshots with these numbers; what was told of them.
        fn write(&mut self, numbers: std::ops::RangeInclusive<u32>) -> Vec<String> {
            let write = |number| {
                let path = self.path(number);
                fs::write(&path, "ours").unwrap();
                self.kept.add(number, path)
            };
            numbers.filter_map(write).collect()
        }

        fn numbers(&self) -> Vec<u32> {
            let entries = fs::read_dir(self.folder.path()).unwrap();
            let number = |entry: fs::DirEntry| entry.file_name().to_str().unwrap().parse().unwrap();
            let mut numbers: Vec<u32> = entries.map(|entry| number(entry.unwrap())).collect();
            numbers.sort_unstable();
            numbers
        }
    }

    #[test]
    fn the_first_and_the_newest_stay() {
        let mut written = Written::new();
        let told = written.write(1..=12);
        assert_eq!(written.numbers(), [1, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(told.len(), 4);
        assert_eq!(told[3], "; 5 is gone: the first is kept, and the newest 7");
        assert_eq!(written.kept.snapshots.len(), MOST);
    }

    #[test]
    fn what_took_a_name_meanwhile_stays() {
        let mut written = Written::new();
        written.write(1..=8);
        let other = written.folder.path().join("100");
        // Moved to the name, written into the file that is there, linked to, and a folder.
        fs::write(&other, "another's").unwrap();
        fs::rename(&other, written.path(2)).unwrap();
        fs::write(written.path(3), "another's").unwrap();
        fs::remove_file(written.path(4)).unwrap();
        symlink(written.path(8), written.path(4)).unwrap();
        fs::remove_file(written.path(5)).unwrap();
        fs::create_dir(written.path(5)).unwrap();
        let told = written.write(9..=13);
        assert_eq!(written.numbers(), [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(told[0], "; 2 is not as it was written, and stays");
        assert_eq!(told.iter().filter(|told| told.ends_with("and stays")).count(), 4, "{told:?}");
    }

    #[test]
    fn one_that_was_taken_away_is_not_missed() {
        let mut written = Written::new();
        written.write(1..=8);
        fs::remove_file(written.path(2)).unwrap();
        assert_eq!(written.write(9..=9), [""; 0]);
        assert_eq!(written.kept.add(10, written.path(10)), None, "it is not there");
        assert_eq!(written.numbers(), [1, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn a_file_with_the_inode_of_a_snapshot_is_not_the_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1");
        fs::write(&path, "ours").unwrap();
        let before = Identity::of(&path).unwrap();
        // The same file, and so the same inode.
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_ne!(Identity::of(&path).unwrap(), before);
    }
}
