//! Matches the functions of two files by their names and source files. Source files and lines may have moved between
//! the two files, so lines are matched by comparing all lines that a function has in either file.

use super::names::normalize_function;
use memtrack_model::Frame;
use memtrack_model::paths::{is_separator, with_slashes};
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

/// If the lines of a function in both files form more pairs than this, [`find_shift`] gives up. No real function is that
/// long.
const MAX_PAIRS: usize = 1 << 16;
/// The flag that marks a line without a counterpart in the other file.
const UNMATCHED: u32 = 1 << 31;

/// The functions of one file.
#[derive(Debug, Default)]
pub(super) struct Functions {
    frames: Vec<Frame>,
    known: HashMap<Frame, u32, foldhash::fast::RandomState>,
    /// The lines of each function, by its name and file.
    lines: HashMap<(String, String), BTreeSet<u32>>,
}

/// A function and one of its lines. The function has the same number in both files. The line is numbered as in the later
/// file, and 0 if it is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FunctionLine {
    function: u32,
    line: u32,
}

impl Functions {
    /// Returns the number of a function, assigning one if it is new.
    pub(super) fn assign_number(&mut self, frame: &Frame) -> u32 {
        if let Some(&number) = self.known.get(frame) {
            return number;
        }
        let number = self.frames.len() as u32;
        self.frames.push(frame.clone());
        self.known.insert(frame.clone(), number);
        number
    }

    /// Records that the file contains this line, whether or not any group contains it.
    pub(super) fn record_line(&mut self, frame: &Frame) {
        if let (Some(line), Some(file)) = (known_line(frame), known_file(frame)) {
            self.lines
                .entry((normalize_function(&frame.function), file.to_owned()))
                .or_default()
                .insert(line);
        }
    }

    /// Returns the function with this number.
    pub(super) fn frame(&self, number: u32) -> &Frame {
        &self.frames[number as usize]
    }
}

/// Returns the file if it is known; PyTorch writes `??` for unknown files.
fn known_file(frame: &Frame) -> Option<&str> {
    frame.file.as_deref().filter(|file| !file.is_empty() && *file != "??")
}

/// Returns the line if it is known.
fn known_line(frame: &Frame) -> Option<u32> {
    frame.line.filter(|&line| line > 0 && line < UNMATCHED)
}

/// Returns the shared number and the line of each function, first for the earlier and then for the later file.
pub(super) fn match_functions(before: &Functions, after: &Functions) -> [Vec<FunctionLine>; 2] {
    let moved = match_moved_files(before, after);
    let mut drifts: HashMap<(&str, &str), [HashMap<u32, u32>; 2]> = HashMap::new();
    let nothing = BTreeSet::new();
    for ((function, file), lines) in &before.lines {
        let file = moved.get(file.as_str()).copied().unwrap_or(file);
        let later = after.lines.get(&(function.clone(), file.to_owned())).unwrap_or(&nothing);
        drifts.insert((function, file), match_lines(lines, later));
    }
    let mut numbers: HashMap<(String, String), u32> = HashMap::new();
    let mut lines_of = |of: &Functions, side: usize| -> Vec<FunctionLine> {
        let place = |frame: &Frame| {
            let function = normalize_function(&frame.function);
            let file = known_file(frame).unwrap_or_default();
            let file = if side == 0 { moved.get(file).copied().unwrap_or(file) } else { file };
            let line = known_line(frame).map_or(0, |line| {
                let drift = drifts.get(&(function.as_str(), file));
                drift.and_then(|drift| drift[side].get(&line)).copied().unwrap_or(line)
            });
            let next = numbers.len() as u32;
            let function = *numbers.entry((function, file.to_owned())).or_insert(next);
            FunctionLine { function, line }
        };
        of.frames.iter().map(place).collect()
    };
    [lines_of(before, 0), lines_of(after, 1)]
}

/// Maps source files that only the earlier file has to source files that only the later file has. Two source files
/// match if the last three, two or one components of their paths are the same and no other paths share those
/// components.
fn match_moved_files<'a>(before: &'a Functions, after: &'a Functions) -> HashMap<&'a str, &'a str> {
    let files = |functions: &'a Functions| -> BTreeSet<&'a str> {
        let of_frames = functions.frames.iter().filter_map(known_file);
        of_frames.chain(functions.lines.keys().map(|(_, file)| file.as_str())).collect()
    };
    let [all_before, all_after] = [files(before), files(after)];
    let mut gone: Vec<&str> = all_before.difference(&all_after).copied().collect();
    let mut new: Vec<&str> = all_after.difference(&all_before).copied().collect();
    let mut moved = HashMap::new();
    for parts in [3, 2, 1] {
        let mut ends: HashMap<Cow<'_, str>, [Vec<&str>; 2]> = HashMap::new();
        for (side, files) in [&gone, &new].into_iter().enumerate() {
            for &file in files {
                ends.entry(path_suffix(file, parts)).or_default()[side].push(file);
            }
        }
        for [from, to] in ends.into_values() {
            if let ([from], [to]) = (&from[..], &to[..]) {
                moved.insert(*from, *to);
            }
        }
        gone.retain(|file| !moved.contains_key(file));
        let taken: BTreeSet<&str> = moved.values().copied().collect();
        new.retain(|file| !taken.contains(file));
    }
    moved
}

/// Returns the last `parts` components of a path, separated by slashes.
fn path_suffix(path: &str, parts: usize) -> Cow<'_, str> {
    with_slashes(path.rmatch_indices(is_separator).nth(parts - 1).map_or(path, |(at, _)| &path[at + 1..]))
}

/// Maps a function's lines in both files to shared numbers, so that the same line has the same number in both. Lines
/// that are not in the maps keep their numbers.
fn match_lines(before: &BTreeSet<u32>, after: &BTreeSet<u32>) -> [HashMap<u32, u32>; 2] {
    // If one file has all lines of the other, nothing moved: the remaining lines were added or removed.
    if before.is_subset(after) || after.is_subset(before) {
        return Default::default();
    }
    let common: BTreeSet<u32> = before.intersection(after).copied().collect();
    let few = common.len() * 2 < before.len().min(after.len());
    if few && before.len() == after.len() {
        return [before.iter().copied().zip(after.iter().copied()).collect(), HashMap::new()];
    }
    if few && let Some(by) = find_shift(before, after) {
        let to = |&line: &u32| {
            let there = u32::try_from(i64::from(line) + by).ok().filter(|there| after.contains(there));
            (line, there.unwrap_or(line | UNMATCHED))
        };
        return [before.iter().map(to).collect(), HashMap::new()];
    }
    // If both files have the same number of lines between two unmoved lines, these lines match in order. Otherwise the
    // matching lines cannot be determined, so all lines between the two unmoved ones are merged.
    let mut maps = [HashMap::new(), HashMap::new()];
    let mut start = 0;
    for end in common.iter().copied().chain([u32::MAX]) {
        let [here, there] = [before, after].map(|lines| lines.range(start..end).copied().collect::<Vec<_>>());
        if here.len() == there.len() {
            maps[0].extend(here.into_iter().zip(there));
        } else if !here.is_empty() && !there.is_empty() {
            maps[0].extend(here.into_iter().map(|line| (line, start | UNMATCHED)));
            maps[1].extend(there.into_iter().map(|line| (line, start | UNMATCHED)));
        }
        start = end.saturating_add(1);
    }
    maps
}

/// Returns the offset from earlier to later lines if exactly one offset maps every line of the file with fewer lines to
/// a line of the other file; `None` otherwise, or if there are more than [`MAX_PAIRS`] pairs.
fn find_shift(before: &BTreeSet<u32>, after: &BTreeSet<u32>) -> Option<i64> {
    if before.len() * after.len() > MAX_PAIRS {
        return None;
    }
    let (fewer, more, sign) =
        if before.len() < after.len() { (before, after, 1) } else { (after, before, -1) };
    let first = i64::from(*fewer.first()?);
    let fits = |by: &i64| {
        fewer.iter().all(|&line| u32::try_from(i64::from(line) + by).is_ok_and(|there| more.contains(&there)))
    };
    let mut fitting = more.iter().map(|&line| i64::from(line) - first).filter(fits);
    let by = fitting.next()?;
    fitting.next().is_none().then_some(by * sign)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_set(lines: &[u32]) -> BTreeSet<u32> {
        lines.iter().copied().collect()
    }

    /// Returns the shared numbers for the lines of both sides.
    fn matched_lines(before: &[u32], after: &[u32]) -> [Vec<u32>; 2] {
        let maps = match_lines(&line_set(before), &line_set(after));
        let there = |side: usize, line: &u32| maps[side].get(line).copied().unwrap_or(*line);
        [
            before.iter().map(|line| there(0, line)).collect(),
            after.iter().map(|line| there(1, line)).collect(),
        ]
    }

    #[test]
    fn unchanged_lines_have_not_moved() {
        assert_eq!(matched_lines(&[13, 14], &[14]), [vec![13, 14], vec![14]]);
        assert_eq!(matched_lines(&[13], &[9, 13, 20]), [vec![13], vec![9, 13, 20]]);
    }

    #[test]
    fn lines_that_moved_together_match() {
        assert_eq!(matched_lines(&[10, 12, 20], &[12, 14, 22])[0], [12, 14, 22]);
        assert_eq!(matched_lines(&[10, 17, 20], &[12, 19, 22, 40])[0], [12, 19, 22]);
        // The last line was removed, and a different line has its number now.
        assert_eq!(matched_lines(&[10, 17, 20, 22], &[12, 19, 22])[0], [12, 19, 22, 22 | UNMATCHED]);
    }

    #[test]
    fn changed_line_is_found_between_unchanged_lines() {
        assert_eq!(matched_lines(&[10, 20, 30], &[10, 21, 30])[0], [10, 21, 30]);
        // A line was inserted at the front and the last line was removed. These two lines must not match.
        assert_eq!(matched_lines(&[10, 20, 30, 40], &[5, 10, 20, 30])[0], [10, 20, 30, 40]);
    }

    #[test]
    fn ambiguous_lines_are_merged() {
        let [before, after] = matched_lines(&[10], &[12, 15]);
        assert_eq!((before, after), (vec![UNMATCHED], vec![UNMATCHED, UNMATCHED]));
        let [before, after] = matched_lines(&[10, 20, 24, 30], &[10, 21, 30]);
        assert_eq!(before, [10, 11 | UNMATCHED, 11 | UNMATCHED, 30]);
        assert_eq!(after, [10, 11 | UNMATCHED, 30]);
    }

    fn collect_functions(frames: &[(&str, &str, u32)]) -> Functions {
        let mut functions = Functions::default();
        for &(function, file, line) in frames {
            let frame =
                Frame { function: function.into(), file: Some(file.into()), line: Some(line), binary: None };
            functions.assign_number(&frame);
            functions.record_line(&frame);
        }
        functions
    }

    #[test]
    fn files_of_another_checkout_match_unless_ambiguous() {
        let before = collect_functions(&[
            ("f", "/a/v1/app/model.py", 3),
            ("g", "/a/x/train.py", 1),
            ("h", "/a/y/util.py", 1),
        ]);
        let after = collect_functions(&[
            ("f", "/b/v2/app/model.py", 3),
            ("g", "/c/train.py", 1),
            ("h", "/c/one/util.py", 1),
            ("h", "/c/two/util.py", 1),
        ]);
        let [here, there] = match_functions(&before, &after);
        assert_eq!(here[..2], there[..2]);
        assert!(!there.contains(&here[2]));
    }

    #[test]
    fn windows_paths_match_those_of_other_systems() {
        let before =
            collect_functions(&[("f", "D:\\work\\app\\model.py", 3), ("f", "D:\\work\\lib\\model.py", 3)]);
        let after =
            collect_functions(&[("f", "/home/kim/app/model.py", 3), ("f", "/home/kim/lib/model.py", 3)]);
        let [here, there] = match_functions(&before, &after);
        assert_eq!(here, there);
    }

    #[test]
    fn unknown_files_and_lines_do_not_distinguish_functions() {
        let [here, there] = match_functions(
            &collect_functions(&[("f", "??", 0)]),
            &collect_functions(&[("f", "", 0), ("f", "??", 7)]),
        );
        assert_eq!(here[0], there[0]);
        assert_ne!(here[0], there[1]);
    }
}
