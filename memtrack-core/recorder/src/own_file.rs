//! Files that memtrack keeps open inside a program which knows nothing of them. Programs close descriptors that they did
//! not open (daemons all from 3 to 1,023), and are given the same numbers for files of their own: so ours lie high where
//! there is room, no other program inherits them, and each use first asks the system whether the number is still our file.
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

/// Where descriptors of ours begin: behind those that daemons close.
#[cfg(unix)]
const FIRST: u64 = 1024;

/// What tells a file from all others: device and inode.
pub(crate) type Identity = (u64, u64);

/// An open file of ours.
#[derive(Debug)]
pub(crate) struct OwnFile {
    /// Closed by our own drop alone, and only where it is ours still.
    file: ManuallyDrop<File>,
    identity: Identity,
    /// Bytes written: where the next go in a regular file, or it is another one that was given the number and the inode.
    written: u64,
    is_regular: bool,
}

impl OwnFile {
    /// Takes over a file that was just opened.
    ///
    /// # Errors
    /// When the system does not say what it is.
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let data = file.metadata()?;
        let is_regular = data.is_file() && identity(&data).0 != 0;
        let file = raised(file);
        Ok(Self { file: ManuallyDrop::new(file), identity: identity(&data), written: 0, is_regular })
    }

    /// What file it is.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
    }

    /// How many bytes were written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Whether the descriptor still is our file.
    pub(crate) fn is_ours(&self) -> bool {
        self.file.metadata().is_ok_and(|data| identity(&data) == self.identity)
            && (!self.is_regular
                || self.written == 0
                || (&*self.file).stream_position().is_ok_and(|at| at == self.written))
    }

    /// Reads from `offset` on; `None` when the descriptor is not ours any more.
    #[cfg(unix)]
    pub(crate) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Option<usize> {
        self.is_ours().then(|| self.file.read_at(buffer, offset).unwrap_or(0))
    }
}

impl Write for OwnFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.is_ours() {
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

impl Drop for OwnFile {
    fn drop(&mut self) {
        if self.is_ours() {
            let_go(&self.file);
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.file) };
        }
    }
}

/// Takes an open file, until it is [let go](let_go). Returns whether nobody else has it: of two processes that begin to write at the
/// same moment, one does. True where the system does not know.
#[cfg(target_os = "linux")]
pub(crate) fn take(file: &File) -> bool {
    lock(file, libc::F_WRLCK)
        || !matches!(io::Error::last_os_error().raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

/// Forked children have the open file too, and would keep it taken.
#[cfg(target_os = "linux")]
pub(crate) fn let_go(file: &File) {
    lock(file, libc::F_UNLCK);
}

/// Whether another process has taken a file, as far as the system knows.
#[cfg(target_os = "linux")]
pub(crate) fn is_taken(file: &File) -> bool {
    let mut asked = whole(libc::F_WRLCK);
    // SAFETY: the call changes what is ours: it says which lock is in the way.
    let is_known = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut asked) == 0 };
    is_known && asked.l_type != libc::F_UNLCK as libc::c_short
}

#[cfg(target_os = "linux")]
fn lock(file: &File, kind: libc::c_int) -> bool {
    let lock = whole(kind);
    // SAFETY: the call reads what is ours, and changes a lock on the file alone.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) == 0 }
}

/// A lock on a whole file.
#[cfg(target_os = "linux")]
fn whole(kind: libc::c_int) -> libc::flock {
    // SAFETY: plain numbers, for which zeros are values.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = kind as libc::c_short;
    whole.l_whence = libc::SEEK_SET as libc::c_short;
    whole
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn take(_file: &File) -> bool {
    true
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn let_go(_file: &File) {}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_taken(_file: &File) -> bool {
    false
}

/// What tells the file with this data from all others; the same for all where the system has no such thing.
#[cfg(unix)]
pub(crate) fn identity(data: &std::fs::Metadata) -> Identity {
    (data.dev(), data.ino())
}

/// What tells the file with this data from all others; the same for all where the system has no such thing.
#[cfg(not(unix))]
pub(crate) fn identity(_data: &std::fs::Metadata) -> Identity {
    (0, 0)
}

/// The file under a high number: from 1,024 on, or as high as the process may have them; as it was where none is free.
#[cfg(unix)]
fn raised(file: File) -> File {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is ours.
    let most = match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } {
        0 => limit.rlim_cur,
        _ => 0,
    };
    // Near the limit when it is low, in steps down to where one is free.
    let below = [16, 64, 256, 512].map(|distance| most.saturating_sub(distance));
    let places = std::iter::once(FIRST).chain(below).filter(|&place| place > 2 && place < most);
    for place in places.filter_map(|place| RawFd::try_from(place).ok()) {
        // SAFETY: makes a descriptor that nobody else has.
        let number = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, place) };
        if number >= 0 {
            // SAFETY: it was just made, and is ours alone.
            return unsafe { File::from_raw_fd(number) };
        }
    }
    file
}

#[cfg(not(unix))]
fn raised(file: File) -> File {
    file
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    /// Has the file's number be another file, as a program does that closes all and opens its own.
    fn taken_over(file: &OwnFile, other: File) -> RawFd {
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
    fn a_descriptor_lies_high_and_is_not_inherited() {
        let file = OwnFile::new(tempfile::tempfile().unwrap()).unwrap();
        let number = file.file.as_raw_fd();
        // SAFETY: asks for flags.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        assert!(number > 256 && flags & libc::FD_CLOEXEC != 0, "{number}");
    }

    #[test]
    fn what_another_file_took_over_is_neither_written_nor_closed() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = OwnFile::new(File::create(folder.path().join("ours")).unwrap()).unwrap();
        file.write_all(b"ours").unwrap();
        let theirs = folder.path().join("theirs");
        let number = taken_over(&file, File::create(&theirs).unwrap());
        assert!(file.write_all(b"more").is_err());
        drop(file);
        // SAFETY: the number is the other file's, which nobody has closed.
        let mut other = unsafe { File::from_raw_fd(number) };
        other.write_all(b"theirs").unwrap();
        assert_eq!(std::fs::read(theirs).unwrap(), b"theirs");
        assert_eq!(std::fs::read(folder.path().join("ours")).unwrap(), b"ours");
    }

    #[test]
    fn the_same_file_opened_anew_is_not_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ours");
        let mut file = OwnFile::new(File::create(&path).unwrap()).unwrap();
        file.write_all(b"ours").unwrap();
        let number = taken_over(&file, File::options().append(true).open(&path).unwrap());
        assert!(file.write_all(b"more").is_err());
        drop(file);
        // SAFETY: the number is the other's, which nobody has closed.
        drop(unsafe { File::from_raw_fd(number) });
    }
}
