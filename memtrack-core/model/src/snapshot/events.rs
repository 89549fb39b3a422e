//! Events as columns. The list of columns is defined once, and every operation on all columns is derived from that list.
//! Tasks are an additional column, which most recordings do not have.

use crate::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, TaskId, ThreadId};

macro_rules! event_table {
    ($($(#[$doc:meta])* $column:ident: $value:ty,)*) => {
        /// Events as columns, all of the same length.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct EventTable {
            $($(#[$doc])* pub $column: Vec<$value>,)*
            /// The tasks that have allocated the blocks: as long as the other columns, or empty if no event belongs to a task.
            /// [`Self::task`] returns the task of a row in either case.
            pub tasks: Vec<TaskId>,
        }

        impl EventTable {
            /// Creates an empty table with room for `events` events.
            pub fn with_capacity(events: usize) -> Self {
                Self { $($column: Vec::with_capacity(events),)* tasks: Vec::new() }
            }

            /// Appends events, one column at a time.
            pub fn extend(&mut self, events: &[Event]) {
                $(self.$column.extend(events.iter().map(|event| event.$column));)*
                self.fill_tasks();
            }

            /// Appends an event.
            pub fn push(&mut self, event: &Event) {
                $(self.$column.push(event.$column);)*
                self.fill_tasks();
            }

            /// Returns the event in a row, without its task.
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
                if !self.tasks.is_empty() {
                    self.tasks = rows.iter().map(|&row| self.tasks[row as usize]).collect();
                }
            }

            /// Appends the events of another table.
            pub fn append(&mut self, mut other: Self) {
                if !other.tasks.is_empty() {
                    self.tasks.resize(self.ticks.len(), TaskId::NONE);
                    self.tasks.append(&mut other.tasks);
                }
                $(self.$column.append(&mut other.$column);)*
                self.fill_tasks();
            }

            /// Creates a table of the columns of a recording, of equal length: the column of streams contains the tasks of host
            /// events.
            #[allow(clippy::too_many_arguments, reason = "one for each column")]
            pub fn of_recorded_columns($($column: Vec<$value>,)*) -> Self {
                let mut table = Self { $($column,)* tasks: Vec::new() };
                table.separate_tasks(0);
                table
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
    /// Returns the task that has allocated the block of the event in a row, or [`TaskId::NONE`].
    pub fn task(&self, row: usize) -> TaskId {
        self.tasks.get(row).copied().unwrap_or_default()
    }

    /// Appends events of the recorder, whose streams are tasks on the host heap ([`Event::recorded_task`]).
    pub fn extend_recorded(&mut self, events: &[Event]) {
        let first = self.len();
        self.extend(events);
        self.separate_tasks(first);
    }

    /// Returns the event in a row as the recorder writes it: on the host heap, its stream is its task.
    ///
    /// # Panics
    /// Panics when `row` is not below [`Self::len`].
    pub fn get_recorded(&self, row: usize) -> Event {
        self.get(row).with_task(self.task(row))
    }

    /// Gives the events that were added last no task, if the table has a column of tasks.
    fn fill_tasks(&mut self) {
        if !self.tasks.is_empty() {
            self.tasks.resize(self.ticks.len(), TaskId::NONE);
        }
    }

    /// Moves the tasks of the host's events from row `first` on out of the column of streams.
    fn separate_tasks(&mut self, first: usize) {
        for row in first..self.len() {
            if self.device[row].is_host() && self.stream[row] != StreamId::default() {
                self.tasks.resize(self.ticks.len(), TaskId::NONE);
                self.tasks[row] = TaskId(std::mem::take(&mut self.stream[row]).0);
            }
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn event(ticks: u64, device: DeviceId, stream: u64) -> Event {
        Event { ticks, device, stream: StreamId(stream), ..Event::BLANK }
    }

    #[test]
    fn tasks_of_the_host_are_no_streams_and_events_are_returned_as_they_were_added() {
        let events = [
            event(4, DeviceId(0), 7),
            event(3, DeviceId::HOST, 0),
            event(2, DeviceId::HOST, 9),
            event(1, DeviceId::PINNED, 5),
            event(0, DeviceId::HOST, 0),
        ];
        let mut one_by_one = EventTable::default();
        events.iter().for_each(|&event| one_by_one.extend_recorded(&[event]));
        let mut extended = EventTable::with_capacity(5);
        extended.extend_recorded(&events[..1]);
        extended.extend_recorded(&events[1..]);
        let mut appended = EventTable::default();
        for part in [0..2, 2..4, 4..5] {
            let mut table = EventTable::default();
            table.extend_recorded(&events[part]);
            appended.append(table);
        }
        let recorded = |table: &EventTable| (0..5).map(|row| table.get_recorded(row)).collect::<Vec<_>>();
        for table in [&one_by_one, &extended, &appended] {
            assert_eq!(table.stream, [7, 0, 0, 5, 0].map(StreamId));
            assert_eq!(table.tasks, [0, 0, 9, 0, 0].map(TaskId));
            assert!(table.iter().all(|event| !event.device.is_host() || event.stream == StreamId(0)));
            assert_eq!(recorded(table), events);
        }
        extended.sort_by_ticks();
        let mut reversed = events.to_vec();
        reversed.reverse();
        assert_eq!(recorded(&extended), reversed);
        extended.push(&event(5, DeviceId::HOST, 3));
        assert_eq!((extended.stream[5], extended.task(5)), (StreamId(3), TaskId::NONE));
    }

    #[test]
    fn without_tasks_there_is_no_column() {
        let mut table = EventTable::default();
        table.extend_recorded(&[event(1, DeviceId::HOST, 0), event(2, DeviceId(3), 4)]);
        assert!(table.tasks.is_empty() && table.task(1) == TaskId::NONE);
    }

    #[test]
    fn ids_contain_the_place_and_the_number() {
        let id = TaskId::new(TaskId::PLACES - 1, (1 << 40) - 1);
        assert_eq!((id.place(), id.number()), (TaskId::PLACES as usize - 1, (1 << 40) - 1));
        assert!(TaskId::new(0, 0).is_none());
    }
}
