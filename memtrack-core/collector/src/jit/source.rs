//! The files in which a process lists its generated code, `/tmp/perf-PID.map` and `jit-PID.dump`. A file is only read if it
//! is a regular file of the command's user or of root, as `perf` does it: `/tmp` belongs to everybody, and the content
//! ends up in reports. It must have been written while the process ran, because process ids are used again.
//!
//! **What about containers?** Processes in another namespace of process ids or below another root are not recorded, so the
//! ids and paths are the command's.

use crate::system::effective_user;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The clock of files is this much behind at most.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(20);

/// The files of a process.
#[derive(Debug)]
pub(super) struct Source {
    pid: u32,
    begun: SystemTime,
    /// The dump that the process has mapped.
    dump: Option<PathBuf>,
    /// The process's working directory when the dump was searched for.
    folder: Option<PathBuf>,
}

impl Source {
    /// Creates the description for a process that began at a time, in nanoseconds since the Unix epoch.
    pub(super) fn new(pid: u32, begun_ns: u64) -> Self {
        Self { pid, begun: time_of(begun_ns), dump: None, folder: None }
    }

    /// Returns whether the process's dump was found.
    pub(super) fn has_dump(&self) -> bool {
        self.dump.is_some()
    }

    /// Searches for the dump of the running process. Its path is not fixed; but the process has mapped a page of it as
    /// code, by which `perf` finds it too.
    pub(super) fn search(&mut self) {
        let name = format!("/jit-{}.dump", self.pid);
        let Ok(maps) = fs::read(format!("/proc/{}/maps", self.pid)) else { return };
        let maps = String::from_utf8_lossy(&maps);
        // The line of a mapping: addresses, permissions, offset, device, inode, path.
        let is_code =
            |line: &str| line.split(' ').nth(1).is_some_and(|permissions| permissions.contains('x'));
        let line = maps.lines().find(|line| line.ends_with(&name) && is_code(line));
        self.dump = line.and_then(|line| line.find('/').map(|path| PathBuf::from(&line[path..])));
        self.folder = fs::read_link(format!("/proc/{}/cwd", self.pid)).ok();
    }

    /// Returns the paths at which the process's dump may be.
    pub(super) fn dumps(&self) -> Vec<PathBuf> {
        if let Some(dump) = &self.dump {
            return vec![dump.clone()];
        }
        // The process may have ended before it was searched for.
        let folders = [self.folder.clone().or_else(|| std::env::current_dir().ok()), Some("/tmp".into())];
        let mut paths: Vec<PathBuf> = folders
            .into_iter()
            .flatten()
            .map(|folder| folder.join(format!("jit-{}.dump", self.pid)))
            .collect();
        paths.dedup();
        paths
    }

    /// Returns the path of the process's perf map.
    pub(super) fn perf_map(&self) -> PathBuf {
        format!("/tmp/perf-{}.map", self.pid).into()
    }

    /// Opens a file if it exists and is the process's. Returns its size too.
    ///
    /// # Errors
    /// Fails when the file cannot be opened, is larger than `max_bytes`, is not a regular file of the command's user, or was
    /// written after another program began in the process, at `replaced_ns`.
    pub(super) fn open(
        &self,
        path: &Path,
        max_bytes: u64,
        replaced_ns: Option<u64>,
    ) -> io::Result<Option<(File, u64)>> {
        let name = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let refuse = |reason: &str| Err(name(io::Error::other(reason)));
        // Opening must neither follow a link that another user has made nor wait for the writer of a pipe.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(name)?,
        };
        let data = file.metadata().map_err(name)?;
        if !data.is_file() {
            return refuse("it is not a regular file");
        }
        if ![effective_user(), 0].contains(&data.uid()) {
            return refuse("it belongs to another user");
        }
        let written = data.modified().map_err(name)?;
        if written + CLOCK_TOLERANCE < self.begun {
            // An earlier process had the same id.
            return Ok(None);
        }
        if replaced_ns.is_some_and(|replaced| written >= time_of(replaced)) {
            return refuse("it may be that of the program that was executed later");
        }
        if data.len() > max_bytes {
            return refuse("it is too large");
        }
        Ok(Some((file, data.len())))
    }
}

fn time_of(ns: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn now_ns() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_nanos() as u64
    }

    #[test]
    fn only_new_regular_files_are_opened() {
        let folder = std::env::temp_dir().join(format!("memtrack-jit-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (map, link) = (folder.join("map"), folder.join("link"));
        fs::write(&map, "1000 10 foo\n").expect("it can be written");
        symlink(&map, &link).expect("it can be linked");
        let now = now_ns();
        let source = |begun_ns| Source::new(1, begun_ns);
        let opened = |source: Source, path: &Path, max_bytes, replaced| {
            source.open(path, max_bytes, replaced).map(|file| file.map(|(_, bytes)| bytes))
        };
        assert_eq!(opened(source(now - 1_000_000_000), &map, 100, None).ok(), Some(Some(12)));
        assert_eq!(opened(source(now + 1_000_000_000), &map, 100, None).ok(), Some(None), "an older file");
        assert_eq!(opened(source(0), &folder.join("none"), 100, None).ok(), Some(None));
        for (path, max_bytes, replaced) in
            [(&map, 11, None), (&map, 100, Some(1)), (&link, 100, None), (&folder, 1 << 30, None)]
        {
            let error = opened(source(0), path, max_bytes, replaced).expect_err("it is refused");
            assert!(error.to_string().contains(path.to_str().expect("a plain path")), "{error}");
        }
        fs::remove_dir_all(&folder).expect("it can be removed");
    }

    #[test]
    fn mapped_dump_is_found() {
        let mut source = Source::new(std::process::id(), 0);
        source.search();
        assert!(!source.has_dump());
        assert_eq!(source.dumps().len(), 2);
        assert!(source.dumps()[1].starts_with("/tmp"));
    }
}
