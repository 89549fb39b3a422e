//! Determines the owner of a frame: the user's code, a framework, or noise that only forwards a call. For a stack, finds
//! the line in the user's code that requested the memory and the function that this line called, as in
//! `train.py:53 step → optimizer.py:74 exp_avg`.
//!
//! The user's globs take precedence over the built-in tables of paths and names. Frames that match no rule are the
//! user's, because programs are written in many folders while frameworks are installed in few. Reports use
//! [`Rules::owner`]; `--explain` prints the rule that determined each owner.
//!
//! **Who owns a native function without a source file?** The user does, but only in stacks without Python frames,
//! because Python libraries are full of such functions.
//!
//! This module needs no further dependency: globs are matched by the same code as operator patterns, and `memtrack.toml`
//! is read by the `memtrack` command (with the `toml` crate).

mod binaries;
mod explain;
mod forwards;
mod names;
mod owners;
mod stack_owner;
mod table;
#[cfg(test)]
mod tests;

use crate::framework_operators::matches;
use crate::language::is_javascript;
use crate::torch_stacks::{MODULE_FRAME_PREFIX, ParsedFrame};
use crate::trim::{is_allocator_entry, is_plumbing};
use binaries::FrameBinary;
pub use explain::{ExplainedFrame, Explanation};
pub use forwards::ForwardLines;
use memtrack_model::Frame;
use memtrack_model::paths::{is_separator, with_slashes};
use names::crate_name;
pub use names::{path_of, qualified_path, short};
pub use owners::Owners;
pub use stack_owner::StackOwner;
use std::borrow::Cow;

/// The owner of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The user's code.
    Mine,
    /// Code that the user's code calls, such as PyTorch, a crate from a registry, or a standard library.
    Framework,
    /// A frame that only forwards a call, such as one from an interpreter, a dispatcher, program startup, or memtrack.
    Noise,
}

memtrack_model::serialize_as!(Owner => &'static str: |owner| owner.name());

impl Owner {
    /// Returns the name in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mine => "mine",
            Self::Framework => "framework",
            Self::Noise => "noise",
        }
    }
}

/// The owner of a frame and the rule that determined it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verdict {
    /// The owner.
    pub owner: Owner,
    /// The rule in a few words: the user's glob, or the subject of the built-in rule.
    pub rule: Cow<'static, str>,
    /// Whether this is a native function without a source file that counts as the user's only because no rule matches
    /// it. In a stack with Python frames, it does not count as the user's.
    pub guessed: bool,
}

impl Verdict {
    fn by_rule(owner: Owner, rule: impl Into<Cow<'static, str>>) -> Self {
        Self { owner, rule: rule.into(), guessed: false }
    }
}

/// A glob given by the user, and the owner that it assigns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UserGlob {
    glob: String,
    owner: Owner,
    /// Globs with lower levels take precedence.
    level: usize,
}

impl UserGlob {
    fn verdict(&self) -> Verdict {
        let option = if self.owner == Owner::Mine { "mine" } else { "not-mine" };
        Verdict::by_rule(self.owner, format!("{option} {}", self.glob))
    }
}

/// The rules that determine the owner of a frame.
///
/// A glob is compared with the file, with the function's path (such as `my_crate::model::Layer::forward`), and with the
/// path and name of the binary that contains the function (such as `libsqlite3.so`). `*` stands for any characters,
/// including slashes. A glob can start at any folder of a path, and a folder or module stands for everything below it.
/// Windows paths match with either kind of slash. If several globs match, the longest one takes precedence, and among
/// globs of equal length, the one given first.
///
/// ```
/// # use memtrack_frames::ownership::{Owner, Rules};
/// # use memtrack_model::Frame;
/// let frame = Frame { function: "forward".into(), file: Some("/home/ana/lab/einops/einops.py".into()), line: Some(9), ..Frame::default() };
/// assert_eq!(Rules::new().judge(&frame).owner, Owner::Mine);
/// assert_eq!(Rules::new().not_mine("lab/einops").judge(&frame).owner, Owner::Framework);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    globs: Vec<UserGlob>,
}

impl Rules {
    /// Returns the built-in rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Assigns code that matches `glob` to the user.
    #[must_use]
    pub fn mine(self, glob: impl Into<String>) -> Self {
        self.with_glob(glob.into(), Owner::Mine)
    }

    /// Assigns code that matches `glob` to a framework.
    #[must_use]
    pub fn not_mine(self, glob: impl Into<String>) -> Self {
        self.with_glob(glob.into(), Owner::Framework)
    }

    fn with_glob(mut self, glob: String, owner: Owner) -> Self {
        let glob = glob.strip_prefix("./").map_or(glob.clone(), str::to_owned);
        self.globs.push(UserGlob { glob, owner, level: 0 });
        self
    }

    /// Adds `others`, which apply to frames that no glob of `self` matches.
    #[must_use]
    pub fn with_fallback(mut self, others: Self) -> Self {
        let level = self.globs.iter().map(|own| own.level + 1).max().unwrap_or(0);
        self.globs.extend(others.globs.into_iter().map(|own| UserGlob { level: own.level + level, ..own }));
        self
    }

    /// Returns the owner of a frame and the rule that determined it.
    pub fn judge(&self, frame: &Frame) -> Verdict {
        let line = ParsedFrame::of(frame);
        let binary = FrameBinary::of(frame, &line);
        let (file, path) = (source(&line, binary.as_ref()), function_path(frame, &line));
        if let Some(own) = self.rule_of_function(&file, &path) {
            return own.verdict();
        }
        if line.function.starts_with(MODULE_FRAME_PREFIX) {
            return Verdict::by_rule(Owner::Noise, "the name of a module in a profile");
        }
        if line.function.starts_with("<built-in ") {
            return Verdict::by_rule(Owner::Framework, "a function built into Python or a package");
        }
        if line.is_python {
            return judge_python(&line, &file);
        }
        if is_javascript(frame) {
            // The rules about names do not apply: a method may well be called `clone` or `test`.
            return verdict_by_path(table::JAVASCRIPT_PATHS, &file)
                .unwrap_or_else(|| Verdict::by_rule(Owner::Mine, "a JavaScript file outside packages"));
        }
        let own = binary.as_ref().and_then(|binary| self.rule_of_binary(binary, &file));
        judge_native(line.function, &file, &path, binary.as_ref(), own)
    }

    /// Returns whether any of the user's globs matches the frame, even if another glob takes precedence.
    pub fn mentions(&self, frame: &Frame) -> bool {
        let line = ParsedFrame::of(frame);
        let binary = FrameBinary::of(frame, &line);
        let file = source(&line, binary.as_ref());
        self.rule_of_function(&file, &function_path(frame, &line)).is_some()
            || binary.is_some_and(|binary| self.rule_of_binary(&binary, &file).is_some())
    }

    /// Returns the user's glob that takes precedence for a function, which is the longest matching glob on the lowest
    /// level with a match.
    fn rule_of_function(&self, file: &str, path: &str) -> Option<&UserGlob> {
        let matching =
            self.globs.iter().filter(|own| matches_path(&own.glob, file) || matches_name(&own.glob, path));
        matching.min_by_key(|own| (own.level, std::cmp::Reverse(own.glob.len())))
    }

    /// Returns the user's glob that takes precedence for a binary. It applies only to functions for which
    /// [`Self::rule_of_function`] finds no glob.
    fn rule_of_binary(&self, binary: &FrameBinary<'_>, file: &str) -> Option<&UserGlob> {
        let matching = self.globs.iter().filter(|own| binary.matches_glob(&own.glob, file));
        matching.min_by_key(|own| (own.level, std::cmp::Reverse(own.glob.len())))
    }

    /// Returns the line of the user's code in a stack (innermost frame first) and the function that the line called.
    /// For many stacks, use [`Owners`], which caches the owners of frames.
    pub fn owner<'a>(&self, stack: impl IntoIterator<Item = &'a Frame>) -> StackOwner {
        let judged: Vec<JudgedFrame> = stack.into_iter().map(|frame| JudgedFrame::new(frame, self)).collect();
        stack_owner::find_owner(&judged.iter().collect::<Vec<_>>())
    }
}

/// A frame, with the properties that determine who owns its stack.
#[derive(Clone, Debug)]
struct JudgedFrame {
    frame: Frame,
    verdict: Verdict,
    /// Whether the function is an entry point of the program's own allocator.
    is_entry: bool,
    /// Whether this is a Python function or belongs to the Python interpreter.
    is_interpreted: bool,
    /// Whether this is a Python function.
    is_python: bool,
    /// Whether this is one of PyTorch's C++ functions.
    is_torch: bool,
    /// Whether this is the user's function, judging by its source file.
    has_own_source: bool,
}

impl JudgedFrame {
    fn new(frame: &Frame, rules: &Rules) -> Self {
        let function = frame.function.as_str();
        let verdict = rules.judge(frame);
        let is_python = ParsedFrame::of(frame).is_python;
        let has_file = frame.file.as_deref().is_some_and(|file| !file.is_empty() && file != "??");
        Self {
            frame: frame.clone(),
            is_torch: ["at::", "c10::", "torch::"].iter().any(|beginning| function.starts_with(beginning)),
            has_own_source: verdict.owner == Owner::Mine && !verdict.guessed && has_file,
            verdict,
            is_entry: is_allocator_entry(function),
            is_python,
            is_interpreted: is_python
                || ["_PyEval_", "PyObject_", "_PyObject_", "Py_RunMain"]
                    .iter()
                    .any(|beginning| function.starts_with(beginning)),
        }
    }
}

/// Returns the source file in the form that rules are compared with. The result is empty if the file is unknown, in
/// which case PyTorch writes `??` or the binary instead.
fn source<'a>(line: &ParsedFrame<'a>, binary: Option<&FrameBinary<'_>>) -> Cow<'a, str> {
    let is_unknown = line.file == "??" || binary.is_some_and(|binary| binary.is_in_place_of_file);
    if is_unknown { Cow::Borrowed("") } else { with_slashes(line.file) }
}

/// Returns the function's path in the form that rules are compared with.
fn function_path(frame: &Frame, line: &ParsedFrame<'_>) -> String {
    if line.is_python || is_javascript(frame) {
        line.function.to_owned()
    } else {
        qualified_path(line.function)
    }
}

fn judge_python(line: &ParsedFrame<'_>, file: &str) -> Verdict {
    for row in table::PYTHON_NOISE {
        if matches_path(row.path, file)
            && row.functions.iter().any(|function| matches(function, line.method()))
        {
            return Verdict::by_rule(Owner::Noise, row.what);
        }
    }
    if let Some(verdict) = verdict_by_path(table::PYTHON_PATHS, file) {
        return verdict;
    }
    if is_in_python_on_windows(line.file) {
        return Verdict::by_rule(Owner::Framework, "Python's standard library");
    }
    Verdict::by_rule(Owner::Mine, "a Python file outside packages")
}

/// Returns whether a file is in the `Lib` folder of a Python installation on Windows. Such a file is either below a
/// folder named after Python, or named after a module of the standard library.
fn is_in_python_on_windows(file: &str) -> bool {
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
    binary: Option<&FrameBinary<'_>>,
    own: Option<&UserGlob>,
) -> Verdict {
    use Owner::{Framework, Mine, Noise};
    if names::is_unnamed(function) {
        return Verdict::by_rule(Noise, "a frame without a name");
    }
    if is_allocator_entry(function) {
        return Verdict::by_rule(Noise, "the entry point of an allocator");
    }
    if let Some((_, what)) = table::NATIVE_NOISE.iter().find(|(glob, _)| matches_name(glob, path)) {
        return Verdict::by_rule(Noise, *what);
    }
    if let Some(own) = own.filter(|own| own.owner == Framework) {
        return own.verdict();
    }
    if let Some(verdict) = verdict_by_path(table::NATIVE_PATHS, file) {
        return verdict;
    }
    if let Some((_, what)) = table::NATIVE_NAMES.iter().find(|(glob, _)| matches_name(glob, path)) {
        return Verdict::by_rule(Framework, *what);
    }
    // Functions in libraries without debug information have a file name without any folders.
    let has_source = file.contains('/');
    if !has_source && let Some((_, what)) = table::C_NOISE.iter().find(|(glob, _)| matches(glob, path)) {
        return Verdict::by_rule(Noise, *what);
    }
    if !has_source && is_plumbing(function) {
        return Verdict::by_rule(Noise, "an allocation function");
    }
    if let Some(own) = own {
        return own.verdict();
    }
    if let Some(verdict) = binary.and_then(|binary| binary.judge(file)) {
        return verdict;
    }
    if has_source {
        return Verdict::by_rule(Mine, "a source file outside packages");
    }
    if let Some((_, what)) = table::C_NAMES.iter().find(|(glob, _)| matches(glob, path)) {
        return Verdict::by_rule(Framework, *what);
    }
    let rule = match crate_name(path) {
        Some(name) => Cow::from(format!("no rule matches {name}")),
        None => "a function without a source file".into(),
    };
    Verdict { owner: Mine, rule, guessed: true }
}

/// Returns the verdict of the first row in a table whose path matches.
fn verdict_by_path(table: &'static [(&str, Owner, &str)], file: &str) -> Option<Verdict> {
    let (_, owner, what) = table.iter().find(|(glob, ..)| matches_path(glob, file))?;
    Some(Verdict::by_rule(*owner, *what))
}

/// Returns whether `glob` matches the file. A glob can start at any folder of the path, and a folder matches everything
/// below it.
pub fn matches_path(glob: &str, file: &str) -> bool {
    let (glob, file) = (with_slashes(glob), with_slashes(file));
    let (glob, file) = (glob.trim_end_matches('/'), &*file);
    if file.is_empty() || glob.is_empty() || !may_match(glob, file) {
        return false;
    }
    let tries = |glob: &str| matches(glob, file) || matches(&format!("{glob}/*"), file);
    tries(glob) || (!glob.starts_with(['/', '*']) && tries(&format!("*/{glob}")))
}

/// Returns whether `glob` matches the function's path. A module matches everything in it.
pub fn matches_name(glob: &str, path: &str) -> bool {
    let glob = glob.strip_suffix("::").unwrap_or(glob);
    if glob.is_empty() || glob.contains(is_separator) || !may_match(glob, path) {
        return false;
    }
    matches(glob, path) || matches(&format!("{glob}::*"), path)
}

/// Returns whether `text` contains all literal parts of `glob`. This rules out most globs without allocating.
fn may_match(glob: &str, text: &str) -> bool {
    glob.split('*').all(|literal| text.contains(literal.trim_end_matches(['/', ':'])))
}
