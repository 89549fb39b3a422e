//! What tests of `memtrack run` share: a folder, the mock driver, the command, and what a program's recording must hold.

use crate::{memtrack, mock_cuda};
use memtrack_core::event::{Action, DeviceId};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::recording::{ReadReport, load_from};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder of its own, the mock driver, and the command in it.
pub struct Bench {
    /// Where the command runs.
    pub folder: TempDir,
    /// Where the mock driver is.
    pub driver: TempDir,
}

impl Bench {
    /// A fresh one.
    ///
    /// # Panics
    /// When there is no room for it, or no mock driver.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), driver: mock_cuda::driver_dir() }
    }

    /// `memtrack run`, to be given its arguments.
    pub fn command(&self) -> Command {
        let mut command = mock_cuda::with_driver(memtrack(), self.driver.path());
        command
            .arg("run")
            .current_dir(self.folder.path())
            .env("XDG_CACHE_HOME", self.folder.path().join("cache"));
        command
    }

    /// Runs `memtrack run` with arguments to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().expect("memtrack can be started")
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder's files, without the cache.
    ///
    /// # Panics
    /// When it cannot be listed.
    pub fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).expect("a folder");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.retain(|name| name != "cache");
        names.sort();
        names
    }
}

/// What it said on standard error.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Reads a recording.
///
/// # Panics
/// When there is none.
#[track_caller]
pub fn load(path: &Path) -> (Snapshot, ReadReport) {
    load_from(BufReader::new(File::open(path).expect("it was recorded"))).expect("it can be read")
}

/// Bytes of the live blocks of a device.
pub fn bytes(snapshot: &Snapshot, device: DeviceId) -> u64 {
    snapshot.blocks.iter().filter(|block| block.device == device).map(|block| block.size_bytes).sum()
}

/// How many allocations on a device were recorded.
pub fn allocations(snapshot: &Snapshot, device: DeviceId) -> usize {
    let events = &snapshot.events;
    events.rows_of(device).filter(|&row| events.action[row] == Action::Alloc).count()
}

/// What `cuda_plain`'s `work` leaves: 2 MiB of 6, and pinned memory.
///
/// # Panics
/// When the recording says something else, or is not as `whole` as it should be.
#[track_caller]
pub fn assert_work(path: &Path, whole: bool) {
    let (snapshot, report) = load(path);
    assert_eq!(report.complete, whole, "{}", path.display());
    assert_eq!(bytes(&snapshot, DeviceId(0)), 2 << 20);
    assert_eq!(bytes(&snapshot, DeviceId::PINNED), 1 << 16);
    assert_eq!(allocations(&snapshot, DeviceId(0)), 3);
}
