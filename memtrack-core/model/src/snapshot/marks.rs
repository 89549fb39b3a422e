//! Moments that the program marked. At each one, a step, a request or another interval that the program defines ends,
//! and the next interval starts.

use crate::event::ThreadId;

/// A moment that the program marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The time, in ticks.
    pub ticks: u64,
    /// The thread that marked the moment.
    pub thread: ThreadId,
    /// The name, as a row of [`Marks::names`].
    pub name: u32,
}

/// The moments that the program marked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The names of the moments, each listed once.
    pub names: Vec<String>,
    /// The moments, in chronological order once a file has been read or a snapshot taken.
    pub rows: Vec<Mark>,
    /// The number of older marks that were dropped because of the recorder's limit.
    pub left_out: u64,
}

impl Marks {
    /// Returns whether nothing was marked.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.left_out == 0
    }

    /// Returns the name of a moment.
    pub fn name(&self, mark: &Mark) -> &str {
        self.names.get(mark.name as usize).map_or("", String::as_str)
    }

    /// Appends a moment.
    pub fn push(&mut self, ticks: u64, thread: ThreadId, name: &str) {
        // There are few names, and successive marks usually share one.
        let known = self.names.iter().rposition(|known| known == name);
        let name = known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        });
        self.rows.push(Mark { ticks, thread, name: name as u32 });
    }
}
