//! The cold path: the file, function and line of a frame, read from its code object. The code object is always read by
//! the kernel, so that a wrong pointer to it is noticed and not followed.

use super::layout::{BYTES_CONTENT, BYTES_LENGTH, Chain, Layout, LineTable, OBJECT_TYPE};
use super::lines::line_at;
use super::memory::{Bytes, Checked, Memory};
use super::text::{Keep, text_at};

/// The maximum number of characters of a function's name and of a file's path.
const MAX_FUNCTION: usize = 256;
const MAX_FILE: usize = 1024;
/// The maximum length of a line table, in bytes: that of some hundred thousand lines.
const MAX_TABLE_BYTES: u64 = 16 << 20;

/// The maximum size of a code object up to its instructions.
const MAX_CODE_BYTES: usize = 256;

/// The beginning of the names of CPython's own files for `import`. Each nested import has five frames of theirs, which say
/// nothing: three quarters of the stacks of a program that starts.
const IMPORT_SYSTEM: &str = "<frozen importlib._bootstrap";

/// The place in the source that a frame has reached.
pub(super) enum Location {
    /// A frame that does not run code of its own yet, or that belongs to the import system. CPython leaves both out of its
    /// stacks, too.
    None,
    Found(Place),
}

/// A line of Python.
pub(super) struct Place {
    pub(super) file: String,
    pub(super) function: String,
    /// The line; 0 if the instruction has none.
    pub(super) line: u32,
}

/// Returns the location of the frame with this code object and instruction, or `None` if `code` is no code object.
/// `memory` reads what the code object refers to.
pub(super) fn locate(
    memory: impl Memory,
    code_type: u64,
    layout: &Layout,
    code: u64,
    instruction: u64,
    is_generator: bool,
) -> Option<Location> {
    let mut object = [0; MAX_CODE_BYTES];
    let object = object.get_mut(..layout.code_bytes as usize)?;
    if !code.is_multiple_of(8) || !Checked.copy(code, object) {
        return None;
    }
    let word = |at: u64| object.get(at as usize..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let number = |at: u64| object.get(at as usize..)?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes));
    if word(OBJECT_TYPE)? != code_type {
        return None;
    }
    let offset = match (layout.chain, layout.lines) {
        (Chain::Objects, LineTable::Ranges) => i64::from(instruction as i32) * 2,
        (Chain::Objects, _) => i64::from(instruction as i32),
        _ => {
            let offset = instruction.wrapping_sub(code + layout.code_instructions) as i64;
            // Instructions have two bytes.
            if offset / 2 < i64::from(number(layout.code_first_traceable)?) && !is_generator {
                return Some(Location::None);
            }
            offset
        }
    };
    let table = word(layout.code_line_table)?;
    let length = memory.word(table + BYTES_LENGTH).filter(|&length| length <= MAX_TABLE_BYTES)?;
    let bytes = Bytes::new(memory, table + BYTES_CONTENT, length as usize);
    let line = line_at(layout.lines, number(layout.code_first_line)?, bytes, offset).unwrap_or(0);
    let file = text_at(memory, layout, word(layout.code_file)?, MAX_FILE, Keep::End)?;
    if file.starts_with(IMPORT_SYSTEM) {
        return Some(Location::None);
    }
    let function = text_at(memory, layout, word(layout.code_name)?, MAX_FUNCTION, Keep::Beginning)?;
    Some(Location::Found(Place { file, function, line }))
}
