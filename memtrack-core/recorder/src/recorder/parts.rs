//! The files of a stream: one, or of a stream with a bound the parts that are left of it. The newest part has the
//! stream's own name; when the next one begins it is renamed to that name and its number, and the oldest go so that all
//! together stay within the bound.
//!
//! **How does a part begin without stopping the hooks?** The stamps of blocks show, address by address, what the live
//! table, read afterwards, already contains (docs/FILES.md), so that any thread can begin a part, even in a forked
//! child. Everything in the queue is written to it before it takes its place: the event of a block that was freed while
//! the table was read is then in the file that lacks the block. With a bound of less than 64 MiB, fewer chunks may wait.
//! Each part has all tables again, so it is an eighth of the bound, or twice its head where that is more.

use crate::own_file::{Identity, OwnFile, identity, is_taken, let_go, take};
use memtrack_file::part::{is_unfinished, numbers_beside, older_parts, part_path};
use memtrack_file::tagged;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Parts of a stream with a bound: a new one begins when the newest has a share of the bound that is one of so many.
const PARTS: u64 = 8;
/// Unfinished recordings of earlier runs beside which a new one is put.
const MOST_UNFINISHED: u32 = 16;

/// A file that is written, and the older parts that go to make room for it.
#[derive(Debug)]
pub(super) struct PartFile {
    own: OwnFile,
    older: Option<OlderParts>,
}

/// The parts before the one that is written.
#[derive(Debug)]
struct OlderParts {
    most_bytes: u64,
    /// Bytes of files that are needed still.
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
    /// Removes the oldest until `bytes` fit besides.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let mut all: u64 = self.parts.iter().map(|part| part.bytes).sum::<u64>() + self.reserved_bytes;
        while all + bytes > self.most_bytes {
            let Some(oldest) = self.parts.pop_front() else {
                return Err(io::Error::other(format!(
                    "its limit of {} bytes is too small for what is live and its stacks",
                    self.most_bytes
                )));
            };
            all -= oldest.bytes;
            // Another's file that was put there stays.
            if fs::symlink_metadata(&oldest.path).is_ok_and(|data| identity(&data) == oldest.identity) {
                fs::remove_file(&oldest.path)?;
            }
        }
        Ok(())
    }
}

impl PartFile {
    /// The stream's only file, or its first part when all together may take `most_bytes`.
    pub(super) fn first(file: File, most_bytes: Option<u64>) -> io::Result<Self> {
        let older =
            most_bytes.map(|most_bytes| OlderParts { most_bytes, reserved_bytes: 0, parts: VecDeque::new() });
        Ok(Self { own: OwnFile::new(file)?, older })
    }

    /// How many bytes were written.
    pub(super) fn written(&self) -> u64 {
        self.own.written()
    }

    /// Bytes from which on a new part is due; none where there are no parts.
    pub(super) fn due_bytes(&self) -> Option<u64> {
        self.older.as_ref().map(|older| older.most_bytes / PARTS)
    }

    /// Whether the file at `path` still is this one.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        fs::metadata(path).is_ok_and(|data| identity(&data) == self.own.identity())
    }

    /// The next part, under a name of its own until it [takes its place](Self::take_place). The older parts are its to
    /// remove from now on.
    pub(super) fn next(&mut self, path: &Path) -> io::Result<Self> {
        if !self.is_at(path) {
            return Err(io::Error::other("the file was moved or replaced"));
        }
        let file = memtrack_file::create_file(&beginning(path))?;
        // It says that the recording is in use, as the part before does.
        take(&file);
        let mut next = Self { own: OwnFile::new(file)?, older: self.older.take() };
        if let Some(older) = &mut next.older {
            older.reserved_bytes = self.own.written();
        }
        Ok(next)
    }

    /// Puts this part in the place of the one `before`, whose number that was; at every moment there is a file at
    /// `path`.
    pub(super) fn take_place(&mut self, before: &Self, number: u64, path: &Path) -> io::Result<()> {
        let (beginning, aside) = (beginning(path), part_path(path, number));
        match fs::hard_link(path, &aside) {
            Ok(()) => {}
            // Somebody has put a file there since the number was chosen; it is not ours to replace.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(error),
            // Where there are no links there is no file for a moment.
            Err(_) => fs::rename(path, &aside)?,
        }
        fs::rename(beginning, path)?;
        if let Some(older) = &mut self.older {
            older.reserved_bytes = 0;
            let (bytes, identity) = (before.own.written(), before.own.identity());
            older.parts.push_back(OlderPart { path: aside, identity, bytes });
        }
        Ok(())
    }
}

fn beginning(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part-new");
    name.into()
}

/// Removes a part that was begun and did not take its place.
pub(super) fn forget_beginning(path: &Path) {
    // One that cannot be removed only takes room.
    let _ = fs::remove_file(beginning(path));
}

impl Write for PartFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(older) = &mut self.older {
            older.make_room(self.own.written() + bytes.len() as u64)?;
        }
        self.own.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.own.flush()
    }
}

/// Where a stream goes.
pub(super) struct Place {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// What the user is to know of it.
    pub(super) note: Option<String>,
}

impl Place {
    /// The file at `path`, empty: a finished recording or another file there is replaced. The unfinished recording of
    /// an earlier run is all that is left of that, and what another process records is that one's: it stays, and the stream
    /// goes beside it.
    ///
    /// # Errors
    /// When no file can be created.
    pub(super) fn find(path: &Path) -> io::Result<Self> {
        let why = match taken(path)? {
            Ok(file) => return Ok(Self { file, path: path.to_owned(), note: None }),
            Err(why) => why,
        };
        for number in 2..MOST_UNFINISHED + 2 {
            let beside = tagged(path, &number.to_string());
            match memtrack_file::create_new_file(&beside) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => {
                    // Nobody else replaces what it did not find; the lock says that it is in use.
                    take(&file);
                    let note = Some(why.note(path, &beside));
                    return Ok(Self { file, path: beside, note });
                }
            }
        }
        Err(io::Error::new(
            ErrorKind::AlreadyExists,
            format!(
                "it and {MOST_UNFINISHED} others beside it are recordings of earlier runs: move them away"
            ),
        ))
    }
}

/// Why a file must not be replaced.
#[derive(Clone, Copy)]
enum Stays {
    /// It is all that is left of an earlier run.
    Unfinished,
    /// Another process records into it.
    InUse,
}

impl Stays {
    /// What the user is to know of a stream that goes `beside` it.
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

/// The file at `path`, empty and taken, or why there is none.
fn taken(path: &Path) -> io::Result<Result<File, Stays>> {
    match memtrack_file::create_new_file(path) {
        Ok(file) if take(&file) && is_at(&file, path)? => return Ok(Ok(file)),
        Ok(_) => return Ok(Err(Stays::InUse)),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    if is_unfinished_at(path)? {
        let is_in_use = File::open(path).is_ok_and(|file| is_taken(&file));
        return Ok(Err(if is_in_use { Stays::InUse } else { Stays::Unfinished }));
    }
    let file = File::options().write(true).open(path)?;
    if file.metadata()?.is_file() {
        if !take(&file) {
            return Ok(Err(Stays::InUse));
        }
        // Looked at once more when it is ours: until now somebody may have written it, or put another in its place.
        if is_unfinished_at(path)? || !is_at(&file, path)? {
            let_go(&file);
            return Ok(Err(Stays::InUse));
        }
        // Those of the finished recording that is replaced, which says which they are; one that cannot be removed only takes room.
        older_parts(path).iter().for_each(|part| drop(fs::remove_file(part)));
        file.set_len(0)?;
    }
    Ok(Ok(file))
}

/// Whether the file is the one at `path`.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = identity(&file.metadata()?);
    Ok(fs::metadata(path).is_ok_and(|data| identity(&data) == own))
}

/// Whether the file at `path` is a recording that was not ended.
fn is_unfinished_at(path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(data) if data.is_file() && data.len() > 0 => is_unfinished(&mut File::open(path)?),
        _ => Ok(false),
    }
}

/// A number for a stream's first part, so that no file has its name or that of a later one.
pub(super) fn free_number(path: &Path) -> u64 {
    numbers_beside(path).into_iter().max().map_or(1, |most| most + 1)
}
