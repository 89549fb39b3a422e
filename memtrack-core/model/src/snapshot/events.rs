//! Events as columns. The list of columns is defined once, in the order used in files, and every operation on all
//! columns is derived from that list.

use crate::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};

/// A value in a column of an [`EventTable`], which can be converted to a number and back.
pub trait ColumnValue: Copy {
    /// Returns the value as a number.
    fn bits(self) -> u64;

    /// Returns the value with that number, or `None` if no value has it.
    fn from_bits(bits: u64) -> Option<Self>;
}

impl ColumnValue for u64 {
    fn bits(self) -> u64 {
        self
    }

    fn from_bits(bits: u64) -> Option<Self> {
        Some(bits)
    }
}

macro_rules! column_values {
    ($($id:ident($bits:ty))*) => {
        $(impl ColumnValue for $id {
            fn bits(self) -> u64 {
                self.0.into()
            }

            fn from_bits(bits: u64) -> Option<Self> {
                <$bits>::try_from(bits).ok().map(Self)
            }
        })*
    };
}

column_values! { StreamId(u64) StackId(u32) ScopeId(u32) ThreadId(u32) DeviceId(u16) EventFlags(u8) }

impl ColumnValue for Action {
    fn bits(self) -> u64 {
        u64::from(self as u8)
    }

    fn from_bits(bits: u64) -> Option<Self> {
        u8::try_from(bits).ok().and_then(Self::from_number)
    }
}

/// A receiver of event columns, which come one after another.
pub trait ColumnSink {
    /// Receives the next column.
    fn column(&mut self, values: impl Iterator<Item = u64>);
}

/// A source of event columns, which are read one after another.
pub trait ColumnSource {
    /// The error returned if a column cannot be read.
    type Error;

    /// Returns the next column. All columns have the same length.
    ///
    /// # Errors
    /// Fails if there is no further column, or if the column contains a number that is not a valid value.
    fn column<T: ColumnValue>(&mut self) -> Result<Vec<T>, Self::Error>;
}

macro_rules! event_table {
    ($($(#[$doc:meta])* $column:ident: $value:ty,)*) => {
        /// Events as columns, all of the same length.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct EventTable {
            $($(#[$doc])* pub $column: Vec<$value>,)*
        }

        impl EventTable {
            /// The number of columns.
            pub const COLUMNS: usize = [$(stringify!($column)),*].len();

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

            /// Writes events one column at a time, in the order used in files.
            pub fn write_columns(events: &[Event], sink: &mut impl ColumnSink) {
                $(sink.column(events.iter().map(|event| event.$column.bits()));)*
            }

            /// Reads a table whose columns come next in `source`.
            ///
            /// # Errors
            /// Fails if a column cannot be read.
            pub fn read_columns<S: ColumnSource>(source: &mut S) -> Result<Self, S::Error> {
                Ok(Self { $($column: source.column()?,)* })
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
