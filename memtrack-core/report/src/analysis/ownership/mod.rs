//! The owner of a frame: the user's code, a framework, or noise that only passes a call on; and for a stack,
//! the own line that requested the memory, with the function that it called: `train.py:53 step →
//! optimizer.py:74 exp_avg`.
//!
//! The user's globs decide first, then the built-in table, by path and by name; frames that no rule matches are the
//! user's, because programs are written in many folders and frameworks are installed in few. Reports use
//! [`Rules::owner`]; `--explain` shows the rule that decided.
//!
//! **Who owns a native function without a source file?** The user, but only where no frame of the stack is
//! Python's, because its libraries are full of such functions. Globs are matched by the code that matches
//! operators' patterns, and the command reads `memtrack.toml` (the `toml` crate), so this package has no
//! further dependency.

mod binaries;
mod explain;
mod forwards;
mod names;
mod owned;
mod owners;
mod table;
#[cfg(test)]
mod tests;

use super::patterns::matches;
use super::torch_stacks::{PROFILED_MODULE, ParsedFrame};
use super::trim::{is_allocator_entry, is_plumbing};
use binaries::InBinary;
pub use explain::{Explained, ExplainedAnswer, JudgedAnswer};
pub use forwards::Forwards;
use memtrack_model::Frame;
use memtrack_model::paths::{is_separator, slashed};
use names::crate_of;
pub(crate) use names::plain;
pub use names::short;
pub use owned::Owned;
pub use owners::Owners;
use std::borrow::Cow;

/// The owner of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The user's code.
    Mine,
    /// Code that the user calls: PyTorch, a crate from a registry, a standard library.
    Framework,
    /// A frame that only passes a call on: an interpreter, a dispatcher, a program's startup, memtrack.
    Noise,
}

impl Owner {
    /// Returns its name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mine => "mine",
            Self::Framework => "framework",
            Self::Noise => "noise",
        }
    }
}

/// The owner of a frame, and the rule that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The owner.
    pub owner: Owner,
    /// The rule in a few words: the user's glob, or the subject of the built-in rule.
    pub rule: Cow<'static, str>,
    /// Whether it counts as the user's only because nothing is known about it: a native function without a
    /// source file. Below a Python line it does not.
    pub guessed: bool,
}

impl Verdict {
    fn known(owner: Owner, rule: impl Into<Cow<'static, str>>) -> Self {
        Self { owner, rule: rule.into(), guessed: false }
    }
}

/// A glob of the user's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Own {
    glob: String,
    owner: Owner,
    /// Rules of a lower level come first.
    level: usize,
}

impl Own {
    fn verdict(&self) -> Verdict {
        let option = if self.owner == Owner::Mine { "mine" } else { "not-mine" };
        Verdict::known(self.owner, format!("{option} {}", self.glob))
    }
}

/// The rules that decide the owner of a frame.
///
/// A glob is compared with the file, with the function's path, as `my_crate::model::Layer::forward`, and with the path and the
/// name of the binary that the function is in, as `libsqlite3.so`. `*` stands for any characters, also for slashes; a glob may
/// begin at any folder of the path, and a folder or a module stands for all below it. Paths of Windows match with either
/// slash. Where several match, the longest decides, and of equal ones the first that was given.
///
/// ```
/// # use memtrack_report::analysis::ownership::{Owner, Rules};
/// # use memtrack_model::Frame;
/// let frame = Frame { function: "forward".into(), file: Some("/home/ana/lab/einops/einops.py".into()), line: Some(9), ..Frame::default() };
/// assert_eq!(Rules::new().judge(&frame).owner, Owner::Mine);
/// assert_eq!(Rules::new().not_mine("lab/einops").judge(&frame).owner, Owner::Framework);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    own: Vec<Own>,
}

impl Rules {
    /// Returns the built-in rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes code that matches `glob` the user's.
    #[must_use]
    pub fn mine(self, glob: impl Into<String>) -> Self {
        self.with(glob.into(), Owner::Mine)
    }

    /// Makes code that matches `glob` a framework's.
    #[must_use]
    pub fn not_mine(self, glob: impl Into<String>) -> Self {
        self.with(glob.into(), Owner::Framework)
    }

    fn with(mut self, glob: String, owner: Owner) -> Self {
        let glob = glob.strip_prefix("./").map_or(glob.clone(), str::to_owned);
        self.own.push(Own { glob, owner, level: 0 });
        self
    }

    /// Uses `others` where no glob of these matches.
    #[must_use]
    pub fn before(mut self, others: Self) -> Self {
        let level = self.own.iter().map(|own| own.level + 1).max().unwrap_or(0);
        self.own.extend(others.own.into_iter().map(|own| Own { level: own.level + level, ..own }));
        self
    }

    /// Returns the owner of a frame, and the rule that decided.
    pub fn judge(&self, frame: &Frame) -> Verdict {
        let line = ParsedFrame::of(frame);
        let binary = InBinary::of(frame, &line);
        let (file, path) = (source(&line, binary.as_ref()), path_of(&line));
        if let Some(own) = self.own_rule(&file, &path) {
            return own.verdict();
        }
        if line.function.starts_with(PROFILED_MODULE) {
            return Verdict::known(Owner::Noise, "the name of a module in a profile");
        }
        if line.function.starts_with("<built-in ") {
            return Verdict::known(Owner::Framework, "a function built into Python or a package");
        }
        if line.is_python {
            return judge_python(&line, &file);
        }
        let own = binary.as_ref().and_then(|binary| self.rule_of_binary(binary, &file));
        judge_native(line.function, &file, &path, binary.as_ref(), own)
    }

    /// Returns whether one of the user's globs matches the frame, even if another one overrules it.
    pub fn mentions(&self, frame: &Frame) -> bool {
        let line = ParsedFrame::of(frame);
        let binary = InBinary::of(frame, &line);
        let file = source(&line, binary.as_ref());
        self.own_rule(&file, &path_of(&line)).is_some()
            || binary.is_some_and(|binary| self.rule_of_binary(&binary, &file).is_some())
    }

    /// Returns the user's glob that decides: on the first level with a match, the longest that matches.
    fn own_rule(&self, file: &str, path: &str) -> Option<&Own> {
        let matching = self.own.iter().filter(|own| on_path(&own.glob, file) || on_name(&own.glob, path));
        matching.min_by_key(|own| (own.level, std::cmp::Reverse(own.glob.len())))
    }

    /// Returns the user's glob that decides about the functions of a binary whose sources no glob matches.
    fn rule_of_binary(&self, binary: &InBinary<'_>, file: &str) -> Option<&Own> {
        let matching = self.own.iter().filter(|own| binary.is_meant_by(&own.glob, file));
        matching.min_by_key(|own| (own.level, std::cmp::Reverse(own.glob.len())))
    }

    /// Returns the own line of a stack (innermost frame first), and the function that it called. For many
    /// stacks, [`Owners`] caches the frames.
    pub fn owner<'a>(&self, stack: impl IntoIterator<Item = &'a Frame>) -> Owned {
        let judged: Vec<Judged> = stack.into_iter().map(|frame| Judged::new(frame, self)).collect();
        owned::of(&judged.iter().collect::<Vec<_>>())
    }
}

/// A frame, with the facts needed to find the owner of a stack.
#[derive(Clone, Debug)]
struct Judged {
    frame: Frame,
    verdict: Verdict,
    /// Whether the program's own allocator begins here.
    is_entry: bool,
    /// Whether it is Python's, or the interpreter's.
    is_interpreted: bool,
    /// Whether it is a C++ function of PyTorch.
    is_torch: bool,
    /// Whether it is the user's because of its source file.
    has_own_source: bool,
}

impl Judged {
    fn new(frame: &Frame, rules: &Rules) -> Self {
        let function = frame.function.as_str();
        let verdict = rules.judge(frame);
        let has_file = frame.file.as_deref().is_some_and(|file| !file.is_empty() && file != "??");
        Self {
            frame: frame.clone(),
            is_torch: ["at::", "c10::", "torch::"].iter().any(|beginning| function.starts_with(beginning)),
            has_own_source: verdict.owner == Owner::Mine && !verdict.guessed && has_file,
            verdict,
            is_entry: is_allocator_entry(function),
            is_interpreted: ParsedFrame::of(frame).is_python
                || ["_PyEval_", "PyObject_", "_PyObject_", "Py_RunMain"]
                    .iter()
                    .any(|beginning| function.starts_with(beginning)),
        }
    }
}

/// Returns the source file as rules compare it; empty where none is known. PyTorch writes `??` then, or the binary.
fn source<'a>(line: &ParsedFrame<'a>, binary: Option<&InBinary<'_>>) -> Cow<'a, str> {
    let is_unknown = line.file == "??" || binary.is_some_and(|binary| binary.is_in_place_of_file);
    if is_unknown { Cow::Borrowed("") } else { slashed(line.file) }
}

/// Returns the function's path as rules compare it.
fn path_of(line: &ParsedFrame<'_>) -> String {
    if line.is_python { line.function.to_owned() } else { plain(line.function) }
}

fn judge_python(line: &ParsedFrame<'_>, file: &str) -> Verdict {
    for row in table::PYTHON_NOISE {
        if on_path(row.path, file) && row.functions.iter().any(|function| matches(function, line.method())) {
            return Verdict::known(Owner::Noise, row.what);
        }
    }
    if let Some(verdict) = by_path(table::PYTHON_PATHS, file) {
        return verdict;
    }
    if is_pythons_on_windows(line.file) {
        return Verdict::known(Owner::Framework, "Python's standard library");
    }
    Verdict::known(Owner::Mine, "a Python file outside packages")
}

/// Returns whether a file is in the folder `Lib` of a Python on Windows: below a folder that is named after Python, or
/// where a module of the standard library is expected.
fn is_pythons_on_windows(file: &str) -> bool {
    if !memtrack_model::paths::is_windows_path(file) {
        return false;
    }
    let parts: Vec<&str> = file.split(is_separator).collect();
    let names_python = |part: &&str| {
        let part = part.to_ascii_lowercase();
        ["python", "conda", "pypy"].iter().any(|name| part.contains(name)) || part == "envs"
    };
    parts.iter().enumerate().any(|(at, part)| {
        let next = parts.get(at + 1).and_then(|next| next.split('.').next()).unwrap_or_default();
        part.eq_ignore_ascii_case("Lib")
            && (parts[..at].iter().any(names_python) || table::PYTHON_MODULES.contains(&next))
    })
}

fn judge_native(
    function: &str,
    file: &str,
    path: &str,
    binary: Option<&InBinary<'_>>,
    own: Option<&Own>,
) -> Verdict {
    use Owner::{Framework, Mine, Noise};
    if names::is_unnamed(function) {
        return Verdict::known(Noise, "a frame without a name");
    }
    if is_allocator_entry(function) {
        return Verdict::known(Noise, "the entry point of an allocator");
    }
    if let Some((_, what)) = table::NATIVE_NOISE.iter().find(|(glob, _)| on_name(glob, path)) {
        return Verdict::known(Noise, *what);
    }
    if let Some(own) = own.filter(|own| own.owner == Framework) {
        return own.verdict();
    }
    if let Some(verdict) = by_path(table::NATIVE_PATHS, file) {
        return verdict;
    }
    if let Some((_, what)) = table::NATIVE_NAMES.iter().find(|(glob, _)| on_name(glob, path)) {
        return Verdict::known(Framework, *what);
    }
    // Libraries without debug information have a bare file name; programs have folders.
    let has_source = file.contains('/');
    if !has_source && let Some((_, what)) = table::C_NOISE.iter().find(|(glob, _)| matches(glob, path)) {
        return Verdict::known(Noise, *what);
    }
    if !has_source && is_plumbing(function) {
        return Verdict::known(Noise, "an allocation function");
    }
    if let Some(own) = own {
        return own.verdict();
    }
    if let Some(verdict) = binary.and_then(|binary| binary.verdict(file)) {
        return verdict;
    }
    if has_source {
        return Verdict::known(Mine, "a source file outside packages");
    }
    if let Some((_, what)) = table::C_NAMES.iter().find(|(glob, _)| matches(glob, path)) {
        return Verdict::known(Framework, *what);
    }
    let rule = match crate_of(path) {
        Some(name) => Cow::from(format!("no rule matches {name}")),
        None => "a function without a source file".into(),
    };
    Verdict { owner: Mine, rule, guessed: true }
}

/// Returns the row of a table whose path matches.
fn by_path(table: &'static [(&str, Owner, &str)], file: &str) -> Option<Verdict> {
    let (_, owner, what) = table.iter().find(|(glob, ..)| on_path(glob, file))?;
    Some(Verdict::known(*owner, *what))
}

/// Returns whether `glob` matches the file: it may begin at any folder, and a folder matches everything below it.
pub(crate) fn on_path(glob: &str, file: &str) -> bool {
    let (glob, file) = (slashed(glob), slashed(file));
    let (glob, file) = (glob.trim_end_matches('/'), &*file);
    if file.is_empty() || glob.is_empty() || !may_match(glob, file) {
        return false;
    }
    let tries = |glob: &str| matches(glob, file) || matches(&format!("{glob}/*"), file);
    tries(glob) || (!glob.starts_with(['/', '*']) && tries(&format!("*/{glob}")))
}

/// Returns whether `glob` matches the function: a module matches everything in it.
pub(crate) fn on_name(glob: &str, path: &str) -> bool {
    let glob = glob.strip_suffix("::").unwrap_or(glob);
    if glob.is_empty() || glob.contains(is_separator) || !may_match(glob, path) {
        return false;
    }
    matches(glob, path) || matches(&format!("{glob}::*"), path)
}

/// Returns whether the literal parts of `glob` occur in `text`: this excludes most globs without any allocation.
fn may_match(glob: &str, text: &str) -> bool {
    glob.split('*').all(|literal| text.contains(literal.trim_end_matches(['/', ':'])))
}
