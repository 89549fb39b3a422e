//! The files of a stream: one, or the remaining parts of a stream with a bound. The newest part has the stream's own
//! name; when the next one begins it is renamed to that name plus its number, and the oldest parts are removed so
//! that all together stay within the bound.
//!
//! **How does a part begin without stopping the hooks?** The stamps of blocks show, address by address, what the live
//! table, read afterwards, already contains (docs/FILES.md), so that any thread can begin a part, even in a forked
//! child. Everything in the queue is written to it before it takes its place: the event of a block that was freed while
//! the table was read is then in the file that lacks the block. With a bound of less than 64 MiB, fewer chunks may wait.
//! Each part has all tables again, so it is an eighth of the bound, or twice its head where that is more.

use crate::guarded_file::{GuardedFile, Identity, identity, is_locked, try_lock, unlock};
use memtrack_file::part::{is_unfinished, older_parts, part_numbers, part_path};
use memtrack_file::tagged_path;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A new part begins when the newest has reached one of so many equal shares of the bound.
const PARTS: u64 = 8;
/// The most unfinished recordings of earlier runs beside which a new one is put.
const MAX_UNFINISHED: u32 = 16;

/// The file being written, and the older parts that are removed to make room for it.
#[derive(Debug)]
pub(super) struct PartFile {
    file: GuardedFile,
    older: Option<OlderParts>,
}

/// The parts before the one being written.
#[derive(Debug)]
struct OlderParts {
    max_bytes: u64,
    /// Bytes of files that are still needed.
    reserved_bytes: u64,
    parts: VecDeque<OlderPart>,
}

#[derive(Debug)]
struct OlderPart {
    path: PathBuf,
    identity: Identity,
    bytes: u64,
}

impl OlderParts {
    /// Removes the oldest parts until `bytes` fit.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let mut all: u64 = self.parts.iter().map(|part| part.bytes).sum::<u64>() + self.reserved_bytes;
        while all + bytes > self.max_bytes {
            let Some(oldest) = self.parts.pop_front() else {
                return Err(io::Error::other(format!(
                    "its limit of {} bytes is too small for what is live and its stacks",
                    self.max_bytes
                )));
            };
            all -= oldest.bytes;
            // Another file that was put there stays.
            if fs::symlink_metadata(&oldest.path).is_ok_and(|data| identity(&data) == oldest.identity) {
                fs::remove_file(&oldest.path)?;
            }
        }
        Ok(())
    }
}

impl PartFile {
    /// Makes the stream's only file, or its first part if all together may take `max_bytes`.
    pub(super) fn first(file: File, max_bytes: Option<u64>) -> io::Result<Self> {
        let older =
            max_bytes.map(|max_bytes| OlderParts { max_bytes, reserved_bytes: 0, parts: VecDeque::new() });
        Ok(Self { file: GuardedFile::new(file)?, older })
    }

    /// Returns how many bytes were written.
    pub(super) fn written(&self) -> u64 {
        self.file.written()
    }

    /// Returns the size from which on a new part is due; `None` if there are no parts.
    pub(super) fn due_bytes(&self) -> Option<u64> {
        self.older.as_ref().map(|older| older.max_bytes / PARTS)
    }

    /// Returns whether the file at `path` still is this one.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|data| identity(&data) == self.file.identity())
    }

    /// Makes the next part, under a temporary name until it [takes its place](Self::take_place). From now on it
    /// removes the older parts.
    pub(super) fn next(&mut self, path: &Path) -> io::Result<Self> {
        if !self.is_at(path) {
            return Err(io::Error::other("the file was moved or replaced"));
        }
        let file = memtrack_file::create_file(&new_part_path(path))?;
        // The lock marks the recording as in use, as the part before does.
        try_lock(&file);
        let mut next = Self { file: GuardedFile::new(file)?, older: self.older.take() };
        if let Some(older) = &mut next.older {
            older.reserved_bytes = self.file.written();
        }
        Ok(next)
    }

    /// Puts this part in the place of the one `before`, which had that number; at every moment there is a file at
    /// `path`.
    pub(super) fn take_place(&mut self, before: &Self, number: u64, path: &Path) -> io::Result<()> {
        let (new_part, aside) = (new_part_path(path), part_path(path, number));
        match fs::hard_link(path, &aside) {
            Ok(()) => {}
            // A file was put there since the number was chosen; it must not be replaced.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(error),
            // If links are not supported, there is no file for a moment.
            Err(_) => fs::rename(path, &aside)?,
        }
        fs::rename(new_part, path)?;
        if let Some(older) = &mut self.older {
            older.reserved_bytes = 0;
            let (bytes, identity) = (before.file.written(), before.file.identity());
            older.parts.push_back(OlderPart { path: aside, identity, bytes });
        }
        Ok(())
    }
}

fn new_part_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part-new");
    name.into()
}

/// Removes a part that was begun and did not take its place.
pub(super) fn remove_new_part(path: &Path) {
    // One that cannot be removed only takes up space.
    let _ = fs::remove_file(new_part_path(path));
}

impl Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(older) = &mut self.older {
            older.make_room(self.file.written() + bytes.len() as u64)?;
        }
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The file to which a stream is written.
pub(super) struct Destination {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// A message for the user.
    pub(super) note: Option<String>,
}

impl Destination {
    /// Opens the file at `path`, empty: a finished recording or another file there is replaced. An unfinished
    /// recording is all that is left of an earlier run, and a recording in use belongs to another process: such a
    /// file stays, and the stream goes beside it.
    ///
    /// # Errors
    /// Fails when no file can be created.
    pub(super) fn choose(path: &Path) -> io::Result<Self> {
        let why = match claim(path)? {
            Ok(file) => return Ok(Self { file, path: path.to_owned(), note: None }),
            Err(why) => why,
        };
        for number in 2..MAX_UNFINISHED + 2 {
            let beside = tagged_path(path, &number.to_string());
            match memtrack_file::create_new_file(&beside) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    // Another process does not replace a file that it did not find there; the lock marks it as in
                    // use.
                    try_lock(&file);
                    let note = Some(why.note(path, &beside));
                    return Ok(Self { file, path: beside, note });
                }
            }
        }
        Err(io::Error::new(
            ErrorKind::AlreadyExists,
            format!(
                "it and {MAX_UNFINISHED} others beside it are recordings of earlier runs: move them away"
            ),
        ))
    }
}

/// Why a file must not be replaced.
#[derive(Clone, Copy)]
enum KeepReason {
    /// It is all that is left of an earlier run.
    Unfinished,
    /// Another process records into it.
    InUse,
}

impl KeepReason {
    /// Returns the message for the user about a stream that goes `beside` it.
    fn note(self, path: &Path, beside: &Path) -> String {
        let (path, beside) = (path.display(), beside.display());
        match self {
            Self::Unfinished => format!(
                "{path} is the unfinished recording of an earlier run and stays; this run is recorded into {beside}"
            ),
            Self::InUse => {
                format!("another process records into {path}; this one is recorded into {beside}")
            }
        }
    }
}

/// Returns the file at `path`, empty and locked, or why it must not be replaced.
fn claim(path: &Path) -> io::Result<Result<File, KeepReason>> {
    match memtrack_file::create_new_file(path) {
        Ok(file) if try_lock(&file) && is_at(&file, path)? => return Ok(Ok(file)),
        Ok(_) => return Ok(Err(KeepReason::InUse)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    if is_unfinished_at(path)? {
        let is_in_use = File::open(path).is_ok_and(|file| is_locked(&file));
        return Ok(Err(if is_in_use { KeepReason::InUse } else { KeepReason::Unfinished }));
    }
    let file = File::options().write(true).open(path)?;
    if file.metadata()?.is_file() {
        if !try_lock(&file) {
            return Ok(Err(KeepReason::InUse));
        }
        // Checked again now that it is locked: until now another process may have written it, or put another in its
        // place.
        if is_unfinished_at(path)? || !is_at(&file, path)? {
            unlock(&file);
            return Ok(Err(KeepReason::InUse));
        }
        // The parts of the finished recording that is replaced, which names them; one that cannot be removed only
        // takes up space.
        older_parts(path).iter().for_each(|part| drop(fs::remove_file(part)));
        file.set_len(0)?;
    }
    Ok(Ok(file))
}

/// Returns whether the file is the one at `path`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = identity(&file.metadata()?);
    Ok(fs::metadata(path).is_ok_and(|data| identity(&data) == own))
}

/// Returns whether the file at `path` is a recording that was not finished.
fn is_unfinished_at(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(data) if data.is_file() && data.len() > 0 => is_unfinished(&mut File::open(path)?),
        _ => Ok(false),
    }
}

/// Returns a number for a stream's first part such that no file has its name or that of a later one.
pub(super) fn free_number(path: &Path) -> u64 {
    part_numbers(path).into_iter().max().map_or(1, |most| most + 1)
}
