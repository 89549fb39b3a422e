//! The purpose of memory, either from a recording's operators or inferred.

/// The category of each event of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCategories {
    /// The names of the categories, in lower case, such as `parameter`.
    pub names: Vec<String>,
    /// For each event row, 1 plus the index in [`Self::names`], or 0 if nothing is known.
    pub of_event: Vec<u8>,
}

impl EventCategories {
    /// Returns the category of an event's memory.
    pub fn of_event(&self, row: usize) -> Option<&str> {
        let number = usize::from(*self.of_event.get(row)?);
        self.names.get(number.checked_sub(1)?).map(String::as_str)
    }
}

/// The purpose of blocks, inferred as far as possible for a file that does not contain it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InferredCategories {
    /// The names of the categories, in lower case, such as `parameter`.
    pub names: Vec<String>,
    /// For each row of an event that allocates a block, 1 plus the index in [`Self::names`], or 0 if nothing was
    /// inferred. If the allocation is not in the trace, the row is that of the event that requests or completes the
    /// block's free.
    pub of_event: Vec<u8>,
    /// The same number for each block that is live at the end, by row. It is used for blocks that have no event in the
    /// trace.
    pub of_block: Vec<u8>,
}
