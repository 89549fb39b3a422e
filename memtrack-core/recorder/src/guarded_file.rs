//! Files that memtrack keeps open inside a program that does not know of them. Programs close descriptors that they
//! did not open (daemons close all from 3 to 1,023), and receive the same numbers for files of their own: so
//! memtrack's descriptors have high numbers if possible, are not inherited by other programs, and each use first
//! checks whether the number still is the same file.
//!
//! **What if two processes have one path?** A process that streams locks the file before it empties it and until it is
//! closed, and each part likewise; a process that finds it locked writes beside it. The lock belongs to the open file
//! (`F_OFD_SETLK`), so it lasts while a forked child still has the file. A stream that lost its file ends: reopened by
//! its name, it could be another program's.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Seek, Write};
use std::mem::ManuallyDrop;
#[cfg(unix)]
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
#[cfg(unix)]
use std::os::unix::fs::{FileExt, MetadataExt};

/// The first number for descriptors: behind those that daemons close.
#[cfg(unix)]
const FIRST: u64 = 1024;

/// Identifies a file: device and inode.
pub(crate) type Identity = (u64, u64);

/// An open file of memtrack.
#[derive(Debug)]
pub(crate) struct GuardedFile {
    /// Closed only by this type's drop, and only if it still is the same file.
    file: ManuallyDrop<File>,
    identity: Identity,
    /// Bytes written: the position in a regular file; otherwise the number and the inode were reused for another open
    /// file.
    written: u64,
    is_regular: bool,
}

impl GuardedFile {
    /// Wraps a file that was just opened.
    ///
    /// # Errors
    /// Fails when the system does not identify it.
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let data = file.metadata()?;
        let is_regular = data.is_file() && identity(&data).0 != 0;
        let file = to_high_descriptor(file);
        Ok(Self { file: ManuallyDrop::new(file), identity: identity(&data), written: 0, is_regular })
    }

    /// Returns the file's identity.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// Returns how many bytes were written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns whether the descriptor still is the same open file.
    pub(crate) fn is_intact(&self) -> bool {
        self.file.metadata().is_ok_and(|data| identity(&data) == self.identity)
            && (!self.is_regular
                || self.written == 0
                || (&*self.file).stream_position().is_ok_and(|at| at == self.written))
    }

    /// Reads from `offset` on; `None` when the descriptor no longer is the same file.
    #[cfg(unix)]
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Option<usize> {
        self.is_intact().then(|| self.file.read_at(buffer, offset).unwrap_or(0))
    }
}

impl Write for GuardedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_intact() {
            return Err(io::Error::other(
                "the program has closed the file, as daemons close all at their start",
            ));
        }
        let count = crate::signals::without_write_signals(|| (&*self.file).write(bytes))?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for GuardedFile {
    fn drop(&mut self) {
        if self.is_intact() {
            unlock(&self.file);
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// Locks an open file, until it is [unlocked](unlock). Returns whether no other process has it locked: of two
/// processes that begin to write at the same moment, one does. True if the system does not support it.
#[cfg(target_os = "linux")]
pub(crate) fn try_lock(file: &File) -> bool {
    set_lock(file, libc::F_WRLCK)
        || !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

/// Unlocks a file. Forked children have the open file too, and would keep it locked.
#[cfg(target_os = "linux")]
pub(crate) fn unlock(file: &File) {
    set_lock(file, libc::F_UNLCK);
}

/// Returns whether another process has locked a file, as far as the system knows.
#[cfg(target_os = "linux")]
pub(crate) fn is_locked(file: &File) -> bool {
    let mut query = whole(libc::F_WRLCK);
    // SAFETY: the call changes a local variable: it returns the conflicting lock.
    let is_known = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut query) == 0 };
    is_known && query.l_type != libc::F_UNLCK as libc::c_short
}

#[cfg(target_os = "linux")]
fn set_lock(file: &File, kind: libc::c_int) -> bool {
    let lock = whole(kind);
    // SAFETY: the call reads a local variable, and changes only a lock on the file.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

/// Returns a lock on a whole file.
#[cfg(target_os = "linux")]
fn whole(kind: libc::c_int) -> libc::flock {
    // SAFETY: plain numbers, for which zeros are values.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = kind as libc::c_short;
    whole.l_whence = libc::SEEK_SET as libc::c_short;
    whole
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn try_lock(_file: &File) -> bool {
    true
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn unlock(_file: &File) {}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_locked(_file: &File) -> bool {
    false
}

/// Returns the identity of the file with this metadata; the same for all files if the system has none.
#[cfg(unix)]
pub(crate) fn identity(data: &std::fs::Metadata) -> Identity {
    (data.dev(), data.ino())
}

/// Returns the identity of the file with this metadata; the same for all files if the system has none.
#[cfg(not(unix))]
pub(crate) fn identity(_data: &std::fs::Metadata) -> Identity {
    (0, 0)
}

/// Moves the file to a high descriptor: from 1,024 on, or as high as the process's limit allows; unchanged if none is
/// free.
#[cfg(unix)]
fn to_high_descriptor(file: File) -> File {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a local variable.
    let most = match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => limit.rlim_cur,
        _ => 0,
    };
    // Near the limit when it is low, in steps down to a free number.
    let below = [16, 64, 256, 512].map(|distance| most.saturating_sub(distance));
    let numbers = std::iter::once(FIRST).chain(below).filter(|&lowest| lowest > 2 && lowest < most);
    for lowest in numbers.filter_map(|lowest| RawFd::try_from(lowest).ok()) {
        // SAFETY: makes a new descriptor.
        let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) };
        if number >= 0 {
            // SAFETY: it was just made, and has no other owner.
            return unsafe { File::from_raw_fd(number) };
        }
    }
    file
}

#[cfg(not(unix))]
fn to_high_descriptor(file: File) -> File {
    file
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    /// Makes the file's descriptor refer to another file, as a program does that closes all and opens its own.
    fn replaced_descriptor(file: &GuardedFile, other: File) -> RawFd {
        let number = file.file.as_raw_fd();
        let other = other.into_raw_fd();
        // SAFETY: numbers of this test's own.
        unsafe {
            assert_eq!(libc::dup2(other, number), number);
            libc::close(other);
        }
        number
    }

    #[test]
    fn a_descriptor_has_a_high_number_and_is_not_inherited() {
        let file = GuardedFile::new(tempfile::tempfile().unwrap()).unwrap();
        let number = file.file.as_raw_fd();
        // SAFETY: queries flags.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        assert!(number > 256 && flags & libc::FD_CLOEXEC != 0, "{number}");
    }

    #[test]
    fn a_descriptor_reused_for_another_file_is_neither_written_nor_closed() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = GuardedFile::new(File::create(folder.path().join("ours")).unwrap()).unwrap();
        file.write_all(b"ours").unwrap();
        let theirs = folder.path().join("theirs");
        let number = replaced_descriptor(&file, File::create(&theirs).unwrap());
        assert!(file.write_all(b"more").is_err());
        drop(file);
        // SAFETY: the number is the other file's, which is still open.
        let mut other = unsafe { File::from_raw_fd(number) };
        other.write_all(b"theirs").unwrap();
        assert_eq!(std::fs::read(theirs).unwrap(), b"theirs");
        assert_eq!(std::fs::read(folder.path().join("ours")).unwrap(), b"ours");
    }

    #[test]
    fn the_same_file_reopened_under_the_number_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ours");
        let mut file = GuardedFile::new(File::create(&path).unwrap()).unwrap();
        file.write_all(b"ours").unwrap();
        let number = replaced_descriptor(&file, File::options().append(true).open(&path).unwrap());
        assert!(file.write_all(b"more").is_err());
        drop(file);
        // SAFETY: the number is the other file's, which is still open.
        drop(unsafe { File::from_raw_fd(number) });
    }
}
