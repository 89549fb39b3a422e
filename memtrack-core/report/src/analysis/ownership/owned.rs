//! The line of a stack that a person would name: the innermost frame in the user's code, and the function that
//! it called.

use super::names::{self, foreign_prefix, is_unnamed, short};
use super::{Judged, Owner};
use crate::analysis::trim::{is_internal, is_plumbing};
use memtrack_model::Frame;
use std::fmt;

/// The owner of a stack, which requested the memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Owned {
    /// The innermost frame in the user's code; none where there is none in the stack.
    pub mine: Option<Frame>,
    /// The framework's function that it called; none where it allocates itself. If nothing is the user's, the
    /// outermost function of a framework, or else the innermost informative one: an interpreter's, for memory
    /// that it allocates for a script that is not in the stack.
    pub called: Option<Frame>,
}

impl Owned {
    /// Formats the user's line alone, or its substitute: `train.py:53 step`.
    pub fn line(&self) -> String {
        match (&self.mine, &self.called) {
            (Some(mine), _) => short(mine),
            (None, Some(called)) => format!("{}{}", foreign_prefix(Owner::Framework), short(called)),
            (None, None) => foreign_prefix(Owner::Noise).into(),
        }
    }
}

/// `train.py:53 step → adamw.py:176 step`, or `not your code: …`.
impl fmt::Display for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        match (&self.mine, &self.called) {
            (Some(_), Some(called)) => write!(f, " → {}", short(called)),
            _ => Ok(()),
        }
    }
}

/// Finds the owner of a stack, innermost frame first.
pub(super) fn of(stack: &[&Judged]) -> Owned {
    let owners = owners(stack);
    let mine = owners.iter().position(|&owner| owner == Owner::Mine);
    // The outermost of a framework: of the called functions, or of the whole stack.
    let called = owners[..mine.unwrap_or(owners.len())].iter().rposition(|&owner| owner == Owner::Framework);
    let called = called.or_else(|| if mine.is_none() { is_informative(stack) } else { None });
    let frame = |place: usize| stack[place].frame.clone();
    Owned { mine: mine.map(frame), called: called.map(frame) }
}

/// Returns the innermost frame that neither performs an allocation nor passes a call on.
fn is_informative(stack: &[&Judged]) -> Option<usize> {
    let entered = stack.iter().rposition(|judged| judged.is_entry).map_or(0, |entry| entry + 1);
    let is_informative = |judged: &&&Judged| {
        let frame = &judged.frame;
        !is_unnamed(&frame.function) && !is_plumbing(&frame.function) && !is_internal(frame)
    };
    Some(entered + stack[entered..].iter().position(|judged| is_informative(&judged))?)
}

/// Returns the owners of the frames, now that the whole stack is known.
pub(super) fn owners(stack: &[&Judged]) -> Vec<Owner> {
    // Everything inside an allocator that the program brought itself is that allocator's work.
    let entered = stack.iter().rposition(|judged| judged.is_entry);
    let interpreted = stack.iter().any(|judged| judged.is_interpreted);
    let in_torch = stack.iter().any(|judged| judged.is_torch);
    // The functions of a program have either all their lines or none: beside a line in the user's code, a function without
    // one is a library's.
    let has_own_source = stack.iter().any(|judged| judged.has_own_source);
    let owner = |(place, judged): (usize, &&Judged)| match judged.verdict.owner {
        _ if entered.is_some_and(|entry| place <= entry) => Owner::Noise,
        // Python libraries are full of functions without a file, and hardly any of them is the user's. For a function of
        // a C library without symbols, PyTorch's stacks show the name of the nearest one with symbols.
        Owner::Mine if judged.verdict.guessed && in_torch && names::is_of_c(&judged.frame.function) => {
            Owner::Noise
        }
        Owner::Mine if judged.verdict.guessed && (interpreted || has_own_source) => Owner::Framework,
        owner => owner,
    };
    stack.iter().enumerate().map(owner).collect()
}
