//! The owner of the functions of a binary: functions of system libraries and packages are not the user's, nor are those
//! of other libraries without debug information; those of the program itself are, unless a better rule applies.

use super::{Owner, Verdict, on_path, table};
use crate::analysis::patterns::matches;
use crate::analysis::torch_stacks::ParsedFrame;
use memtrack_model::paths::{file_name, is_library, slashed};
use memtrack_model::{BinaryPart, Frame};
use std::borrow::Cow;

/// The binary that a native function is in.
#[derive(Debug)]
pub(super) struct InBinary<'a> {
    path: Cow<'a, str>,
    /// Its other path if `/lib` is a link to `/usr/lib`.
    linked: Option<String>,
    part: BinaryPart,
    /// Whether it stands in the place of the source file, as PyTorch writes it for functions without debug information.
    pub(super) is_in_place_of_file: bool,
}

impl<'a> InBinary<'a> {
    /// Finds the binary of a frame; none where it is unknown, and for Python functions.
    pub(super) fn of(frame: &'a Frame, line: &ParsedFrame<'a>) -> Option<Self> {
        if line.is_python {
            return None;
        }
        let known = frame.binary.as_deref().filter(|binary| !binary.path.is_empty());
        let is_in_place_of_file = known.is_none() && is_library(line.file);
        let (path, part) = match known {
            Some(binary) => (slashed(&binary.path), binary.part),
            None if is_in_place_of_file => (slashed(line.file), BinaryPart::Library),
            None => return None,
        };
        let linked = linked(&path);
        Some(Self { path, linked, part, is_in_place_of_file })
    }

    /// Returns whether the user's glob matches this binary, for a function of this source file: its name, with or without
    /// the part after `.so`, its path, or a folder that it is in. A folder does not apply to the sources of the program
    /// itself.
    pub(super) fn is_meant_by(&self, glob: &str, file: &str) -> bool {
        let glob = slashed(glob);
        let glob = glob.trim_end_matches('/');
        if glob.is_empty() || glob.contains("::") {
            return false;
        }
        let name = file_name(&self.path);
        // `libz`, `libz.so` and `libz.so.1` of `libz.so.1.3`.
        let at = name.find(".so").unwrap_or(name.len());
        let ends = name.match_indices('.').map(|(end, _)| end).filter(|&end| end >= at);
        let names: Vec<&str> = ends.map(|end| &name[..end]).chain([name]).collect();
        let may_begin_anywhere = !glob.starts_with('/');
        let is_at =
            |path: &str| matches(glob, path) || (may_begin_anywhere && matches(&format!("*/{glob}"), path));
        // `build/*` is a folder.
        let has_name = file_name(glob).bytes().any(|letter| letter != b'*');
        let is_named = has_name && (names.iter().any(|name| matches(glob, name)) || self.paths().any(is_at));
        let is_program = self.part == BinaryPart::Program;
        is_named || ((!is_program || !file.contains('/')) && self.is_in(glob))
    }

    /// Returns the owner of the function, if it follows from the binary.
    pub(super) fn verdict(&self, file: &str) -> Option<Verdict> {
        let has_source = file.contains('/');
        let name = file_name(&self.path);
        if table::INTERPRETERS.iter().any(|glob| matches(glob, name)) {
            return Some(Verdict::known(Owner::Noise, "Python's interpreter"));
        }
        if has_source && (self.part == BinaryPart::Program || self.lies_in_the_project_of(file)) {
            return None;
        }
        if let Some((_, owner, what)) = table::BINARY_PATHS.iter().find(|(glob, ..)| self.is_in(glob)) {
            return Some(Verdict::known(*owner, *what));
        }
        if has_source {
            return None;
        }
        if let Some((_, what)) = table::MIXED_BINARY_PATHS.iter().find(|(glob, _)| self.is_in(glob)) {
            return Some(Verdict::known(Owner::Framework, *what));
        }
        let is_other = self.part == BinaryPart::Library;
        is_other.then(|| Verdict::known(Owner::Framework, "a library without debug information"))
    }

    /// Returns whether the source file is in the folder that has the virtual environment with this binary, as for an
    /// extension that was built into it.
    fn lies_in_the_project_of(&self, file: &str) -> bool {
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
        self.paths().any(|path| on_path(folder, path))
    }

    /// Returns its paths.
    fn paths(&self) -> impl Iterator<Item = &str> {
        [&*self.path].into_iter().chain(self.linked.as_deref())
    }
}

/// Returns the path below `/usr` of one that is not, or the other way round.
fn linked(path: &str) -> Option<String> {
    let is_linked = |path: &str| ["/lib", "/bin", "/sbin"].iter().any(|folder| path.starts_with(folder));
    if is_linked(path) {
        return Some(format!("/usr{path}"));
    }
    path.strip_prefix("/usr").filter(|rest| is_linked(rest)).map(str::to_owned)
}
