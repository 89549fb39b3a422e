//! The log of operators: which scopes are entered and left, and which tensors the program reports, as lines in the
//! encoding of the file. Written only while a session requests it ([`switch::OPERATORS`]).
//!
//! Lines are appended to pieces of 64 KiB, each protected by the lock of a shard that is chosen by the thread's number:
//! so the lines of a thread are in order, and threads rarely contend. Lines are stamped like events (greater than the
//! thread's newest stamp), so that both can be merged. While a lock is held, bytes are copied and nothing is allocated.
//! When all pieces together have reached the bound, further lines are only counted: the first lines (the parameters)
//! are kept because they are needed to understand the later lines.

use super::fork::ForkCell;
use super::hooks::Hook;
use crate::{internal_bytes, reentry, switch};
use memtrack_file::operators::{MAX_FRAMED_BYTES, OperatorLine, append};
use memtrack_model::event::ScopeId;
use memtrack_model::snapshot::{OperatorLines, OperatorLog};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The size of a piece.
const PIECE_BYTES: usize = 64 << 10;
/// The maximum number of pieces.
const MAX_PIECES: usize = 1 << 10;
const SHARDS: usize = 16;

/// The maximum memory of the log.
#[cfg(test)]
pub(super) const MAX_BYTES: usize = MAX_PIECES * (PIECE_BYTES + SHARDS * size_of::<Arc<Piece>>());

static LOG: ForkCell<Log> = ForkCell::new(|| Log::new(MAX_PIECES));

struct Log {
    shards: [Mutex<Shard>; SHARDS],
    /// The number of pieces that exist or are being created; at most `max_pieces`.
    pieces: AtomicUsize,
    max_pieces: usize,
    left_out: AtomicU64,
}

struct Shard {
    filling: Option<Arc<Piece>>,
    /// Has capacity for the maximum number of pieces, so that it never grows.
    full: Vec<Arc<Piece>>,
}

struct Piece {
    base_ticks: u64,
    /// Has a fixed capacity of [`PIECE_BYTES`], so that it never grows under the lock.
    lines: Vec<u8>,
}

impl Piece {
    fn new(base_ticks: u64) -> Self {
        internal_bytes::add(PIECE_BYTES);
        Self { base_ticks, lines: Vec::with_capacity(PIECE_BYTES) }
    }

    fn copy(&self) -> OperatorLines {
        OperatorLines { base_ticks: self.base_ticks, lines: self.lines.clone() }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        internal_bytes::subtract(PIECE_BYTES);
    }
}

impl Log {
    fn new(max_pieces: usize) -> Self {
        internal_bytes::add(SHARDS * max_pieces * size_of::<Arc<Piece>>());
        let shard = || Mutex::new(Shard { filling: None, full: Vec::with_capacity(max_pieces) });
        Self {
            shards: std::array::from_fn(|_| shard()),
            pieces: AtomicUsize::new(0),
            max_pieces,
            left_out: AtomicU64::new(0),
        }
    }

    /// Calls `write` with a piece that has room for a line. If the bound is reached, the line is only counted.
    fn append(&self, number: usize, ticks: u64, write: impl FnOnce(&mut Piece)) {
        let shard = &self.shards[number % SHARDS];
        let mut fresh = None;
        loop {
            let mut shard = lock_shard(shard);
            if let Some(piece) = shard.with_room() {
                write(piece);
                break;
            }
            if fresh.is_some() {
                let full = std::mem::replace(&mut shard.filling, fresh.take());
                shard.full.extend(full);
                continue;
            }
            // A new piece is allocated while the shard is not locked.
            drop(shard);
            let more = |pieces| (pieces < self.max_pieces).then_some(pieces + 1);
            if self.pieces.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                return;
            }
            fresh = Some(Arc::new(Piece::new(ticks)));
        }
        if fresh.is_some() {
            // Another thread has added a piece meanwhile.
            self.pieces.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn copy(&self) -> OperatorLog {
        let mut pieces = Vec::new();
        for shard in &self.shards {
            let (full, filling) = {
                let mut full = Vec::with_capacity(self.max_pieces);
                let mut lines = Vec::with_capacity(PIECE_BYTES);
                let shard = lock_shard(shard);
                full.extend(shard.full.iter().cloned());
                let filling = shard.filling.as_ref().map(|piece| {
                    lines.extend_from_slice(&piece.lines);
                    OperatorLines { base_ticks: piece.base_ticks, lines }
                });
                (full, filling)
            };
            pieces.extend(full.iter().map(|piece| piece.copy()));
            pieces.extend(filling);
        }
        OperatorLog { pieces, left_out: self.left_out.load(Ordering::Relaxed) }
    }

    fn clear(&self) {
        for shard in &self.shards {
            let room = Vec::with_capacity(self.max_pieces);
            let (filling, full) = {
                let mut shard = lock_shard(shard);
                (shard.filling.take(), std::mem::replace(&mut shard.full, room))
            };
            self.pieces.fetch_sub(full.len() + usize::from(filling.is_some()), Ordering::Relaxed);
        }
        self.left_out.store(0, Ordering::Relaxed);
    }
}

impl Shard {
    /// Returns the piece that is being filled if it has room for a line.
    fn with_room(&mut self) -> Option<&mut Piece> {
        let piece = self.filling.as_mut().and_then(Arc::get_mut)?;
        (piece.lines.len() + MAX_FRAMED_BYTES <= PIECE_BYTES).then_some(piece)
    }
}

fn lock_shard(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs that the calling thread has entered a scope.
#[inline]
pub(crate) fn log_enter(scope: ScopeId) {
    if switch::is_on(switch::OPERATORS) {
        write_now(OperatorLine::enter, scope);
    }
}

/// Logs that the calling thread has left a scope.
#[inline]
pub(crate) fn log_leave(scope: ScopeId) {
    if switch::is_on(switch::OPERATORS) {
        write_now(OperatorLine::leave, scope);
    }
}

#[inline(never)]
fn write_now(line: fn(ScopeId) -> OperatorLine, scope: ScopeId) {
    write(&line(scope));
}

/// Logs a line, if operators are recorded and the thread is not inside memtrack.
pub(crate) fn write(line: &OperatorLine) {
    let Some(hook) = Hook::enter() else { return };
    // Checked again, now that the thread is marked active for collectors.
    if !switch::is_on(switch::OPERATORS) {
        return;
    }
    let inside = *hook;
    inside.with_room(move || {
        let ticks = inside.thread.stamp();
        let thread = inside.thread.thread_id();
        LOG.get().append(thread.index(), ticks, |piece| {
            append(&mut piece.lines, piece.base_ticks, ticks, thread, line.bytes());
        });
    });
}

/// Returns the log so far.
pub(super) fn all() -> OperatorLog {
    if !LOG.is_made() {
        return OperatorLog::default();
    }
    let _inside = reentry::enter();
    LOG.get().copy()
}

/// Removes all lines.
pub(super) fn clear() {
    if LOG.is_made() {
        let _inside = reentry::enter();
        LOG.get().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_file::operators::{Entry, read_lines};
    use memtrack_model::event::ThreadId;

    fn write_lines(log: &Log, thread: u32, scopes: std::ops::Range<u32>) {
        for scope in scopes {
            let (line, ticks) = (OperatorLine::enter(ScopeId(scope)), 1_000 + u64::from(scope));
            log.append(thread as usize, ticks, |piece| {
                append(&mut piece.lines, piece.base_ticks, ticks, ThreadId(thread), line.bytes());
            });
        }
    }

    fn scopes_of(log: &OperatorLog, thread: u32) -> Vec<u32> {
        let lines = log.pieces.iter().flat_map(|piece| read_lines(piece.base_ticks, &piece.lines));
        lines
            .filter(|line| line.thread == ThreadId(thread))
            .map(|line| match line.entry {
                Entry::Enter(scope) => {
                    assert_eq!(line.ticks, 1_000 + u64::from(scope.0));
                    scope.0
                }
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn lines_of_threads_that_share_a_shard_stay_in_order() {
        let log = Log::new(100);
        std::thread::scope(|scope| {
            for thread in [1, 2, 17, 18] {
                let log = &log;
                scope.spawn(move || write_lines(log, thread, 0..20_000));
            }
        });
        let copy = log.copy();
        assert_eq!(copy.left_out, 0);
        for thread in [1, 2, 17, 18] {
            assert!(scopes_of(&copy, thread).into_iter().eq(0..20_000));
        }
        assert_eq!(log.pieces.load(Ordering::Relaxed), copy.pieces.len());
    }

    #[test]
    fn the_first_lines_stay_at_the_bound_and_later_ones_are_counted() {
        let log = Log::new(3);
        write_lines(&log, 5, 0..200_000);
        let copy = log.copy();
        let bytes: usize = copy.pieces.iter().map(|piece| piece.lines.len()).sum();
        assert!(copy.pieces.len() == 3 && bytes <= 3 * PIECE_BYTES, "{copy:?}");
        let kept = scopes_of(&copy, 5);
        assert!(kept.len() > 10_000 && kept.iter().copied().eq(0..kept.len() as u32));
        assert_eq!(copy.left_out, 200_000 - kept.len() as u64);
        log.clear();
        assert!(log.copy().is_empty());
        write_lines(&log, 5, 0..10);
        assert!(scopes_of(&log.copy(), 5).into_iter().eq(0..10));
    }
}
