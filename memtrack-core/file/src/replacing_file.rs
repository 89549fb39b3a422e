//! A file that appears complete or not at all: written beside its place under a temporary name, then renamed.
//! Everything that memtrack leaves on disk goes through here, streams excepted; a reader never sees half a file, and a
//! failed run leaves the old one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file being written that takes its place only at [`ReplacingFile::commit`]. If it is dropped before, it removes
/// itself.
#[must_use = "the file takes its place only when it is committed"]
#[derive(Debug)]
pub struct ReplacingFile {
    target: PathBuf,
    temporary: PathBuf,
    file: Option<BufWriter<File>>,
}

impl ReplacingFile {
    /// Starts a file that will be at `target`, replacing what is there. A symbolic link is followed, so that the
    /// file it points to is replaced and the link stays.
    ///
    /// # Errors
    /// When `target` is a folder or has no file name, or its folder is missing or not writable.
    pub fn create(target: &Path) -> io::Result<Self> {
        if target.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let name = target.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        loop {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            hidden.push(format!(".{}-{count}.memtrack.tmp", std::process::id()));
            let temporary = target.with_file_name(hidden);
            match OpenOptions::new().write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    // Who may read and write it stays as it was.
                    if let Ok(old) = fs::metadata(&target) {
                        let _ = file.set_permissions(old.permissions());
                    }
                    return Ok(Self { target, temporary, file: Some(BufWriter::new(file)) });
                }
                // Left by a process that died and had our id; the next count is free.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Flushes the content and moves the file to its place.
    ///
    /// # Errors
    /// When the rest cannot be written or the file cannot be renamed; the target is then as it was.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some(mut file) = self.file.take() {
            file.flush()?;
        }
        fs::rename(&self.temporary, &self.target)
    }
}

impl Write for ReplacingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            None => Ok(0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for ReplacingFile {
    fn drop(&mut self) {
        // After a commit the temporary name is gone, and the removal finds nothing.
        self.file = None;
        let _ = fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_content_stays_until_commit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        fs::write(&path, "old").unwrap();
        let mut file = ReplacingFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        file.commit().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_abandoned_file_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = ReplacingFile::create(&folder.path().join("a.txt")).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_is_not_a_target() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ReplacingFile::create(folder.path()).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_replaced_file_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.memtrack");
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut file = ReplacingFile::create(&path).unwrap();
        file.write_all(b"after").unwrap();
        file.commit().unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode, fs::read(&path).unwrap()), (0o640, b"after".to_vec()));
    }
}
