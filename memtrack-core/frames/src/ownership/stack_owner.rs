//! Finds the line that a person would name for a stack: the innermost frame in the user's code, along with the function
//! that it called.

use super::names::{self, foreign_prefix, is_unnamed, short};
use super::{JudgedFrame, Owner, table};
use crate::trim::{is_internal, is_plumbing};
use memtrack_model::Frame;
use serde::Serialize;
use std::fmt;

/// The line in the user's code that requested a stack's memory, and the function that it called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct StackOwner {
    /// The innermost line in the user's code in the row's stack; null if there is none, and in rankings without stacks.
    pub mine: Option<Frame>,
    /// The function that the line `mine` called, or null if that line allocated the memory itself. If `mine` is null, this
    /// is the function that stands for the row's stack instead: the outermost function of a framework or, failing that,
    /// the innermost informative one, such as that of an interpreter that allocates memory for a script that is not in the
    /// stack. Null in rankings without stacks.
    #[serde(rename = "calls")]
    pub called: Option<Frame>,
}

impl StackOwner {
    /// Formats only the line in the user's code, as in `train.py:53 step`; if there is none, `not your code:` and the
    /// called function.
    pub fn line(&self) -> String {
        match (&self.mine, &self.called) {
            (Some(mine), _) => short(mine),
            (None, Some(called)) => format!("{}{}", foreign_prefix(Owner::Framework), short(called)),
            (None, None) => foreign_prefix(Owner::Noise).into(),
        }
    }
}

/// Formats `train.py:53 step → adamw.py:176 step`, or `not your code: …`.
impl fmt::Display for StackOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())?;
        match (&self.mine, &self.called) {
            (Some(_), Some(called)) => write!(f, " → {}", short(called)),
            _ => Ok(()),
        }
    }
}

/// Determines the owner of a stack, innermost frame first.
pub(super) fn find_owner(stack: &[&JudgedFrame]) -> StackOwner {
    let owners = frame_owners(stack);
    let mine = owners.iter().position(|&owner| owner == Owner::Mine);
    // The outermost framework function among those that the user's frame called or, without such a frame, in the whole
    // stack.
    let called = owners[..mine.unwrap_or(owners.len())].iter().rposition(|&owner| owner == Owner::Framework);
    let called = called.or_else(|| if mine.is_none() { find_innermost_informative(stack) } else { None });
    let frame = |place: usize| stack[place].frame.clone();
    StackOwner { mine: mine.map(frame), called: called.map(frame) }
}

/// Returns the index of the innermost frame that neither performs an allocation nor forwards a call.
fn find_innermost_informative(stack: &[&JudgedFrame]) -> Option<usize> {
    let entered = stack.iter().rposition(|judged| judged.is_entry).map_or(0, |entry| entry + 1);
    let is_informative = |judged: &&&JudgedFrame| {
        let frame = &judged.frame;
        !is_unnamed(&frame.function) && !is_plumbing(&frame.function) && !is_internal(frame)
    };
    Some(entered + stack[entered..].iter().position(|judged| is_informative(&judged))?)
}

/// Returns the owners of the frames, taking the whole stack into account, unlike [`Rules::judge`](super::Rules::judge).
pub(super) fn frame_owners(stack: &[&JudgedFrame]) -> Vec<Owner> {
    // Everything inside the program's own allocator belongs to that allocator.
    let entered = stack.iter().rposition(|judged| judged.is_entry);
    let interpreted = stack.iter().any(|judged| judged.is_interpreted);
    let in_torch = stack.iter().any(|judged| judged.is_torch);
    // A program is compiled either with line tables or without. So if one of the user's functions has a source file, a
    // function without one belongs to a library.
    let has_own_source = stack.iter().any(|judged| judged.has_own_source);
    // The program of `python -c` is in a file of this name, like the methods that Python's libraries generate.
    let is_command = stack.iter().rfind(|judged| judged.is_python).is_some_and(|outermost| {
        outermost.frame.function == "<module>" && outermost.frame.file.as_deref() == Some("<string>")
    });
    let owner = |(place, judged): (usize, &&JudgedFrame)| match judged.verdict.owner {
        _ if entered.is_some_and(|entry| place <= entry) => Owner::Noise,
        // Python libraries are full of functions without a source file, and hardly any of them are the user's. For
        // functions without a symbol, PyTorch's stacks contain the name of the nearest symbol in the C library.
        Owner::Mine if judged.verdict.guessed && in_torch && names::is_c_name(&judged.frame.function) => {
            Owner::Noise
        }
        Owner::Framework if is_command && judged.verdict.rule == table::GENERATED => Owner::Mine,
        Owner::Mine if judged.verdict.guessed && (interpreted || has_own_source) => Owner::Framework,
        owner => owner,
    };
    stack.iter().enumerate().map(owner).collect()
}
