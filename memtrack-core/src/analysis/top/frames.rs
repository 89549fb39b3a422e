//! A stack as lines for people: of a Python program its own lines, not those of the C++ that carries them out.

use super::StackLine;
use crate::analysis::units::{counted, printable};
use crate::stack::symbols::Frame;

/// At most `most` frames, and a line for those that are left out. Where Python's are among them only those are shown:
/// hardly anyone can change the others, and there may be dozens on top.
pub(in crate::analysis) fn frame_lines(stack: &[StackLine], most: usize) -> Vec<String> {
    let of_python = stack.iter().filter(|line| is_python(&line.frame)).count();
    let (candidates, folded) =
        if of_python > 0 { (of_python, stack.len() - of_python) } else { (stack.len(), 0) };
    let chosen = stack.iter().filter(|line| of_python == 0 || is_python(&line.frame));
    let mut lines: Vec<String> = chosen.take(most).map(|line| described(&line.frame)).collect();
    let more = match candidates.saturating_sub(most) {
        0 => None,
        more => Some(format!("{more} more")),
    };
    let folded = (folded > 0).then(|| counted(folded as u64, "C++ frame"));
    let left_out: Vec<String> = more.into_iter().chain(folded).collect();
    if !left_out.is_empty() {
        lines.push(format!("… {}", left_out.join(", ")));
    }
    lines
}

/// Whether the frame is Python's: from a file of Python's, or from `<string>` and the like.
pub(in crate::analysis) fn is_python(frame: &Frame) -> bool {
    let of = |file: &str| file.ends_with(".py") || (file.starts_with('<') && file.ends_with('>'));
    frame.file.as_deref().is_some_and(of)
}

/// `function file:line`, with the file's name only.
pub(in crate::analysis) fn described(frame: &Frame) -> String {
    let file = frame.file.as_deref().and_then(|file| file.rsplit('/').next());
    printable(&match (file, frame.line) {
        (Some(file), Some(line)) => format!("{} {file}:{line}", frame.function),
        (Some(file), None) => format!("{} {file}", frame.function),
        _ => frame.function.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(files: &[&str]) -> Vec<StackLine> {
        let line = |(place, file): (usize, &&str)| StackLine {
            address: place as u64,
            frame: Frame { function: format!("f{place}"), file: Some((*file).into()), line: Some(7) },
        };
        files.iter().enumerate().map(line).collect()
    }

    #[test]
    fn python_comes_first_and_the_rest_is_counted() {
        let mixed = stack(&["??", "a.cpp", "/x/optimizer.py", "??", "<string>"]);
        assert_eq!(frame_lines(&mixed, 7), ["f2 optimizer.py:7", "f4 <string>:7", "… 3 C++ frames"]);
        assert_eq!(frame_lines(&mixed, 1), ["f2 optimizer.py:7", "… 1 more, 3 C++ frames"]);
        assert_eq!(frame_lines(&mixed[1..3], usize::MAX), ["f2 optimizer.py:7", "… 1 C++ frame"]);
    }

    #[test]
    fn stacks_of_one_language_are_shown_from_their_top() {
        assert_eq!(frame_lines(&stack(&["a.rs", "b.rs", "c.rs"]), 2), ["f0 a.rs:7", "f1 b.rs:7", "… 1 more"]);
        assert_eq!(frame_lines(&stack(&["a.py", "b.py"]), 2), ["f0 a.py:7", "f1 b.py:7"]);
    }
}
