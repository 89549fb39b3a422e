//! Of a stack, the line that a person would point at: the innermost frame that is the user's, and what it called.

use super::names::{nobodys, short};
use super::{Owner, Verdict};
use crate::analysis::torch_stacks::Line;
use crate::analysis::trim::is_allocator_entry;
use memtrack_model::Frame;
use std::fmt;

/// Who asked for the memory of a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Owned {
    /// The innermost frame that is the user's own; none where nothing of the stack is.
    pub mine: Option<Frame>,
    /// The framework's function that it called; none where it allocates itself. Where nothing is the user's, the
    /// outermost function of a framework.
    pub called: Option<Frame>,
}

impl Owned {
    /// The user's line alone, or what stands in its place: `train.py:53 step`.
    pub fn line(&self) -> String {
        match (&self.mine, &self.called) {
            (Some(mine), _) => short(mine),
            (None, Some(called)) => format!("{}{}", nobodys(Owner::Framework), short(called)),
            (None, None) => nobodys(Owner::Noise).into(),
        }
    }
}

/// `train.py:53 step → adamw.py:176 step`, or `not mine: …`.
impl fmt::Display for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        match (&self.mine, &self.called) {
            (Some(_), Some(called)) => write!(f, " → {}", short(called)),
            _ => Ok(()),
        }
    }
}

/// Finds the owner of a stack, innermost frame first, whose frames have these verdicts.
pub(super) fn of(stack: &[Frame], verdicts: &[Verdict]) -> Owned {
    // Inside of an allocator that the program brought itself everything is that allocator's work.
    let entered = stack.iter().rposition(|frame| is_allocator_entry(&frame.function));
    let outside = entered.map_or(0, |entry| entry + 1);
    let interpreted = stack.iter().any(is_interpreted);
    let owner = |verdict: &Verdict| match verdict.owner {
        // Python's libraries are full of functions without a file, and hardly any of them is the user's.
        Owner::Mine if verdict.guessed && interpreted => Owner::Framework,
        owner => owner,
    };
    let owners: Vec<Owner> = verdicts[outside..].iter().map(owner).collect();
    let frames = &stack[outside..];
    let frame = |place: usize| frames[place].clone();
    match owners.iter().position(|&owner| owner == Owner::Mine) {
        Some(mine) => {
            let called = owners[..mine].iter().rposition(|&owner| owner == Owner::Framework);
            Owned { mine: Some(frame(mine)), called: called.map(frame) }
        }
        None => {
            let outermost = owners.iter().rposition(|&owner| owner == Owner::Framework);
            Owned { mine: None, called: outermost.map(frame) }
        }
    }
}

/// Whether the frame is Python's, or of its interpreter.
fn is_interpreted(frame: &Frame) -> bool {
    let function = frame.function.as_str();
    Line::of(frame).is_python
        || function.starts_with("_PyEval_")
        || function.starts_with("PyObject_")
        || function.starts_with("_PyObject_")
        || function.starts_with("Py_RunMain")
}
