//! Determines the owner of functions by their binary. Functions in system libraries and packages are not the user's,
//! and neither are functions in other libraries without debug information. Functions in the program itself are the
//! user's, unless a more specific rule applies.

use super::{Owner, Verdict, matches_path, table};
use crate::framework_operators::matches;
use crate::torch_stacks::ParsedFrame;
use memtrack_model::paths::{file_name, is_library, with_slashes};
use memtrack_model::{BinaryPart, Frame};
use std::borrow::Cow;

/// The binary that contains a native function.
#[derive(Debug)]
pub(super) struct FrameBinary<'a> {
    path: Cow<'a, str>,
    /// The binary's other path in case `/lib` is a symbolic link to `/usr/lib`.
    linked: Option<String>,
    part: BinaryPart,
    /// Whether the frame has the binary's path instead of a source file. PyTorch writes such frames for functions without
    /// debug information.
    pub(super) is_in_place_of_file: bool,
}

impl<'a> FrameBinary<'a> {
    /// Returns the binary of a frame, or `None` if it is unknown or the function is a Python function.
    pub(super) fn of(frame: &'a Frame, line: &ParsedFrame<'a>) -> Option<Self> {
        if line.is_python {
            return None;
        }
        let known = frame.binary.as_deref().filter(|binary| !binary.path.is_empty());
        let is_in_place_of_file = known.is_none() && is_library(line.file);
        let (path, part) = match known {
            Some(binary) => (with_slashes(&binary.path), binary.part),
            None if is_in_place_of_file => (with_slashes(line.file), BinaryPart::Library),
            None => return None,
        };
        let linked = other_usr_path(&path);
        Some(Self { path, linked, part, is_in_place_of_file })
    }

    /// Returns whether the user's glob matches this binary, either by its name (with or without the version after
    /// `.so`), by its path, or by a folder that contains it. `file` is the function's source file, because folder globs
    /// do not apply to functions in the program itself that have a source file.
    pub(super) fn matches_glob(&self, glob: &str, file: &str) -> bool {
        let glob = with_slashes(glob);
        let glob = glob.trim_end_matches('/');
        if glob.is_empty() || glob.contains("::") {
            return false;
        }
        let name = file_name(&self.path);
        // For `libz.so.1.3`, these are `libz`, `libz.so` and `libz.so.1`.
        let at = name.find(".so").unwrap_or(name.len());
        let ends = name.match_indices('.').map(|(end, _)| end).filter(|&end| end >= at);
        let names: Vec<&str> = ends.map(|end| &name[..end]).chain([name]).collect();
        let may_begin_anywhere = !glob.starts_with('/');
        let is_at =
            |path: &str| matches(glob, path) || (may_begin_anywhere && matches(&format!("*/{glob}"), path));
        // A glob such as `build/*` stands for a folder.
        let has_name = file_name(glob).bytes().any(|letter| letter != b'*');
        let is_named = has_name && (names.iter().any(|name| matches(glob, name)) || self.paths().any(is_at));
        let is_program = self.part == BinaryPart::Program;
        is_named || ((!is_program || !file.contains('/')) && self.is_in(glob))
    }

    /// Returns the owner of a function with this source file, if it can be determined from the binary.
    pub(super) fn judge(&self, file: &str) -> Option<Verdict> {
        let has_source = file.contains('/');
        let name = file_name(&self.path);
        if table::INTERPRETERS.iter().any(|glob| matches(glob, name)) {
            return Some(Verdict::by_rule(Owner::Noise, "Python's interpreter"));
        }
        if has_source && (self.part == BinaryPart::Program || self.is_in_project_of(file)) {
            return None;
        }
        if let Some((_, owner, what)) = table::BINARY_PATHS.iter().find(|(glob, ..)| self.is_in(glob)) {
            return Some(Verdict::by_rule(*owner, *what));
        }
        if has_source {
            return None;
        }
        if let Some((_, what)) = table::MIXED_BINARY_PATHS.iter().find(|(glob, _)| self.is_in(glob)) {
            return Some(Verdict::by_rule(Owner::Framework, *what));
        }
        let is_other = self.part == BinaryPart::Library;
        is_other.then(|| Verdict::by_rule(Owner::Framework, "a library without debug information"))
    }

    /// Returns whether the source file is in the project folder that also contains the virtual environment with this
    /// binary. This is the case for an extension module that was installed from that project.
    fn is_in_project_of(&self, file: &str) -> bool {
        let Some((environment, _)) =
            self.path.split_once("/lib/python").or_else(|| self.path.split_once("/Lib/site-packages"))
        else {
            return false;
        };
        let Some((project, _)) = environment.rsplit_once('/') else { return false };
        let is_deep = project.matches('/').count() >= 2;
        is_deep && file.strip_prefix(project).is_some_and(|rest| rest.starts_with('/'))
    }

    fn is_in(&self, folder: &str) -> bool {
        self.paths().any(|path| matches_path(folder, path))
    }

    /// Returns the paths of the binary.
    fn paths(&self) -> impl Iterator<Item = &str> {
        [&*self.path].into_iter().chain(self.linked.as_deref())
    }
}

/// Returns the equivalent path with or without the prefix `/usr`, for folders that may be symbolic links.
fn other_usr_path(path: &str) -> Option<String> {
    let is_linked = |path: &str| ["/lib", "/bin", "/sbin"].iter().any(|folder| path.starts_with(folder));
    if is_linked(path) {
        return Some(format!("/usr{path}"));
    }
    path.strip_prefix("/usr").filter(|rest| is_linked(rest)).map(str::to_owned)
}
