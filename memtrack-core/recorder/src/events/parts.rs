//! The files of a stream: a single file, or, if the stream has a size bound, several parts. The newest part has the
//! stream's name. When the next part begins, the previous part is renamed by adding its number, and the oldest parts
//! are removed so that all parts together stay within the bound.
//!
//! **How does a part begin without stopping the hooks?** The live table is read after the part's start moment, and the
//! stamps of its blocks show, address by address, which events it already contains (docs/FILES.md). So any thread can
//! begin a part, even in a forked child. All queued chunks are written to the new part before it takes its place: if a
//! block was freed while the table was read, the new part may lack the block, but then contains its free. With a bound
//! of less than 64 MiB, fewer chunks may be queued. Each part repeats all tables, so its size is an eighth of the
//! bound, or twice the size of its head if that is more.

use crate::guarded_file::{GuardedFile, Identity, identity, is_locked, try_lock, unlock};
use memtrack_file::part::{is_unfinished, older_parts, part_numbers, part_path};
use memtrack_file::tagged_path;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// A new part begins when the newest one has reached the bound divided by this number.
const PARTS: u64 = 8;
/// The maximum number of unfinished recordings of earlier runs that are kept beside a new one.
const MAX_UNFINISHED: u32 = 16;

/// The file being written, and the older parts that are removed to make room for it.
#[derive(Debug)]
pub struct PartFile {
    file: GuardedFile,
    older: Option<OlderParts>,
}

/// The parts before the one being written.
#[derive(Debug)]
struct OlderParts {
    max_bytes: u64,
    /// The size of the previous part while the next one has not taken its place yet, so that it is not in `parts`;
    /// otherwise 0.
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
    /// Removes the oldest parts until another `bytes` fit within the bound.
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
            // If the program has replaced the part by another file, that file is kept.
            if fs::symlink_metadata(&oldest.path).is_ok_and(|data| identity(&data) == oldest.identity) {
                fs::remove_file(&oldest.path)?;
            }
        }
        Ok(())
    }
}

impl PartFile {
    /// Wraps the stream's only file, or its first part if the stream is bounded by `max_bytes`.
    ///
    /// # Errors
    /// Fails when the system does not report the file's metadata.
    pub fn first(file: File, max_bytes: Option<u64>) -> io::Result<Self> {
        let older =
            max_bytes.map(|max_bytes| OlderParts { max_bytes, reserved_bytes: 0, parts: VecDeque::new() });
        Ok(Self { file: GuardedFile::new(file)?, older })
    }

    /// Returns the number of bytes written.
    pub fn written(&self) -> u64 {
        self.file.written()
    }

    /// Returns the size at which a new part is due; `None` if the stream is a single file.
    pub fn due_bytes(&self) -> Option<u64> {
        self.older.as_ref().map(|older| older.max_bytes / PARTS)
    }

    /// Returns whether this file is still the one at `path`.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|data| identity(&data) == self.file.identity())
    }

    /// Creates the next part, which has a temporary name until it [takes its place](Self::take_place). From now on the
    /// next part, not this one, removes older parts.
    ///
    /// # Errors
    /// Fails when the file cannot be created, or when the previous part is no longer at `path`.
    pub fn next(&mut self, path: &Path) -> io::Result<Self> {
        if !self.is_at(path) {
            return Err(io::Error::other("the file was moved or replaced"));
        }
        let file = memtrack_file::create_file(&new_part_path(path))?;
        file.set_permissions(fs::metadata(path)?.permissions())?;
        // The lock marks the recording as in use, like the lock of the previous part.
        try_lock(&file);
        let mut next = Self { file: GuardedFile::new(file)?, older: self.older.take() };
        if let Some(older) = &mut next.older {
            older.reserved_bytes = self.file.written();
        }
        Ok(next)
    }

    /// Renames the `previous` part by adding its `number`, and moves this part to `path`, so that there is a file at
    /// `path` at every moment.
    ///
    /// # Errors
    /// Fails when the files cannot be renamed.
    pub fn take_place(&mut self, previous: &Self, number: u64, path: &Path) -> io::Result<()> {
        let (new_part, aside) = (new_part_path(path), part_path(path, number));
        match fs::hard_link(path, &aside) {
            Ok(()) => {}
            // A file with that name was created since the number was chosen; it must not be replaced.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(error),
            // If links are not supported, there is no file at `path` for a moment.
            Err(_) => fs::rename(path, &aside)?,
        }
        fs::rename(new_part, path)?;
        if let Some(older) = &mut self.older {
            older.reserved_bytes = 0;
            let (bytes, identity) = (previous.file.written(), previous.file.identity());
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

/// Removes the temporary file of a new part that has not taken its place.
pub fn remove_new_part(path: &Path) {
    // A file that cannot be removed only takes up space.
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

/// The file that a stream is written to.
pub(super) struct Destination {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// A message to the user about why `path` is not the requested path; `None` if it is.
    pub(super) note: Option<String>,
}

impl Destination {
    /// Opens and truncates the file at `path`: a finished recording or any other file there is replaced. Two kinds of
    /// files are kept, and the stream gets a new file beside them: an unfinished recording, which is all that is left of
    /// an earlier run, and a recording that another process is using.
    ///
    /// # Errors
    /// Fails when no file can be created.
    pub(super) fn choose(path: &Path) -> io::Result<Self> {
        let why = match open_or_keep(path)? {
            Ok(file) => return Ok(Self { file, path: path.to_owned(), note: None }),
            Err(why) => why,
        };
        for number in 2..MAX_UNFINISHED + 2 {
            let beside = tagged_path(path, &number.to_string());
            match memtrack_file::create_new_file(&beside) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    // No other process replaces a new file; the lock marks it as in use.
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

/// Locks a new file, which marks it as in use until it is closed.
pub fn lock_new_file(file: &File) {
    try_lock(file);
}

/// Why a file must not be replaced.
#[derive(Clone, Copy)]
enum KeepReason {
    /// The file is all that is left of an earlier run.
    Unfinished,
    /// Another process records into the file.
    InUse,
}

impl KeepReason {
    /// Returns the message for the user that the stream is written to the file `beside` instead.
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

/// Opens, locks and truncates the file at `path`, or returns the reason the file must not be replaced.
fn open_or_keep(path: &Path) -> io::Result<Result<File, KeepReason>> {
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
        // Checked again now that the file is locked: until now another process may have written or replaced it.
        if is_unfinished_at(path)? || !is_at(&file, path)? {
            unlock(&file);
            return Ok(Err(KeepReason::InUse));
        }
        // Remove the older parts that the replaced recording lists. A part that cannot be removed only takes up space.
        older_parts(path).iter().for_each(|part| drop(fs::remove_file(part)));
        file.set_len(0)?;
    }
    Ok(Ok(file))
}

/// Returns whether `file` is the file at `path`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let expected = identity(&file.metadata()?);
    Ok(fs::metadata(path).is_ok_and(|data| identity(&data) == expected))
}

/// Returns whether the file at `path` is a recording that was not finished.
fn is_unfinished_at(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(data) if data.is_file() && data.len() > 0 => is_unfinished(&mut File::open(path)?),
        _ => Ok(false),
    }
}

/// Returns a number for a stream's first part. No existing file has the name of a part with this or a higher number.
pub fn free_number(path: &Path) -> u64 {
    part_numbers(path).into_iter().max().map_or(1, |most| most + 1)
}
