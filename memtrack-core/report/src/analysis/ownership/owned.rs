//! Finds the line of a stack that a person would name: the innermost frame in the user's code, and the function that it
//! called.

use super::names::{self, foreign_prefix, is_unnamed, short};
use super::{JudgedFrame, Owner};
use crate::analysis::trim::{is_internal, is_plumbing};
use memtrack_model::Frame;
use std::fmt;

/// The line of the user's code in a stack that requested the memory, and the function that it called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct StackOwner {
    /// The innermost frame in the user's code; none if the stack has no such frame.
    pub mine: Option<Frame>,
    /// The framework function that the user's frame called; none if that frame itself allocates. In a stack without a
    /// frame of the user's, the outermost framework function, or else the innermost informative function: for example
    /// the interpreter's, for memory that it allocates for a script that is not in the stack.
    pub called: Option<Frame>,
}

impl StackOwner {
    /// Formats only the line of the user's code, `train.py:53 step`, or without one `not your code:` and the called
    /// function.
    pub fn line(&self) -> String {
        match (&self.mine, &self.called) {
            (Some(mine), _) => short(mine),
            (None, Some(called)) => format!("{}{}", foreign_prefix(Owner::Framework), short(called)),
            (None, None) => foreign_prefix(Owner::Noise).into(),
        }
    }
}

/// `train.py:53 step → adamw.py:176 step`, or `not your code: …`.
impl fmt::Display for StackOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        match (&self.mine, &self.called) {
            (Some(_), Some(called)) => write!(f, " → {}", short(called)),
            _ => Ok(()),
        }
    }
}

/// Finds the owner of a stack, innermost frame first.
pub(super) fn of(stack: &[&JudgedFrame]) -> StackOwner {
    let owners = owners(stack);
    let mine = owners.iter().position(|&owner| owner == Owner::Mine);
    // The outermost framework function, among the functions that the user's frame called, or else in the whole stack.
    let called = owners[..mine.unwrap_or(owners.len())].iter().rposition(|&owner| owner == Owner::Framework);
    let called = called.or_else(|| if mine.is_none() { innermost_informative(stack) } else { None });
    let frame = |place: usize| stack[place].frame.clone();
    StackOwner { mine: mine.map(frame), called: called.map(frame) }
}

/// Returns the index of the innermost frame that neither performs an allocation nor forwards a call.
fn innermost_informative(stack: &[&JudgedFrame]) -> Option<usize> {
    let entered = stack.iter().rposition(|judged| judged.is_entry).map_or(0, |entry| entry + 1);
    let is_informative = |judged: &&&JudgedFrame| {
        let frame = &judged.frame;
        !is_unnamed(&frame.function) && !is_plumbing(&frame.function) && !is_internal(frame)
    };
    Some(entered + stack[entered..].iter().position(|judged| is_informative(&judged))?)
}

/// Returns the owners of the frames. Unlike [`Rules::judge`](super::Rules::judge), this considers the whole stack.
pub(super) fn owners(stack: &[&JudgedFrame]) -> Vec<Owner> {
    // Everything inside the program's own allocator belongs to that allocator.
    let entered = stack.iter().rposition(|judged| judged.is_entry);
    let interpreted = stack.iter().any(|judged| judged.is_interpreted);
    let in_torch = stack.iter().any(|judged| judged.is_torch);
    // A program is compiled with line tables or without: if one function of the user's has a source file, a function
    // without one belongs to a library.
    let has_own_source = stack.iter().any(|judged| judged.has_own_source);
    let owner = |(place, judged): (usize, &&JudgedFrame)| match judged.verdict.owner {
        _ if entered.is_some_and(|entry| place <= entry) => Owner::Noise,
        // Python libraries are full of functions without a source file, and hardly any of them is the user's. For a
        // function without a symbol, PyTorch's stacks contain the name of the nearest symbol in the C library.
        Owner::Mine if judged.verdict.guessed && in_torch && names::is_c_name(&judged.frame.function) => {
            Owner::Noise
        }
        Owner::Mine if judged.verdict.guessed && (interpreted || has_own_source) => Owner::Framework,
        owner => owner,
    };
    stack.iter().enumerate().map(owner).collect()
}
