//! The functions of Python whose calls are marks: those that `memtrack run --mark-on` names, and `memtrack_mark`.
//!
//! The name of each Python function that is made (from 3.12 on) or called (before) is compared with the wanted ones. A function
//! whose name has another length costs three loads.

use super::layout::{Layout, TEXT_LENGTH};
use super::memory::Memory;
use super::text::{Keep, is_text, text_at};
use memtrack_model::run_protocol::MARK_FUNCTION;

/// The maximum number of characters of a path or qualified name that are compared.
const MAX_TEXT: usize = 4096;

/// A function whose calls are marks.
#[derive(Debug, PartialEq, Eq)]
pub struct WantedFunction {
    /// The name as the user has written it, which the marks have.
    pub name: String,
    /// Whether a text that is passed to the function names the mark instead.
    pub is_named_by_argument: bool,
    /// The function's own name, character by character.
    characters: Vec<u32>,
    /// The function's name with its classes.
    qualified: Option<String>,
    /// The end of the file's path.
    file: Option<String>,
}

impl WantedFunction {
    /// Returns the function that the user has written as `function`, `Class.function` or either of them after `file.py:`.
    fn parse(name: &str) -> Self {
        let (file, function) = match name.rsplit_once(':') {
            Some((file, function)) => (Some(file.to_owned()), function),
            None => (None, name),
        };
        let own = function.rsplit('.').next().unwrap_or(function);
        Self {
            name: name.to_owned(),
            is_named_by_argument: name == MARK_FUNCTION,
            characters: own.chars().map(u32::from).collect(),
            qualified: (own != function).then(|| function.to_owned()),
            file,
        }
    }

    /// Returns whether the file and the qualified name of a code object are those of the function.
    fn is_at(&self, memory: impl Memory, layout: &Layout, code: u64) -> Option<bool> {
        let ends_with = |field: u64, end: &str, separator: char| {
            let text = text_at(memory, layout, memory.word(code + field)?, MAX_TEXT, Keep::End)?;
            let rest = text.strip_suffix(end);
            Some(rest.is_some_and(|rest| rest.is_empty() || rest.ends_with(separator)))
        };
        if let Some(qualified) = &self.qualified
            && !ends_with(layout.code_qualified_name?, qualified, '.')?
        {
            return Some(false);
        }
        self.file.as_ref().map_or(Some(true), |file| ends_with(layout.code_file, file, '/'))
    }
}

/// All functions whose calls are marks.
#[derive(Debug, Default)]
pub struct WantedFunctions {
    all: Vec<WantedFunction>,
    /// A bit for each length of a name, modulo 64.
    lengths: u64,
}

impl WantedFunctions {
    /// Returns the functions with these names and `memtrack_mark`.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all: Vec<WantedFunction> = names.into_iter().map(WantedFunction::parse).collect();
        if all.iter().all(|function| function.name != MARK_FUNCTION) {
            all.push(WantedFunction::parse(MARK_FUNCTION));
        }
        let lengths = all.iter().fold(0, |bits, function| bits | 1 << (function.characters.len() % 64));
        Self { all, lengths }
    }

    /// Returns whether no wanted function has a name as long as that of a code object.
    #[inline(always)]
    pub(super) fn excludes(&self, memory: impl Memory, layout: &Layout, code: u64) -> bool {
        let name = memory.word(code + layout.code_own_name);
        let length = name.and_then(|name| memory.word(name + TEXT_LENGTH));
        length.is_none_or(|length| self.lengths >> (length % 64) & 1 == 0)
    }

    /// Returns the wanted functions that a code object is of. The user may have written one function in several ways.
    pub(super) fn of_code<'a, M: Memory>(
        &'a self,
        memory: M,
        layout: &'a Layout,
        code: u64,
    ) -> impl Iterator<Item = &'a WantedFunction> + use<'a, M> {
        self.all.iter().filter(move |function| {
            let name = memory.word(code + layout.code_own_name);
            name.and_then(|name| is_text(memory, layout, name, &function.characters)) == Some(true)
                && function.is_at(memory, layout, code) == Some(true)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_and_classes_are_separated_from_the_name() {
        let parsed = |name| {
            let function = WantedFunction::parse(name);
            let own: String = function.characters.iter().filter_map(|&unit| char::from_u32(unit)).collect();
            (function.file, function.qualified, own)
        };
        assert_eq!(parsed("step"), (None, None, "step".to_owned()));
        assert_eq!(
            parsed("src/train.py:Trainer.step"),
            (Some("src/train.py".to_owned()), Some("Trainer.step".to_owned()), "step".to_owned())
        );
        assert_eq!(parsed("époque").2, "époque");
    }

    #[test]
    fn mark_function_is_always_wanted_and_named_by_its_argument() {
        for wanted in [WantedFunctions::new([]), WantedFunctions::new(["step", MARK_FUNCTION])] {
            let named = wanted.all.iter().filter(|function| function.is_named_by_argument);
            assert_eq!(named.map(|function| &*function.name).collect::<Vec<_>>(), [MARK_FUNCTION]);
        }
    }
}
