//! A file that appears complete or not at all: written beside its target under a temporary name, then renamed. All
//! files that memtrack writes use this, except streams. So a reader never sees half a file, and a failed run leaves the
//! old file.
//!
//! **Why not `tempfile`?** Programs that only record would have to compile `rustix`, `fastrand` and `getrandom` just for
//! a name and a rename.

use crate::Compression;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file being written that replaces its target only at [`ReplacingFile::commit`]. If it is dropped before, it is
/// removed.
#[must_use = "the file replaces its target only when it is committed"]
#[derive(Debug)]
pub struct ReplacingFile {
    target: PathBuf,
    temporary: PathBuf,
    file: Option<BufWriter<File>>,
}

impl ReplacingFile {
    /// Starts a file that will replace `target`. A symbolic link is followed, so that the file that it points to is
    /// replaced and the link stays. A replaced file keeps its mode, without write access for others.
    ///
    /// # Errors
    /// Fails when `target` is a folder, a device, a pipe or a socket, or has no file name, or its folder is missing or not writable.
    ///
    /// Only the owner may write a new file, regardless of the umask: tools that unpickle a file execute its content. A
    /// file that is named as a pickle is also readable only by the owner.
    pub fn create(target: &Path) -> io::Result<Self> {
        Self::create_with(target, false)
    }

    /// Starts a pickle with any name: like [`Self::create`] for a file that is named as a pickle.
    ///
    /// # Errors
    /// Fails like [`Self::create`].
    pub fn create_pickle(target: &Path) -> io::Result<Self> {
        Self::create_with(target, true)
    }

    fn create_with(target: &Path, is_private: bool) -> io::Result<Self> {
        if target.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
        }
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        if target.symlink_metadata().is_ok_and(|data| !data.is_file()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is not a regular file, and no other is replaced",
            ));
        }
        let name = target.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        loop {
            let mut hidden = std::ffi::OsString::from(".");
            hidden.push(name);
            let count = COUNTER.fetch_add(1, Ordering::Relaxed);
            hidden.push(format!(".{}-{count}.memtrack.tmp", std::process::id()));
            let temporary = target.with_file_name(hidden);
            let private = is_private || is_pickle(&target);
            match with_new_file_mode(OpenOptions::new().write(true).create_new(true), private)
                .open(&temporary)
            {
                Ok(file) => {
                    // The new file has the read permissions of the old file; only the owner may write it.
                    if let Ok(old) = fs::metadata(&target) {
                        let _ = file.set_permissions(without_other_writers(old.permissions()));
                    }
                    return Ok(Self { target, temporary, file: Some(BufWriter::new(file)) });
                }
                // The file was left by a process with the same id that was killed; the next number is tried.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Flushes the content and renames the file to the target.
    ///
    /// # Errors
    /// Fails when the rest cannot be written or the file cannot be renamed; in that case, the target is unchanged.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some(mut file) = self.file.take() {
            file.flush()?;
        }
        fs::rename(&self.temporary, &self.target)
    }
}

/// Creates a file, or empties an existing one. Only the owner may write a new file, regardless of the umask.
///
/// # Errors
/// Fails when the file cannot be created.
pub fn create_file(path: &Path) -> io::Result<File> {
    with_new_file_mode(OpenOptions::new().write(true).create(true).truncate(true), false).open(path)
}

/// Creates a file that does not exist yet. Only the owner may write it, regardless of the umask.
///
/// # Errors
/// Fails when the file cannot be created, or exists.
pub fn create_new_file(path: &Path) -> io::Result<File> {
    with_new_file_mode(OpenOptions::new().read(true).write(true).create_new(true), false).open(path)
}

/// Creates a file that does not exist yet, which only the owner may read and write, regardless of the umask.
///
/// # Errors
/// Fails when the file cannot be created, or exists.
pub fn create_private_file(path: &Path) -> io::Result<File> {
    with_new_file_mode(OpenOptions::new().read(true).write(true).create_new(true), true).open(path)
}

/// Sets the mode of new files.
fn with_new_file_mode(options: &mut OpenOptions, private: bool) -> &OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, if private { 0o600 } else { 0o644 });
    #[cfg(not(unix))]
    let _ = private;
    options
}

/// Returns the permissions without write access for others.
fn without_other_writers(mut permissions: fs::Permissions) -> fs::Permissions {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        permissions.set_mode(permissions.mode() & !0o022);
    }
    let _ = &mut permissions;
    permissions
}

/// Returns whether a file is named as a pickle, compressed or not.
fn is_pickle(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let name = match name.rsplit_once('.') {
        Some((name, end)) if Compression::named(end).is_some() => name,
        _ => &name,
    };
    matches!(name.rsplit_once('.'), Some((_, "pickle" | "pkl" | "pt")))
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
    fn old_content_stays_until_commit() {
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
    fn file_dropped_before_commit_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = ReplacingFile::create(&folder.path().join("a.txt")).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn folder_is_not_target() {
        let folder = tempfile::tempdir().unwrap();
        assert!(ReplacingFile::create(folder.path()).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn other_users_cannot_write_files_or_read_pickles() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for (name, most) in
            [("a.memtrack", 0o644), ("a.pickle", 0o600), ("a.PKL.gz", 0o600), ("a.json", 0o644)]
        {
            let path = folder.path().join(name);
            ReplacingFile::create(&path).unwrap().commit().unwrap();
            assert_eq!(mode(&path) & !most, 0, "{name}: {:o}", mode(&path));
            // A file that others could write is replaced by one that they cannot.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
            ReplacingFile::create(&path).unwrap().commit().unwrap();
            assert_eq!(mode(&path), 0o644, "{name}");
        }
        let path = folder.path().join("statistics");
        ReplacingFile::create_pickle(&path).unwrap().commit().unwrap();
        assert_eq!(mode(&path) & !0o600, 0);
        let path = folder.path().join("stream");
        drop(create_new_file(&path).unwrap());
        assert_eq!(mode(&path) & !0o644, 0);
    }

    #[cfg(unix)]
    #[test]
    fn replaced_file_keeps_its_mode() {
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
