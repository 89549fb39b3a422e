//! The amount of a stack and of its names that a text shows. C++ function names can fill pages: where they do
//! not fit, their parameters are left out first, then their template arguments, then their middle.

use memtrack_model::units::shorten_middle;

/// The maximum width of a text, and the number of frames of a stack in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// The maximum number of characters in a line; none: no limit, and names are not shortened.
    pub width: Option<usize>,
    /// The number of frames shown of a stack, not counting those that only pass a call on; 0: all.
    pub frames: usize,
}

impl Layout {
    /// Returns the default layout.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum number of characters in a line; `None`: no limit.
    #[must_use]
    pub fn width(mut self, characters: impl Into<Option<usize>>) -> Self {
        self.width = characters.into();
        self
    }

    /// Sets the number of frames shown of a stack; 0: all.
    #[must_use]
    pub fn frames(mut self, frames: usize) -> Self {
        self.frames = frames;
        self
    }
}

/// The number of frames shown by default.
pub const FRAMES: usize = 7;
/// Names get at least this many characters before columns are left out.
pub(super) const LEGIBLE_NAME: usize = 30;
/// Names are never shortened below this many characters, however narrow the terminal.
pub(super) const SHORTEST_NAME: usize = 16;

impl Default for Layout {
    /// Returns the layout without a limit of width, and with [`FRAMES`] frames.
    fn default() -> Self {
        Self { width: None, frames: FRAMES }
    }
}

/// Returns the layout of a width with the usual number of frames.
impl From<Option<usize>> for Layout {
    fn from(width: Option<usize>) -> Self {
        Self { width, ..Self::default() }
    }
}

/// Texts as wide as a page are not wrapped: readers of a file expect whole lines.
const PAGE: usize = 120;

/// Wraps a text to lines of at most `width` characters where that is less than a page: between words, with the next line
/// indented.
pub(super) fn wrapped(text: &str, width: Option<usize>) -> String {
    let Some(width) = width.filter(|&width| width < PAGE) else { return text.to_owned() };
    let mut wrapped = String::with_capacity(text.len());
    for line in text.lines() {
        let mut length = 0;
        for (place, word) in line.split(' ').enumerate() {
            let letters = word.chars().count();
            if place > 0 && length + 1 + letters > width {
                wrapped.push_str("\n  ");
                length = 2;
            } else if place > 0 {
                wrapped.push(' ');
                length += 1;
            }
            wrapped.push_str(word);
            length += letters;
        }
        wrapped.push('\n');
    }
    wrapped
}

/// Shortens a function's name to at most `room` characters.
pub(super) fn fit(function: &str, room: usize) -> String {
    let fits = |text: &str| text.chars().count() <= room;
    if fits(function) {
        return function.to_owned();
    }
    let without_parameters = cut(function, '(', ')');
    if fits(&without_parameters) {
        return without_parameters;
    }
    shorten_middle(&cut(&without_parameters, '<', '>'), room)
}

/// Replaces the contents of brackets in `name` by an ellipsis: `f<…>` for `f<a, b>`. Brackets that are part of a name
/// stay, as in `(anonymous namespace)::f`, `<T as Trait>::f` and `operator()`.
fn cut(name: &str, open: char, close: char) -> String {
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(open) {
        let (before, bracketed) = rest.split_at(at);
        short.push_str(before);
        let is_name = bracketed.starts_with("(anonymous namespace)")
            || bracketed.starts_with("()")
            || short.ends_with("operator")
            || !short.ends_with(|last: char| last.is_alphanumeric() || "_:)>".contains(last));
        let end = end_of(bracketed, open, close).filter(|_| !is_name);
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

/// Returns the index after the bracket that closes the one at the start of `text`. The `>` of an arrow closes nothing.
fn end_of(text: &str, open: char, close: char) -> Option<usize> {
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
    fn parameters_are_cut_before_template_arguments_and_those_before_letters() {
        let name =
            "at::(anonymous namespace)::wrap<std::vector<at::Tensor>, long>::call(at::Tensor const&, long)";
        for (room, short) in [
            (100, name),
            (80, "at::(anonymous namespace)::wrap<std::vector<at::Tensor>, long>::call(…)"),
            (60, "at::(anonymous namespace)::wrap<…>::call(…)"),
            (20, "at::(anon…>::call(…)"),
        ] {
            assert_eq!(fit(name, room), short);
        }
    }

    #[test]
    fn lines_wrap_between_words_where_a_page_does_not_fit() {
        let text = "peak +1.0 MiB: train.py:14 softmax\n\nUnchanged: 1 group.\n";
        assert_eq!(
            wrapped(text, Some(20)),
            "peak +1.0 MiB:\n  train.py:14\n  softmax\n\nUnchanged: 1 group.\n"
        );
        assert_eq!(wrapped(text, Some(PAGE)), text);
        assert_eq!(wrapped(text, None), text);
    }

    #[test]
    fn brackets_that_are_names_stay() {
        for (name, short) in [
            ("<candle::Tensor as Into<A>>::into::<Vec<u8>>", "<candle::Tensor as Into<…>>::into::<…>"),
            ("a::operator<(b, c)", "a::operator<(b, c)"),
            ("f<g(a->b)>::h", "f<…>::h"),
            ("broken<<<", "broken<<<"),
        ] {
            assert_eq!(cut(name, '<', '>'), short);
        }
        assert_eq!(
            cut("torch::Node::operator()(std::vector<int>&&)", '(', ')'),
            "torch::Node::operator()(…)"
        );
    }
}
