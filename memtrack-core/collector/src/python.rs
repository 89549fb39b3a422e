//! The Python frames of stacks. The program reports them at the outer end of a stack, because it cannot tell which of its
//! native frames belong to the interpreter; here they replace the frames of the function that runs them
//! (`_PyEval_EvalFrameDefault`).
//!
//! **Which native frames are left out?** The evaluator's, and those of the interpreter's own binary that lie between two of
//! them with nothing from another binary in between: they only pass a call on from one line of Python to the next. What the
//! innermost line called stays, and so do all frames of other binaries.

use memtrack_model::Frame;
use memtrack_model::snapshot::KnownNames;
use memtrack_recorder::python::FrameWord;
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
    /// The code of the evaluator, in one or several parts.
    evaluator: Vec<Range<u64>>,
    /// The code of the binary that contains the evaluator.
    binary: Range<u64>,
}

impl Python {
    /// Creates the interpreter whose evaluator the program found at the `exported` addresses. `binary` contains it: its path,
    /// its code and its load address.
    pub(crate) fn new(exported: Range<u64>, binary: Option<(&str, Range<u64>, u64)>) -> Self {
        let Some((path, binary, bias)) = binary else {
            return Self { evaluator: vec![exported], binary: 0..0 };
        };
        let loaded = |part: Range<u64>| part.start.wrapping_add(bias)..part.end.wrapping_add(bias);
        let parts: Vec<Range<u64>> =
            parts_of_function(Path::new(path), EVALUATOR).into_iter().map(loaded).collect();
        // The file may have been replaced since it was loaded.
        let evaluator = if parts.contains(&exported) { parts } else { vec![exported] };
        Self { evaluator, binary }
    }

    /// Returns a stack, innermost address first, with its Python frames at their places.
    pub(crate) fn merge(&self, stack: Vec<u64>) -> Vec<u64> {
        let native =
            stack.iter().position(|&word| FrameWord::from_word(word).is_some()).unwrap_or(stack.len());
        if native == stack.len() {
            return stack;
        }
        let python: Vec<FrameWord> =
            stack[native..].iter().filter_map(|&word| FrameWord::from_word(word)).collect();
        // A return address may be that of the function that follows.
        let is_evaluator = |address: u64| self.evaluator.iter().any(|part| part.contains(&(address - 1)));
        let is_interpreter = |address: u64| self.binary.contains(&(address - 1));
        merge(&stack[..native], &python, is_evaluator, is_interpreter)
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

/// Replaces each of the evaluator's frames by the Python frames that it ran, from the innermost one outwards. Python frames
/// that remain lie outside all frames that were replaced or, if none was, outside the innermost frames of the interpreter.
fn merge(
    native: &[u64],
    python: &[FrameWord],
    is_evaluator: impl Fn(u64) -> bool,
    is_interpreter: impl Fn(u64) -> bool,
) -> Vec<u64> {
    let mut calls = python.split_inclusive(|frame| frame.is_entry);
    let mut merged = Vec::with_capacity(native.len() + python.len());
    // The frames of the interpreter since the last Python frame, as long as no other binary's frame was there.
    let mut passing_on = Vec::new();
    let mut is_after_python = false;
    let mut end_of_python = None;
    let add = |call: &[FrameWord], merged: &mut Vec<u64>| {
        let named = call.iter().filter(|frame| frame.location != 0);
        merged.extend(named.map(|frame| address_of(frame.location)));
    };
    for &address in native {
        let call = if address != 0 && is_evaluator(address) { calls.next() } else { None };
        if let Some(call) = call {
            if is_after_python {
                passing_on.clear();
            }
            merged.append(&mut passing_on);
            add(call, &mut merged);
            is_after_python = true;
            end_of_python = Some(merged.len());
        } else if address != 0 && is_interpreter(address) {
            passing_on.push(address);
        } else {
            merged.append(&mut passing_on);
            merged.push(address);
            is_after_python = false;
        }
    }
    merged.append(&mut passing_on);
    let mut rest = Vec::new();
    calls.for_each(|call| add(call, &mut rest));
    let outside = end_of_python.unwrap_or_else(|| {
        let of_interpreter = |&address: &u64| address != 0 && is_interpreter(address);
        let first = merged.iter().position(of_interpreter);
        first.map_or(merged.len(), |first| {
            merged[first..]
                .iter()
                .position(|address| !of_interpreter(address))
                .map_or(merged.len(), |run| first + run)
        })
    });
    merged.splice(outside..outside, rest);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The evaluator has the addresses 100 to 109, the interpreter 100 to 199.
    fn merged(native: &[u64], python: &[FrameWord]) -> Vec<u64> {
        let merged = merge(
            native,
            python,
            |address| (100..110).contains(&(address - 1)),
            |address| (100..200).contains(&(address - 1)),
        );
        // Locations are shown as numbers from 1000 on.
        merged
            .into_iter()
            .map(|address| if address > FIRST_ADDRESS { address - FIRST_ADDRESS + 1000 } else { address })
            .collect()
    }

    fn inner(location: u32) -> FrameWord {
        FrameWord { location, is_entry: false }
    }

    fn entry(location: u32) -> FrameWord {
        FrameWord { location, is_entry: true }
    }

    #[test]
    fn each_call_of_the_evaluator_becomes_its_frames() {
        // malloc, list_append, evaluator, call, evaluator, main.
        let native = [5, 150, 101, 160, 105, 170, 7];
        assert_eq!(merged(&native, &[entry(1), entry(2)]), [5, 150, 1001, 1002, 170, 7]);
        let python = [inner(1), entry(2), inner(3), inner(4), entry(5)];
        assert_eq!(merged(&native, &python), [5, 150, 1001, 1002, 1003, 1004, 1005, 170, 7]);
    }

    #[test]
    fn frames_of_other_binaries_between_python_frames_stay() {
        // sqlite3 calls back into Python.
        let native = [5, 101, 160, 50, 51, 161, 101, 7];
        assert_eq!(merged(&native, &[entry(1), entry(2)]), [5, 1001, 160, 50, 51, 161, 1002, 7]);
    }

    #[test]
    fn frames_without_a_name_only_pair_calls() {
        let native = [5, 101, 160, 101, 7];
        assert_eq!(merged(&native, &[entry(0), inner(1), entry(2)]), [5, 1001, 1002, 7]);
    }

    #[test]
    fn python_frames_are_never_lost() {
        // The native stack ends too early, or the evaluator is not known.
        assert_eq!(merged(&[5, 101, 160], &[entry(1), entry(2), entry(3)]), [5, 1001, 1002, 1003, 160]);
        assert_eq!(merged(&[5, 150, 160, 7], &[entry(1), entry(2)]), [5, 150, 160, 1001, 1002, 7]);
        assert_eq!(merged(&[5, 7], &[entry(1)]), [5, 7, 1001]);
        assert_eq!(merged(&[], &[inner(1), inner(2)]), [1001, 1002]);
    }

    #[test]
    fn further_calls_of_the_evaluator_stay_native() {
        // The innermost frames of a deep recursion are kept, or another interpreter runs.
        assert_eq!(merged(&[101, 160, 102, 161, 7], &[inner(1), entry(2)]), [1001, 1002, 160, 102, 161, 7]);
    }

    #[test]
    fn stack_without_python_frames_is_unchanged() {
        let stack = vec![5, 101, 7];
        assert_eq!(Python::default().merge(stack.clone()), stack);
    }
}
