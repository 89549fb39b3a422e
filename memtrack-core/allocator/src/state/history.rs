//! A device's history: its newest events, including every kind that PyTorch records.

use crate::recorder::{self, Caller};
use memtrack_model::event::{Action, ScopeId, StackId, StreamId};
use memtrack_model::options::Context;
use memtrack_model::snapshot::pytorch::MempoolId;
use std::collections::VecDeque;

/// One event in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEntry {
    /// The time in nanoseconds since the Unix epoch. Within a history it is in ticks, which are converted when
    /// the history is read.
    pub time_ns: u64,
    /// The address, or the device's free bytes for [`Action::Oom`].
    pub address: u64,
    /// The size in bytes: the requested size for a block, the size of a segment, or the number of active bytes
    /// for a snapshot.
    pub size: u64,
    /// The stream that owns the block.
    pub stream: StreamId,
    /// The pool that the block is in.
    pub pool: MempoolId,
    /// The caller's stack.
    pub stack: StackId,
    /// The innermost open scope.
    pub scope: ScopeId,
    /// The kind of event.
    pub action: Action,
}

/// Options for a history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HistoryOptions {
    /// Whether events are kept. If not, only the stacks of live blocks and the newest event are kept, as with
    /// PyTorch's `enabled="state"`.
    pub events: bool,
    /// The events for which stacks are kept: one of the modes of `torch.cuda.memory._record_memory_history`.
    pub context: Context,
    /// The maximum number of events to keep per device. The oldest are dropped first.
    pub max_entries: usize,
    /// Whether the events recorded so far are dropped when recording starts.
    pub clear: bool,
    /// Events that are not recorded.
    pub skip_actions: Vec<Action>,
}

impl Default for HistoryOptions {
    /// Returns PyTorch's default: all events and stacks, with no limit.
    fn default() -> Self {
        Self {
            events: true,
            context: Context::All,
            max_entries: usize::MAX,
            clear: false,
            skip_actions: Vec::new(),
        }
    }
}

impl HistoryOptions {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether events are kept.
    #[must_use]
    pub fn events(mut self, events: bool) -> Self {
        self.events = events;
        self
    }

    /// Sets the events for which stacks are kept.
    #[must_use]
    pub fn context(mut self, context: Context) -> Self {
        self.context = context;
        self
    }

    /// Sets the maximum number of events to keep per device.
    #[must_use]
    pub fn max_entries(mut self, max_entries: usize) -> Self {
        self.max_entries = max_entries;
        self
    }

    /// Sets whether the events recorded so far are dropped when recording starts.
    #[must_use]
    pub fn clear(mut self, clear: bool) -> Self {
        self.clear = clear;
        self
    }

    /// Sets the events that are not recorded.
    #[must_use]
    pub fn skip_actions(mut self, actions: impl Into<Vec<Action>>) -> Self {
        self.skip_actions = actions.into();
        self
    }
}

/// A device's events.
#[derive(Debug)]
pub(crate) struct History {
    pub(crate) enabled: bool,
    pub(crate) stacks: Context,
    entries: VecDeque<TraceEntry>,
    max_entries: usize,
    /// Bit `action as u16` is set for each action that is not recorded.
    skipped: u16,
}

impl Default for History {
    /// Returns a history that keeps no events.
    fn default() -> Self {
        let entries = VecDeque::new();
        Self { enabled: false, stacks: Context::None, entries, max_entries: 0, skipped: 0 }
    }
}

impl History {
    /// Starts recording; `None` stops recording and drops the events.
    pub(crate) fn set(&mut self, options: Option<&HistoryOptions>) {
        let Some(options) = options else {
            *self = Self::default();
            return;
        };
        self.enabled = true;
        self.stacks = options.context;
        self.max_entries = if options.events { options.max_entries.max(1) } else { 1 };
        self.skipped = options.skip_actions.iter().fold(0, |mask, &action| mask | 1 << action as u16);
        if options.clear {
            self.entries.clear();
        }
        while self.entries.len() > self.max_entries {
            self.entries.pop_front();
        }
    }

    /// Captures the caller of an allocation to the extent that the options require.
    #[inline]
    pub(crate) fn capture_allocation(&self) -> Caller {
        self.capture(self.stacks != Context::None)
    }

    /// Captures the caller of a free to the extent that the options require.
    #[inline]
    pub(crate) fn capture_free(&self) -> Caller {
        self.capture(self.stacks == Context::All)
    }

    #[inline(always)]
    fn capture(&self, stack: bool) -> Caller {
        if self.enabled || stack { Caller::capture(stack) } else { Caller::default() }
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: TraceEntry) {
        if self.skipped >> entry.action as u16 & 1 == 1 {
            return;
        }
        if self.entries.len() >= self.max_entries {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Returns all entries, oldest first, with ticks converted to times.
    pub(crate) fn entries(&self) -> Vec<TraceEntry> {
        convert_ticks(self.entries.iter().copied())
    }

    /// Removes and returns all entries, oldest first, with ticks converted to times.
    pub(crate) fn drain(&mut self) -> Vec<TraceEntry> {
        convert_ticks(self.entries.drain(..))
    }
}

fn convert_ticks(entries: impl ExactSizeIterator<Item = TraceEntry>) -> Vec<TraceEntry> {
    if entries.len() == 0 {
        return Vec::new();
    }
    let clock = recorder::clock();
    entries.map(|entry| TraceEntry { time_ns: clock.time_ns(entry.time_ns), ..entry }).collect()
}
