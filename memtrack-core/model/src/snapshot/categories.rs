//! The purpose of memory, from a recording's operators or inferred.

/// The category of each event of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCategories {
    /// Names of categories, in lower case: `parameter`.
    pub names: Vec<String>,
    /// By row of the events: 1 + the index in [`Self::names`]; 0 where nothing is known.
    pub of_event: Vec<u8>,
}

impl EventCategories {
    /// Returns the category of an event's memory.
    pub fn of_event(&self, row: usize) -> Option<&str> {
        let number = usize::from(*self.of_event.get(row)?);
        self.names.get(number.checked_sub(1)?).map(String::as_str)
    }
}

/// The purpose of blocks as far as it can be inferred, where a file does not contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferredCategories {
    /// Names of categories, in lower case: `parameter`.
    pub names: Vec<String>,
    /// By row of the events that allocate a block or, if the allocation is not in the trace, request or complete its free: 1 +
    /// the index in [`Self::names`]; 0 where nothing was inferred.
    pub of_event: Vec<u8>,
    /// The same by row of the blocks that are live at the end, for blocks without an event.
    pub of_block: Vec<u8>,
}
