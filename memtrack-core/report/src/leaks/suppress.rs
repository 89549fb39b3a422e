//! Suppressions of known leaks, given as a file of patterns with one glob per line; `#` starts a comment. A block is
//! left out if any frame in its stack matches a pattern.

use memtrack_frames::framework_operators::matches;
use memtrack_frames::ownership::{matches_name, matches_path, path_of};
use memtrack_model::Frame;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::Snapshot;
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;

/// Patterns for functions and files whose blocks are left out of the leak report.
///
/// Each glob is compared with the function paths and files of all frames in a stack; `*` matches any characters. A glob
/// can start at any module or folder. If it names a module or folder, it matches everything below that.
///
/// ```
/// # use memtrack_report::leaks::Suppressions;
/// let patterns = Suppressions::new().with_lines("# the plugin cache is kept on purpose\nplugins::load*\n\n/usr/lib\n");
/// assert_eq!(patterns.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions {
    globs: Vec<String>,
}

impl Suppressions {
    /// Returns an empty set of patterns.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the patterns from the lines of a file.
    #[must_use]
    pub fn with_lines(mut self, lines: &str) -> Self {
        let globs = lines.lines().map(|line| line.split_once('#').map_or(line, |(before, _)| before).trim());
        self.globs.extend(globs.filter(|glob| !glob.is_empty()).map(str::to_owned));
        self
    }

    /// Returns the number of patterns.
    pub fn len(&self) -> usize {
        self.globs.len()
    }

    /// Returns whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.globs.is_empty()
    }

    /// Returns the pattern with this number.
    pub(super) fn glob(&self, number: usize) -> &str {
        &self.globs[number]
    }
}

/// A search for patterns in the stacks of one snapshot. Each frame is inspected only once.
pub(super) struct Search<'a> {
    patterns: &'a Suppressions,
    by_stack: HashMap<StackId, bool, foldhash::fast::RandomState>,
    by_frame: HashMap<u64, Option<usize>, foldhash::fast::RandomState>,
    /// For each pattern, whether it matched any frame.
    pub(super) used: Vec<bool>,
}

impl<'a> Search<'a> {
    pub(super) fn new(patterns: &'a Suppressions) -> Self {
        let used = vec![false; patterns.len()];
        Self { patterns, by_stack: HashMap::default(), by_frame: HashMap::default(), used }
    }

    /// Returns whether blocks with this stack are left out.
    pub(super) fn is_suppressed(
        &mut self,
        snapshot: &Snapshot,
        stack: StackId,
        symbols: &mut Symbolizer,
    ) -> bool {
        if self.patterns.is_empty() || stack.is_none() {
            return false;
        }
        if let Some(&known) = self.by_stack.get(&stack) {
            return known;
        }
        let mut found = false;
        for &key in snapshot.frame_keys(stack).iter() {
            let patterns = self.patterns;
            let matching =
                self.by_frame.entry(key).or_insert_with(|| patterns.first_match(&symbols.frames(key)));
            if let Some(number) = *matching {
                self.used[number] = true;
                found = true;
            }
        }
        self.by_stack.insert(stack, found);
        found
    }
}

impl Suppressions {
    /// Returns the index of the first pattern that matches any of the functions at an address.
    fn first_match(&self, frames: &[Frame]) -> Option<usize> {
        let paths: Vec<String> = frames.iter().map(path_of).collect();
        self.globs.iter().position(|glob| {
            frames.iter().zip(&paths).any(|(frame, path)| {
                let file = frame.file.as_deref().unwrap_or("");
                matches_path(glob, file)
                    || [path, &frame.function].into_iter().any(|name| {
                        matches_name(glob, name)
                            || matches_name(&format!("*::{glob}"), name)
                            || matches(glob, name)
                    })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_match(patterns: &str, function: &str, file: &str) -> Option<usize> {
        let frame = Frame { function: function.into(), file: Some(file.into()), line: Some(1), binary: None };
        Suppressions::new().with_lines(patterns).first_match(&[frame])
    }

    #[test]
    fn glob_begins_at_any_module_or_folder() {
        for (glob, function, file, is_found) in [
            ("app::cache::fill", "app::cache::fill", "/src/cache.rs", true),
            ("cache::fill", "app::cache::fill", "/src/cache.rs", true),
            ("fill", "app::cache::fill", "/src/cache.rs", true),
            ("cache", "app::cache::fill::<u8>", "/src/other.rs", true),
            ("ill", "app::cache::fill", "/src/cache.rs", false),
            ("cache.rs", "f", "/src/cache.rs", true),
            ("src", "f", "/src/cache.rs", true),
            ("/src", "f", "/src/cache.rs", true),
            ("rc", "f", "/src/cache.rs", false),
            ("g_malloc*", "g_malloc0", "", true),
            ("*::leak_*", "app::leak_one", "", true),
            ("<T as Trait>::f", "<T as Trait>::f", "", true),
        ] {
            assert_eq!(find_match(glob, function, file).is_some(), is_found, "{glob} {function} {file}");
        }
    }

    #[test]
    fn comments_and_empty_lines_are_not_patterns() {
        let patterns = "# all\n\n  a::b  # why\n\t\nc\n";
        assert_eq!(find_match(patterns, "c", ""), Some(1));
        assert_eq!(Suppressions::new().with_lines(patterns).glob(0), "a::b");
    }
}
