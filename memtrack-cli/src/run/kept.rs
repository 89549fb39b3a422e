//! Decides which snapshots of `memtrack run` are kept: a program may run out of memory again and again, and a script
//! may request a snapshot each minute for a month. The first snapshot of each kind is kept, for comparison with later
//! ones, and the newest of the others. A file that has replaced a snapshot under the same name is never removed.
//!
//! **Why has `SIGUSR2` no limit on its share of the time?** The sender of the signal decides how often it is sent.
//!
//! **Why are the numbers of removed snapshots not reused?** Messages have announced the files by their names.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The maximum number of snapshots of each kind that are kept per process.
pub(super) const MAX_SNAPSHOTS: usize = 8;

/// The snapshots of one kind that are kept for a process.
#[derive(Debug, Default)]
pub(super) struct KeptSnapshots {
    /// The snapshots, the oldest first; at most [`MAX_SNAPSHOTS`].
    snapshots: Vec<Snapshot>,
}

/// A snapshot that was written.
#[derive(Debug)]
struct Snapshot {
    number: u32,
    path: PathBuf,
    identity: Identity,
}

/// The identity of a file, to distinguish it from other files that may have its path later. Device and inode alone are
/// not enough: when a file is removed, the next new file often receives its inode.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size_bytes: u64,
    /// The time of the last modification: seconds and nanoseconds.
    modified: (i64, i64),
}

impl Identity {
    /// Returns the identity of the file at `path`, or `None` if there is no regular file. A symbolic link is not
    /// followed.
    fn of(path: &Path) -> Option<Self> {
        let data = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
        let modified = (data.mtime(), data.mtime_nsec());
        Some(Self { device: data.dev(), inode: data.ino(), size_bytes: data.len(), modified })
    }
}

impl KeptSnapshots {
    /// Adds a snapshot that was written, and removes the second oldest if there are too many. Returns a note about the
    /// removed snapshot, to be appended to a message.
    pub(super) fn add(&mut self, number: u32, path: PathBuf) -> Option<String> {
        // A file that the user has moved is no longer memtrack's to remove.
        let identity = Identity::of(&path)?;
        self.snapshots.push(Snapshot { number, path, identity });
        let Snapshot { number, path, identity } =
            (self.snapshots.len() > MAX_SNAPSHOTS).then(|| self.snapshots.remove(1))?;
        if path.symlink_metadata().is_err() {
            return None;
        }
        Some(if Identity::of(&path) != Some(identity) {
            format!("; {number} was changed after it was written, and is kept")
        } else if let Err(error) = fs::remove_file(&path) {
            format!("; {number} cannot be removed: {error}")
        } else {
            format!("; {number} is gone: the first is kept, and the newest {}", MAX_SNAPSHOTS - 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder in which snapshots are written.
    struct SnapshotFolder {
        folder: tempfile::TempDir,
        kept: KeptSnapshots,
    }

    impl SnapshotFolder {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), kept: KeptSnapshots::default() }
        }

        fn path(&self, number: u32) -> PathBuf {
            self.folder.path().join(number.to_string())
        }

        /// Writes the snapshots with these numbers; returns the notes about them.
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
    fn the_first_and_the_newest_snapshots_are_kept() {
        let mut snapshots = SnapshotFolder::new();
        let notes = snapshots.write(1..=12);
        assert_eq!(snapshots.numbers(), [1, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(notes.len(), 4);
        assert_eq!(notes[3], "; 5 is gone: the first is kept, and the newest 7");
        assert_eq!(snapshots.kept.snapshots.len(), MAX_SNAPSHOTS);
    }

    #[test]
    fn another_file_with_the_name_of_a_snapshot_is_not_removed() {
        let mut snapshots = SnapshotFolder::new();
        snapshots.write(1..=8);
        let other = snapshots.folder.path().join("100");
        // Snapshot 2 is replaced by another file, 3 gets other content, 4 becomes a link, and 5 becomes a folder.
        fs::write(&other, "another's").unwrap();
        fs::rename(&other, snapshots.path(2)).unwrap();
        fs::write(snapshots.path(3), "another's").unwrap();
        fs::remove_file(snapshots.path(4)).unwrap();
        symlink(snapshots.path(8), snapshots.path(4)).unwrap();
        fs::remove_file(snapshots.path(5)).unwrap();
        fs::create_dir(snapshots.path(5)).unwrap();
        let notes = snapshots.write(9..=13);
        assert_eq!(snapshots.numbers(), [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(notes[0], "; 2 was changed after it was written, and is kept");
        assert_eq!(notes.iter().filter(|note| note.ends_with("and is kept")).count(), 4, "{notes:?}");
    }

    #[test]
    fn a_snapshot_moved_away_is_ignored() {
        let mut snapshots = SnapshotFolder::new();
        snapshots.write(1..=8);
        fs::remove_file(snapshots.path(2)).unwrap();
        assert_eq!(snapshots.write(9..=9), [""; 0]);
        assert_eq!(snapshots.kept.add(10, snapshots.path(10)), None, "it is not there");
        assert_eq!(snapshots.numbers(), [1, 3, 4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn a_file_with_the_inode_of_a_snapshot_is_not_the_snapshot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1");
        fs::write(&path, "ours").unwrap();
        let before = Identity::of(&path).unwrap();
        // The file keeps its inode and its content, and only its modification time changes.
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        assert_ne!(Identity::of(&path).unwrap(), before);
    }
}
