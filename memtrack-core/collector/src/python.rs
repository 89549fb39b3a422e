//! The Python frames of stacks. The program has put most of them at their places among the native frames; where it could not,
//! because it does not know all parts of the function that runs them (`_PyEval_EvalFrameDefault`), that is done here. Then
//! the frames get addresses, by which the file refers to their names.

use memtrack_model::Frame;
use memtrack_model::snapshot::{KnownNames, is_omission_of_outer_frames};
use memtrack_recorder::python::{FrameWord, UNMERGED, merge};
use memtrack_symbols::parts_of_function;
use std::ops::Range;
use std::path::Path;

/// The function that runs Python frames.
const EVALUATOR: &str = "_PyEval_EvalFrameDefault";

/// The address of the first location; the others follow. It is above all addresses of programs and below those of the
/// next process in a recording of all processes.
const FIRST_ADDRESS: u64 = 1 << 47;

/// The Python interpreter of a process.
#[derive(Debug, Default)]
pub(crate) struct Python {
    /// The code of the evaluator, in one or several parts; `None` until a stack needs it.
    evaluator: Option<Vec<Range<u64>>>,
    /// The part of the evaluator that its binary exports.
    exported: Range<u64>,
    /// The code of the binary that contains the evaluator.
    binary: Range<u64>,
    /// The path of that binary and its load address, if the program has reported them.
    file: Option<(String, u64)>,
}

impl Python {
    /// Creates the interpreter whose evaluator the program found at the `exported` addresses. `binary` contains it: its path,
    /// its code and its load address.
    pub(crate) fn new(exported: Range<u64>, binary: Option<(&str, Range<u64>, u64)>) -> Self {
        let (file, binary) = match binary {
            Some((path, binary, bias)) => (Some((path.to_owned(), bias)), binary),
            None => (None, 0..0),
        };
        Self { evaluator: None, exported, binary, file }
    }

    /// Returns the parts of the evaluator.
    fn parts(&self) -> Vec<Range<u64>> {
        let Some((path, bias)) = &self.file else { return vec![self.exported.clone()] };
        let loaded = |part: Range<u64>| part.start.wrapping_add(*bias)..part.end.wrapping_add(*bias);
        let parts: Vec<Range<u64>> =
            parts_of_function(Path::new(path), EVALUATOR).into_iter().map(loaded).collect();
        // The file may have been replaced since it was loaded.
        if parts.contains(&self.exported) { parts } else { vec![self.exported.clone()] }
    }

    /// Returns a stack, innermost address first, with its Python frames at their places.
    pub(crate) fn place(&mut self, stack: Vec<u64>) -> Vec<u64> {
        let mut stack = self.merge_if_needed(stack);
        for word in &mut stack {
            if let Some(frame) = FrameWord::from_word(*word) {
                *word = address_of(frame.location);
            }
        }
        stack
    }

    fn merge_if_needed(&mut self, stack: Vec<u64>) -> Vec<u64> {
        let Some(native) = stack.iter().position(|&word| word == UNMERGED) else { return stack };
        let python: Vec<FrameWord> =
            stack[native + 1..].iter().filter_map(|&word| FrameWord::from_word(word)).collect();
        if self.evaluator.is_none() {
            self.evaluator = Some(self.parts());
        }
        let evaluator = self.evaluator.as_deref().unwrap_or_default();
        // A return address may be that of the function that follows.
        let is_evaluator = |address: u64| evaluator.iter().any(|part| part.contains(&(address - 1)));
        let is_interpreter = |address: u64| self.binary.contains(&(address - 1));
        let mut merged = merge(&stack[..native], &python, is_evaluator, is_interpreter);
        merged.extend(stack.last().filter(|&&word| is_omission_of_outer_frames(word)));
        merged
    }
}

/// Returns the address that stands for a location in the file.
fn address_of(location: u32) -> u64 {
    FIRST_ADDRESS + u64::from(location)
}

/// Adds the name of a location.
pub(crate) fn add_name(names: &mut KnownNames, number: u32, line: u32, file: String, function: String) {
    let frame = Frame { function, file: Some(file), line: (line > 0).then_some(line), binary: None };
    names.frames.insert(address_of(number), vec![frame]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::snapshot::OUTER_FRAMES_OMITTED;

    #[test]
    fn stack_without_python_frames_is_unchanged() {
        let stack = vec![5, 101, 7];
        assert_eq!(Python::default().place(stack.clone()), stack);
    }

    #[test]
    fn frames_get_the_addresses_of_their_locations() {
        let frame = FrameWord { location: 3, is_entry: true }.to_word();
        let merged = Python::default().place(vec![5, frame, 7]);
        assert_eq!(merged, [5, FIRST_ADDRESS + 3, 7]);
        let unmerged = Python::new(100..110, None).place(vec![5, 105, 7, UNMERGED, frame]);
        assert_eq!(unmerged, [5, FIRST_ADDRESS + 3, 7]);
        let shortened =
            Python::new(100..110, None).place(vec![5, 105, UNMERGED, frame, OUTER_FRAMES_OMITTED]);
        assert_eq!(shortened, [5, FIRST_ADDRESS + 3, OUTER_FRAMES_OMITTED]);
    }
}
