//! Reading a file on a thread of its own, a few pieces ahead of who takes it apart: the kernel's copying is a fifth of
//! the time that a large snapshot takes.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that wait at most, so that memory stays bounded.
const PIECES: usize = 3;
/// Smaller files are read before a thread has started.
const LEAST_BYTES: u64 = 4 << 20;

/// A file that is read ahead if that pays, and can be done.
pub(super) enum Ahead {
    Plain(File),
    Thread(Pieces),
}

impl Ahead {
    pub(super) fn new(file: File) -> Self {
        // Pipes say that they have no bytes; who writes them is ahead anyway.
        if !file.metadata().is_ok_and(|data| data.is_file() && data.len() >= LEAST_BYTES) {
            return Self::Plain(file);
        }
        let Ok(mut twin) = file.try_clone() else { return Self::Plain(file) };
        let (sender, full) = sync_channel(PIECES);
        let (spare, emptied) = sync_channel(PIECES + 2);
        let started = thread::Builder::new()
            .name("memtrack-read".into())
            .spawn(move || read_pieces(&mut twin, &sender, &emptied));
        match started {
            Ok(_) => Self::Thread(Pieces { full, spare, piece: Vec::new(), taken: 0, ended: false }),
            Err(_) => Self::Plain(file),
        }
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(buffer),
            Self::Thread(pieces) => pieces.read(buffer),
        }
    }
}

/// What the thread has read.
pub(super) struct Pieces {
    full: Receiver<io::Result<Vec<u8>>>,
    /// Pieces go back to be filled again.
    spare: SyncSender<Vec<u8>>,
    piece: Vec<u8>,
    /// Bytes of the piece that were given out.
    taken: usize,
    ended: bool,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() && !self.ended && !buffer.is_empty() {
            // A thread that is gone has said why, or was at the end.
            match self.full.recv() {
                Ok(next) => {
                    let _ = self.spare.try_send(std::mem::replace(&mut self.piece, next?));
                    self.taken = 0;
                }
                Err(_) => self.ended = true,
            }
        }
        let ready = &self.piece[self.taken..];
        let count = ready.len().min(buffer.len());
        buffer[..count].copy_from_slice(&ready[..count]);
        self.taken += count;
        Ok(count)
    }
}

/// Reads until the end, a failure, or nobody wants more.
fn read_pieces(file: &mut File, full: &SyncSender<io::Result<Vec<u8>>>, emptied: &Receiver<Vec<u8>>) {
    loop {
        let mut piece = emptied.try_recv().unwrap_or_default();
        piece.resize(PIECE_BYTES, 0);
        let read = match file.read(&mut piece) {
            Ok(0) => return,
            Ok(count) => {
                piece.truncate(count);
                Ok(piece)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let failed = read.is_err();
        if full.send(read).is_err() || failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file_of(bytes: &[u8]) -> (tempfile::TempDir, File) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        File::create(&path).unwrap().write_all(bytes).unwrap();
        (folder, File::open(path).unwrap())
    }

    #[test]
    fn every_byte_arrives_once_and_in_order() {
        let bytes: Vec<u8> =
            (0..LEAST_BYTES as usize + 12_345).map(|n| (n ^ n >> 8 ^ n >> 16) as u8).collect();
        let (_folder, file) = file_of(&bytes);
        let mut ahead = Ahead::new(file);
        assert!(matches!(ahead, Ahead::Thread(_)));
        let (mut whole, mut some) = (Vec::new(), [0; 1000]);
        while whole.len() < 300_000 {
            let count = ahead.read(&mut some).unwrap();
            whole.extend_from_slice(&some[..count]);
        }
        ahead.read_to_end(&mut whole).unwrap();
        assert!(whole == bytes);
        assert_eq!(ahead.read(&mut some).unwrap(), 0);
    }

    #[test]
    fn small_files_need_no_thread_and_a_reader_may_stop_early() {
        let (_folder, file) = file_of(b"small");
        let mut ahead = Ahead::new(file);
        assert!(matches!(ahead, Ahead::Plain(_)));
        let mut text = String::new();
        ahead.read_to_string(&mut text).unwrap();
        assert_eq!(text, "small");
        let (_folder, file) = file_of(&vec![7; 2 * LEAST_BYTES as usize]);
        let mut ahead = Ahead::new(file);
        ahead.read_exact(&mut [0; 10]).unwrap();
        drop(ahead);
    }
}
