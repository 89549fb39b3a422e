//! Limits on the stacks and names shown in textual reports. C++ function names can fill pages, so if a name does not
//! fit, the parameters are omitted first, then the template arguments, and finally the middle of the name.

use comfy_table::{ContentLineStyle, LineStyle, Table, TableStyle};
use memtrack_model::units::{self, shorten_middle};

/// The maximum width of a report's text, and the number of frames to show per stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// The maximum number of characters per line; `None` means no limit, so that names are not shortened.
    pub width: Option<usize>,
    /// The number of frames to show per stack, not counting frames that only forward a call; 0 means all.
    pub frames: usize,
}

impl Layout {
    /// Returns the default layout.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of characters per line; `None` means no limit.
    #[must_use]
    pub fn width(mut self, characters: impl Into<Option<usize>>) -> Self {
        self.width = characters.into();
        self
    }

    /// Sets the number of frames to show per stack; 0 means all.
    #[must_use]
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = frames;
        self
    }
}

/// The default number of frames to show.
pub const DEFAULT_FRAMES: usize = 7;
/// If names would have to be shorter than this many characters, columns are omitted instead.
pub(super) const MIN_LEGIBLE_NAME_CHARS: usize = 30;
/// Names are never shortened to fewer characters than this, however narrow the terminal is.
pub(super) const MIN_NAME_CHARS: usize = 16;

impl Default for Layout {
    /// Returns a layout with no width limit that shows [`DEFAULT_FRAMES`] frames.
    fn default() -> Self {
        Self { width: None, frames: DEFAULT_FRAMES }
    }
}

/// Creates a layout with the given width and the default number of frames.
impl From<Option<usize>> for Layout {
    fn from(width: Option<usize>) -> Self {
        Self { width, ..Self::default() }
    }
}

/// Creates a table with the style of all reports: no frame, and a line below the header.
pub fn new_table() -> Table {
    let mut table = Table::new();
    let style =
        TableStyle::new().header_lines(ContentLineStyle::none()).content_lines(ContentLineStyle::none());
    table.load_style(style.header_separator(LineStyle::none().fill('─')));
    table
}

/// The width at which text is no longer wrapped. Output this wide might be written to a file, in which lines should not
/// be split.
const MAX_WRAP_WIDTH: usize = 120;

/// Wraps a text at spaces into lines of at most `width` characters, indenting continuation lines. Returns the text
/// unchanged if `width` is `None` or at least `MAX_WRAP_WIDTH`.
pub(super) fn wrap(text: &str, width: Option<usize>) -> String {
    let Some(width) = width.filter(|&width| width < MAX_WRAP_WIDTH) else { return text.to_owned() };
    text.lines().map(|line| units::wrap(line, width, 2) + "\n").collect()
}

/// Shortens a function's name to at most `room` characters.
pub(super) fn shorten_function(function: &str, room: usize) -> String {
    let fits = |text: &str| text.chars().count() <= room;
    if fits(function) {
        return function.to_owned();
    }
    let without_parameters = elide_brackets(function, '(', ')');
    if fits(&without_parameters) {
        return without_parameters;
    }
    shorten_middle(&elide_brackets(&without_parameters, '<', '>'), room)
}

/// Replaces the contents of brackets in `name` with an ellipsis, so `f<a, b>` becomes `f<…>`. Brackets that are part of
/// a name are kept, as in `(anonymous namespace)::f`, `<T as Trait>::f` and `operator()`.
fn elide_brackets(name: &str, open: char, close: char) -> String {
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(open) {
        let (before, bracketed) = rest.split_at(at);
        short.push_str(before);
        let is_name = bracketed.starts_with("(anonymous namespace)")
            || bracketed.starts_with("()")
            || short.ends_with("operator")
            || !short.ends_with(|last: char| last.is_alphanumeric() || "_:)>".contains(last));
        let end = find_closing_bracket(bracketed, open, close).filter(|_| !is_name);
        match end {
            Some(end) => {
                short.extend([open, '…', close]);
                rest = &bracketed[end..];
            }
            None => {
                short.push(open);
                rest = &bracketed[open.len_utf8()..];
            }
        }
    }
    short + rest
}

/// Returns the index just past the bracket that matches the one at the start of `text`. The `>` of an arrow `->` does
/// not count as a bracket.
fn find_closing_bracket(text: &str, open: char, close: char) -> Option<usize> {
    let (mut depth, mut last) = (0usize, ' ');
    for (at, letter) in text.char_indices() {
        if letter == open {
            depth += 1;
        } else if letter == close && !(close == '>' && last == '-') {
            depth -= 1;
            if depth == 0 {
                return Some(at + letter.len_utf8());
            }
        }
        last = letter;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_cut_first_then_template_arguments_then_letters() {
        let name =
            "at::(anonymous namespace)::wrap<std::vector<at::Tensor>, long>::call(at::Tensor const&, long)";
        for (room, short) in [
            (100, name),
            (80, "at::(anonymous namespace)::wrap<std::vector<at::Tensor>, long>::call(…)"),
            (60, "at::(anonymous namespace)::wrap<…>::call(…)"),
            (20, "at::(anon…>::call(…)"),
        ] {
            assert_eq!(shorten_function(name, room), short);
        }
    }

    #[test]
    fn lines_too_long_for_width_wrap_between_words() {
        let text = "peak +1.0 MiB: train.py:14 softmax\n\nUnchanged: 1 group.\n";
        assert_eq!(wrap(text, Some(20)), "peak +1.0 MiB:\n  train.py:14\n  softmax\n\nUnchanged: 1 group.\n");
        assert_eq!(wrap(text, Some(MAX_WRAP_WIDTH)), text);
        assert_eq!(wrap(text, None), text);
    }

    #[test]
    fn brackets_in_names_are_kept() {
        for (name, short) in [
            ("<candle::Tensor as Into<A>>::into::<Vec<u8>>", "<candle::Tensor as Into<…>>::into::<…>"),
            ("a::operator<(b, c)", "a::operator<(b, c)"),
            ("f<g(a->b)>::h", "f<…>::h"),
            ("broken<<<", "broken<<<"),
        ] {
            assert_eq!(elide_brackets(name, '<', '>'), short);
        }
        assert_eq!(
            elide_brackets("torch::Node::operator()(std::vector<int>&&)", '(', ')'),
            "torch::Node::operator()(…)"
        );
    }
}
