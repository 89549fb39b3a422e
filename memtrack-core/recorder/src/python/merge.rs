//! The places of Python frames among the native frames of a stack: they replace the frames of the function that runs them,
//! the evaluator (`_PyEval_EvalFrameDefault`).
//!
//! The program does this itself if it finds a frame of the evaluator for each call that the Python frames stand for. A
//! compiler may have moved parts of the evaluator elsewhere, which only the file's symbol table shows; such a stack is
//! recorded with its Python frames at the outer end, and the command merges it.
//!
//! **Which native frames are left out?** The evaluator's, and those of the interpreter's own binary that lie between two of
//! them with nothing from another binary in between: they only pass a call on from one line of Python to the next. What the
//! innermost line called stays, and so do all frames of other binaries.
//!
//! **Why in the program?** There may be ten native frames for each line of Python, and many instructions on a line. A stack
//! without them is a quarter as long, and is stored once for all instructions of its lines.

use super::word::FrameWord;

/// The word between the native and the Python frames of a stack that the command is to merge.
pub const UNMERGED: u64 = 0xa7 << 56 | 1 << 48;

/// Replaces each of the evaluator's frames by the Python frames that it ran, from the innermost one outwards. Python frames
/// that remain lie outside all frames that were replaced or, if none was, outside the innermost frames of the interpreter.
pub fn merge(
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
        // Only the places matter from here on.
        merged.extend(named.map(|frame| FrameWord { is_entry: false, ..*frame }.to_word()));
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
        let shown = |word| FrameWord::from_word(word).map_or(word, |frame| 1000 + u64::from(frame.location));
        merged.into_iter().map(shown).collect()
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
}
