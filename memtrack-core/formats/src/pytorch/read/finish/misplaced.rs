//! Refuses values of other types where a list is expected. A report would treat such a value as an empty list and print
//! 0, although the file does contain data, in an unknown form. All other unusual values are kept unchanged.

use crate::pytorch::read::finish::finisher::{Refusal, shape_error};
use crate::pytorch::read::fold::rows::Table;
use crate::pytorch::read::fold::shapes::RecordTable;
use memtrack_model::snapshot::Value;
use memtrack_model::snapshot::pytorch::{Key, Records};

/// A value that takes the place of a list.
#[derive(Debug)]
pub(super) struct WrongValue {
    /// The position of the value, relative to the record that was checked.
    path: String,
    found: &'static str,
    wanted: &'static str,
}

const FRAME_LIST: &str = "a list of frames";

impl WrongValue {
    fn new(path: &str, value: &Value, wanted: &'static str) -> Self {
        Self { path: path.to_owned(), found: type_name(value), wanted }
    }

    fn within(mut self, path: &str) -> Self {
        self.path.insert_str(0, path);
        self
    }

    /// Returns the error for the record at `path`.
    pub(super) fn into_refusal(self, path: &str) -> Refusal {
        shape_error(&format!("{path}{}", self.path), self.found, self.wanted)
    }
}

/// Checks an event.
pub(super) fn check_event(tables: &[RecordTable; 5], row: usize) -> Result<(), WrongValue> {
    check_frames(&tables[Table::Events as usize].records, row)
}

/// Checks a segment and its blocks.
pub(super) fn check_segment(tables: &[RecordTable; 5], row: usize) -> Result<(), WrongValue> {
    let [segments, blocks] = [Table::Segments, Table::Blocks].map(|table| &tables[table as usize].records);
    check_frames(segments, row)?;
    if let Some(exact) = segments.exact_under(row, Key::Blocks) {
        return Err(WrongValue::new(".blocks", exact, "a list of blocks"));
    }
    for (index, block) in segments.rows(row, Key::Blocks).enumerate() {
        let path = |found: WrongValue| found.within(&format!(".blocks[{index}]"));
        check_frames(blocks, block).map_err(path)?;
        if let Some(exact) = blocks.exact_under(block, Key::History) {
            check_history(exact).map_err(path)?;
        }
    }
    Ok(())
}

/// Checks a block's history: the list of its tenants, which are the allocations that the block serves or served.
fn check_history(value: &Value) -> Result<(), WrongValue> {
    let tenants = match value {
        Value::None => return Ok(()),
        Value::List(tenants) => tenants,
        _ => return Err(WrongValue::new(".history", value, "a list of tenants")),
    };
    for (index, tenant) in tenants.iter().enumerate() {
        let path = format!(".history[{index}]");
        let Value::Dict(entries) = tenant else {
            return Err(WrongValue::new(&path, tenant, "the dictionary of a tenant"));
        };
        let frames = Value::Str(Key::Frames.id());
        match entries.iter().find(|(key, _)| *key == frames) {
            Some((_, value)) if !are_frames(value) => {
                return Err(WrongValue::new(&format!("{path}.frames"), value, FRAME_LIST));
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_frames(records: &Records, row: usize) -> Result<(), WrongValue> {
    match records.exact_under(row, Key::Frames) {
        Some(exact) if !are_frames(exact) => Err(WrongValue::new(".frames", exact, FRAME_LIST)),
        _ => Ok(()),
    }
}

/// Returns whether a value without a column is a valid list of frames, i.e. a stack, an empty list, or
/// `None`.
fn are_frames(value: &Value) -> bool {
    match value {
        Value::None | Value::Stack(_) => true,
        Value::List(items) => items.is_empty(),
        _ => false,
    }
}

fn type_name(value: &Value) -> &'static str {
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
