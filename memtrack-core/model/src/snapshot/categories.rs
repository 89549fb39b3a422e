//! What events' memory was for.

/// The category of each event of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCategories {
    /// Names of categories, in lower case: `parameter`.
    pub names: Vec<String>,
    /// By row of the events: 1 + the place in [`Self::names`]; 0 where nothing is known.
    pub of_event: Vec<u8>,
}

impl EventCategories {
    /// The category of an event's memory.
    pub fn of_event(&self, row: usize) -> Option<&str> {
        let number = usize::from(*self.of_event.get(row)?);
        self.names.get(number.checked_sub(1)?).map(String::as_str)
    }
}
