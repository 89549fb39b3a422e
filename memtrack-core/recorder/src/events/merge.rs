//! Merges the events of many chunks. The stamps within a chunk only increase, so only chunks that overlap in time must
//! be sorted together: the events of a single-threaded program are copied once, one chunk at a time.

use super::chunk::Chunk;
use crate::settings;
use memtrack_model::event::Event;
use std::ops::Range;
use std::sync::Arc;

/// A range of a chunk's events. Events pushed after the range was created do not belong to it.
pub(super) struct Run {
    chunk: Arc<Chunk<Event>>,
    rows: Range<usize>,
    first_ticks: u64,
    last_ticks: u64,
}

impl Run {
    /// Returns the range of a chunk's events stamped `since..=moment`, and the range of later events; `None` instead of an
    /// empty range.
    pub(super) fn split(chunk: Arc<Chunk<Event>>, since: u64, moment: u64) -> (Option<Self>, Option<Self>) {
        let len = chunk.len();
        let from = chunk.partition_point(len, |event| event.ticks < since);
        let to = chunk.partition_point(len, |event| event.ticks <= moment).max(from);
        (Self::of(Arc::clone(&chunk), from..to), Self::of(chunk, to..len))
    }

    fn of(chunk: Arc<Chunk<Event>>, rows: Range<usize>) -> Option<Self> {
        let first_ticks = chunk.iter_rows(rows.clone()).next()?.ticks;
        let last_ticks = chunk.iter_rows(rows.end - 1..rows.end).next()?.ticks;
        Some(Self { chunk, rows, first_ticks, last_ticks })
    }

    /// Removes the events whose actions do not belong in recordings; `None` if none remain.
    pub(super) fn without_unwanted(self) -> Option<Self> {
        let wanted: Vec<Event> = self.events().filter(|event| settings::is_wanted(event.action)).collect();
        let rows = 0..wanted.len();
        if rows == (0..self.rows.len()) {
            Some(self)
        } else {
            Self::of(Arc::new(Chunk::filled(wanted)), rows)
        }
    }

    /// Returns the number of events in the range.
    pub(super) fn len(&self) -> u64 {
        self.rows.len() as u64
    }

    /// Returns the events in the range.
    pub(super) fn events(&self) -> impl DoubleEndedIterator<Item = Event> {
        self.chunk.iter_rows(self.rows.clone())
    }
}

/// Passes the newest `max_entries` events of the `runs` to `sink` in batches, in merge order (by stamp, then by
/// thread). Each run is dropped as soon as it is copied.
pub(super) fn newest(mut runs: Vec<Run>, max_entries: u64, mut sink: impl FnMut(&[Event])) {
    let mut surplus = runs.iter().map(Run::len).sum::<u64>().saturating_sub(max_entries);
    runs.sort_by_key(|run| run.first_ticks);
    let mut runs = runs.into_iter().peekable();
    let mut events = Vec::new();
    while let Some(run) = runs.next() {
        let mut last_ticks = run.last_ticks;
        let mut is_single_run = true;
        events.clear();
        events.extend(run.events());
        drop(run);
        while let Some(overlapping) = runs.next_if(|next| next.first_ticks <= last_ticks) {
            last_ticks = last_ticks.max(overlapping.last_ticks);
            events.extend(overlapping.events());
            is_single_run = false;
        }
        if !is_single_run {
            events.sort_by_key(|event| (event.ticks, event.thread));
        }
        let skipped = surplus.min(events.len() as u64);
        surplus -= skipped;
        sink(&events[skipped as usize..]);
    }
}
