//! What stands where a list must: a report would take it for an empty one, and print a zero for what the file does not say
//! in a way that anybody understands. Everything else that is odd is kept as it is.

use crate::pytorch::read::finish::whole::{Refusal, shape};
use crate::pytorch::read::fold::rows::Table;
use crate::pytorch::read::fold::shapes::Sort;
use memtrack_model::snapshot::Value;
use memtrack_model::snapshot::pytorch::{Key, Records};

/// A value that is no list of what it must be.
#[derive(Debug)]
pub(super) struct Misplaced {
    /// Where, below the record that was looked at.
    path: String,
    found: &'static str,
    wanted: &'static str,
}

const FRAMES: &str = "a list of frames";

impl Misplaced {
    fn new(path: &str, value: &Value, wanted: &'static str) -> Self {
        Self { path: path.to_owned(), found: name(value), wanted }
    }

    fn below(mut self, path: &str) -> Self {
        self.path.insert_str(0, path);
        self
    }

    /// The error, for the record that stands at `path`.
    pub(super) fn at(self, path: &str) -> Refusal {
        shape(&format!("{path}{}", self.path), self.found, self.wanted)
    }
}

/// In an event.
pub(super) fn in_event(sorts: &[Sort; 5], row: usize) -> Result<(), Misplaced> {
    frames(&sorts[Table::Events as usize].records, row)
}

/// In a segment and its blocks.
pub(super) fn in_segment(sorts: &[Sort; 5], row: usize) -> Result<(), Misplaced> {
    let [segments, blocks] = [Table::Segments, Table::Blocks].map(|table| &sorts[table as usize].records);
    frames(segments, row)?;
    if let Some(odd) = segments.odd_under(row, Key::Blocks) {
        return Err(Misplaced::new(".blocks", odd, "a list of blocks"));
    }
    for (index, block) in segments.rows(row, Key::Blocks).enumerate() {
        let path = |found: Misplaced| found.below(&format!(".blocks[{index}]"));
        frames(blocks, block).map_err(path)?;
        if let Some(odd) = blocks.odd_under(block, Key::History) {
            history(odd).map_err(path)?;
        }
    }
    Ok(())
}

/// The tenants of a block.
fn history(value: &Value) -> Result<(), Misplaced> {
    let tenants = match value {
        Value::None => return Ok(()),
        Value::List(tenants) => tenants,
        _ => return Err(Misplaced::new(".history", value, "a list of tenants")),
    };
    for (index, tenant) in tenants.iter().enumerate() {
        let path = format!(".history[{index}]");
        let Value::Dict(entries) = tenant else {
            return Err(Misplaced::new(&path, tenant, "the dictionary of a tenant"));
        };
        let frames = Value::Str(Key::Frames.id());
        match entries.iter().find(|(key, _)| *key == frames) {
            Some((_, value)) if !are_frames(value) => {
                return Err(Misplaced::new(&format!("{path}.frames"), value, FRAMES));
            }
            _ => {}
        }
    }
    Ok(())
}

fn frames(records: &Records, row: usize) -> Result<(), Misplaced> {
    match records.odd_under(row, Key::Frames) {
        Some(odd) if !are_frames(odd) => Err(Misplaced::new(".frames", odd, FRAMES)),
        _ => Ok(()),
    }
}

/// Whether a value that is no stack yet says of frames what can be understood: a stack, or that there are none.
fn are_frames(value: &Value) -> bool {
    match value {
        Value::None | Value::Stack(_) => true,
        Value::List(items) => items.is_empty(),
        _ => false,
    }
}

fn name(value: &Value) -> &'static str {
    match value {
        Value::None => "None",
        Value::Bool(_) => "a boolean",
        Value::Int(_) | Value::Big(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Str(_) => "a string",
        Value::Bytes(_) => "bytes",
        Value::Tuple(_) => "a tuple of something else",
        Value::List(_) => "a list of something else",
        Value::Stack(_) => "a list of frames",
        Value::Dict(_) | Value::Frame(_) => "a dictionary",
        Value::Set(_) | Value::FrozenSet(_) => "a set",
    }
}
