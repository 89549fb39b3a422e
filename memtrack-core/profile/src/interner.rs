//! Assigns one id to each distinct string in a trace.

use foldhash::HashMap;
use memtrack_model::snapshot::{StringId, StringTable};

/// The strings that have been interned so far.
#[derive(Default)]
pub(crate) struct Interner(HashMap<Box<[u8]>, StringId>);

impl Interner {
    /// Returns the id of `text` in `table`. The table must not be modified other than through this interner.
    pub(crate) fn intern(&mut self, table: &mut StringTable, text: &str) -> StringId {
        if text.is_empty() {
            return StringId::EMPTY;
        }
        if let Some(&id) = self.0.get(text.as_bytes()) {
            return id;
        }
        let id = table.push(text.as_bytes());
        self.0.insert(text.as_bytes().into(), id);
        id
    }
}
