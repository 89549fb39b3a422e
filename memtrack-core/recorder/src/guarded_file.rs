//! Files that memtrack keeps open inside a program that does not know of them. Programs close descriptors that they did
//! not open (daemons close all from 3 to 1,023) and then receive the same numbers for their own files. So memtrack's
//! descriptors have high numbers if possible, are closed on `exec`, and are checked before each use: the number must
//! still refer to the same file.
//!
//! **What if two processes record to the same path?** A process that streams locks the file before it truncates it,
//! keeps it locked until it is closed, and does the same with each part; a process that finds the file locked writes to
//! a new file beside it. The lock belongs to the open file (`F_OFD_SETLK`), so it lasts while a forked child still has
//! the file open. A stream that lost its file ends: a file reopened by name could belong to another program.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Seek, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};

/// The lowest descriptor number to use: above those that daemons close.
const FIRST_DESCRIPTOR: u64 = 1024;

/// Identifies a file: device and inode.
pub(crate) type Identity = (u64, u64);

/// A file that memtrack has open.
#[derive(Debug)]
pub(crate) struct GuardedFile {
    /// Closed only when this value is dropped, and only if the descriptor still refers to the same file.
    file: ManuallyDrop<File>,
    identity: Identity,
    /// The number of bytes written, which must equal the position in a regular file: a different position means that
    /// the descriptor number and the inode were reused for another open file.
    written: u64,
    is_regular: bool,
}

impl GuardedFile {
    /// Wraps a file that was just opened.
    ///
    /// # Errors
    /// Fails when the system does not report the file's metadata.
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

    /// Returns the descriptor, to be used only while the file [is intact](Self::is_intact).
    pub(crate) fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Returns the number of bytes written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns whether the descriptor still refers to the same open file.
    pub(crate) fn is_intact(&self) -> bool {
        self.file.metadata().is_ok_and(|data| identity(&data) == self.identity)
            && (!self.is_regular
                || self.written == 0
                || (&*self.file).stream_position().is_ok_and(|at| at == self.written))
    }

    /// Reads at `offset` and returns the number of bytes read; `None` when the descriptor no longer refers to the same
    /// file.
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
            // SAFETY: the file is dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// Locks an open file until it is [unlocked](unlock). Returns false if another process has locked the file: of two
/// processes that start to write at the same moment, only one succeeds. Returns true if the system does not support
/// locks.
pub(crate) fn try_lock(file: &File) -> bool {
    set_lock(file, libc::F_WRLCK)
        || !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

/// Unlocks a file explicitly: forked children also have the file open and would otherwise keep it locked.
pub(crate) fn unlock(file: &File) {
    set_lock(file, libc::F_UNLCK);
}

/// Returns whether another process has locked a file, as far as the system knows.
pub(crate) fn is_locked(file: &File) -> bool {
    let mut query = whole_file_lock(libc::F_WRLCK);
    // SAFETY: the call writes the conflicting lock to a local variable.
    let is_known = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut query) == 0 };
    is_known && query.l_type != libc::F_UNLCK as libc::c_short
}

fn set_lock(file: &File, kind: libc::c_int) -> bool {
    let lock = whole_file_lock(kind);
    // SAFETY: the call reads a local variable and changes only a lock on the file.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

/// Returns the description of a lock on a whole file.
fn whole_file_lock(kind: libc::c_int) -> libc::flock {
    // SAFETY: the struct contains only integers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

/// Returns the identity of the file with this metadata.
pub(crate) fn identity(data: &std::fs::Metadata) -> Identity {
    (data.dev(), data.ino())
}

/// Moves the file to a high descriptor: 1,024 or above, or as high as the process's limit allows. Returns the file
/// unchanged if no such descriptor is free.
fn to_high_descriptor(file: File) -> File {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is a local variable.
    let most = match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => limit.rlim_cur,
        _ => 0,
    };
    // If the limit is low, try a number close to it, then numbers further below, until one is free.
    let below = [16, 64, 256, 512].map(|distance| most.saturating_sub(distance));
    let numbers =
        std::iter::once(FIRST_DESCRIPTOR).chain(below).filter(|&lowest| lowest > 2 && lowest < most);
    for lowest in numbers.filter_map(|lowest| RawFd::try_from(lowest).ok()) {
        // SAFETY: the call creates a new descriptor and accesses no memory.
        let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) };
        if number >= 0 {
            // SAFETY: the descriptor was just created and has no other owner.
            return unsafe { File::from_raw_fd(number) };
        }
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    /// Makes the file's descriptor refer to another file, as in a program that closes all descriptors and opens its own
    /// files.
    fn replaced_descriptor(file: &GuardedFile, other: File) -> RawFd {
        let number = file.file.as_raw_fd();
        let other = other.into_raw_fd();
        // SAFETY: this test owns both descriptors.
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
        // SAFETY: the call only queries flags.
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
