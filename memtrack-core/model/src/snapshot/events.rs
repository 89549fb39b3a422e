//! Events as columns. The list of columns is defined once, and every operation on all columns is derived from that list.

use crate::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};

macro_rules! event_table {
    ($($(#[$doc:meta])* $column:ident: $value:ty,)*) => {
        /// Events as columns, all of the same length.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct EventTable {
            $($(#[$doc])* pub $column: Vec<$value>,)*
        }

        impl EventTable {
            /// Creates an empty table with room for `events` events.
            pub fn with_capacity(events: usize) -> Self {
                Self { $($column: Vec::with_capacity(events),)* }
            }

            /// Appends events, one column at a time.
            pub fn extend(&mut self, events: &[Event]) {
                $(self.$column.extend(events.iter().map(|event| event.$column));)*
            }

            /// Appends an event.
            pub fn push(&mut self, event: &Event) {
                $(self.$column.push(event.$column);)*
            }

            /// Returns the event in a row.
            ///
            /// # Panics
            /// Panics when `row` is not below [`Self::len`].
            pub fn get(&self, row: usize) -> Event {
                Event { $($column: self.$column[row],)* }
            }

            /// Keeps the events at `rows`, in that order. A row may occur several times or not at all.
            ///
            /// # Panics
            /// Panics when there is no such row.
            pub fn pick(&mut self, rows: &[u32]) {
                // Replace one column at a time, so that the extra memory is only one column.
                $(self.$column = rows.iter().map(|&row| self.$column[row as usize]).collect();)*
            }

            /// Appends the events of another table.
            pub fn append(&mut self, mut other: Self) {
                $(self.$column.append(&mut other.$column);)*
            }
        }
    };
}

event_table! {
    /// The times of the events, in ticks of the recorder's clock.
    ticks: u64,
    /// The addresses; see [`Event::address`].
    address: u64,
    /// The sizes that the client requested, in bytes.
    size_bytes: u64,
    /// The streams that own the blocks.
    stream: StreamId,
    /// The stacks; see [`Event::stack`].
    stack: StackId,
    /// The innermost scopes that were open on the threads.
    scope: ScopeId,
    /// The threads that performed the actions.
    thread: ThreadId,
    /// The devices that the memory is on.
    device: DeviceId,
    /// The kinds of events.
    action: Action,
    /// The flags, such as whether a block was sampled.
    flags: EventFlags,
}

impl EventTable {
    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.ticks.len()
    }

    /// Returns whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.ticks.is_empty()
    }

    /// Sorts the events by ticks, which merges the events of all threads. Events with equal ticks keep their order, so
    /// the order of each thread's events is preserved.
    pub fn sort_by_ticks(&mut self) {
        if self.ticks.is_sorted() {
            return;
        }
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_by_key(|&row| self.ticks[row as usize]);
        self.pick(&order);
    }

    /// Returns the events, in the order of the table.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event> + '_ {
        (0..self.len()).map(|row| self.get(row))
    }

    /// Returns the rows of the events of one device, in the order of the table.
    pub fn rows_of(&self, device: DeviceId) -> impl Iterator<Item = usize> + '_ {
        self.device.iter().enumerate().filter(move |(_, d)| **d == device).map(|(row, _)| row)
    }
}
