//! Formats a stack as lines of text; for a program in Python or JavaScript, only the lines of these languages are shown,
//! without the C++ frames below them.

use super::StackLine;
use crate::layout::{MIN_NAME_CHARS, shorten_function};
use memtrack_frames::language::is_script;
use memtrack_frames::trim::is_internal;
use memtrack_model::Frame;
use memtrack_model::paths::file_name;
use memtrack_model::units::{counted, printable};

/// Formats at most `frames` frames (0 means all of them) in `room` characters each, followed by a line that counts the
/// omitted ones. If there are frames of scripts, only those are shown, because users can hardly change the C++ frames,
/// and there may be dozens of them at the top. Frames that only forward a call are omitted too.
pub(crate) fn format_frames(stack: &[StackLine], frames: usize, room: usize) -> Vec<String> {
    if frames == 0 {
        return stack.iter().map(|line| format_frame(&line.frame, room)).collect();
    }
    let of_script = stack.iter().filter(|line| is_script(&line.frame)).count();
    let chosen = shown_frames(stack);
    let internal = if of_script == 0 { stack.len() } else { of_script } - chosen.len();
    let mut lines: Vec<String> =
        chosen.iter().take(frames).map(|line| format_frame(&line.frame, room)).collect();
    let counts = [
        (chosen.len().saturating_sub(frames), "more"),
        (if of_script == 0 { 0 } else { stack.len() - of_script }, "C++ frame"),
        (internal, "internal frame"),
    ];
    let left_out = counts.iter().filter(|(count, _)| *count > 0).map(|&(count, what)| match what {
        "more" => format!("{count} more"),
        what => counted(count as u64, what),
    });
    let left_out: Vec<String> = left_out.collect();
    if !left_out.is_empty() {
        lines.push(format!("… {}", left_out.join(", ")));
    }
    lines
}

/// Returns the frames of a stack to show: its frames of scripts or, if it has none, all frames. Of these, the frames that
/// only forward a call are omitted, unless there are no others.
pub(crate) fn shown_frames(stack: &[StackLine]) -> Vec<&StackLine> {
    let of_script = stack.iter().any(|line| is_script(&line.frame));
    let rest = stack.iter().filter(|line| !of_script || is_script(&line.frame));
    let is_informative = |line: &&StackLine| !is_internal(&line.frame);
    let all_internal = !rest.clone().any(|line| is_informative(&line));
    rest.filter(|line| all_internal || is_informative(line)).collect()
}

/// Formats `function file:line` in about `room` characters, using only the file's name.
pub(crate) fn format_frame(frame: &Frame, room: usize) -> String {
    // PyTorch writes `??` for an unknown file and 0 for an unknown line.
    let file = frame.file.as_deref().map(file_name);
    let file = file.filter(|file| !file.is_empty() && *file != "??");
    let place = match (file, frame.line.filter(|&line| line > 0)) {
        (Some(file), Some(line)) => format!(" {file}:{line}"),
        (Some(file), None) => format!(" {file}"),
        _ => String::new(),
    };
    let left = room.saturating_sub(place.chars().count()).max(MIN_NAME_CHARS);
    printable(&(shorten_function(&frame.function, left) + &place))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(files: &[&str]) -> Vec<StackLine> {
        let line = |(place, file): (usize, &&str)| StackLine {
            address: place as u64,
            frame: Frame {
                function: format!("f{place}"),
                file: Some((*file).into()),
                line: Some(7),
                binary: None,
            },
        };
        files.iter().enumerate().map(line).collect()
    }

    #[test]
    fn python_frames_come_first_and_others_are_counted() {
        let mixed = stack(&["??", "a.cpp", "/x/optimizer.py", "??", "<string>"]);
        assert_eq!(
            format_frames(&mixed, 7, usize::MAX),
            ["f2 optimizer.py:7", "f4 <string>:7", "… 3 C++ frames"]
        );
        assert_eq!(format_frames(&mixed, 1, usize::MAX), ["f2 optimizer.py:7", "… 1 more, 3 C++ frames"]);
        assert_eq!(format_frames(&mixed[1..3], 7, usize::MAX), ["f2 optimizer.py:7", "… 1 C++ frame"]);
    }

    #[test]
    fn javascript_frames_come_first_too() {
        let mixed = stack(&["a.cc", "node:buffer", "/x/app.mjs", "b.cc"]);
        assert_eq!(format_frames(&mixed, 7, 80), ["f1 node:buffer:7", "f2 app.mjs:7", "… 2 C++ frames"]);
        let mut own = stack(&["/x/app.js"]);
        own[0].frame.function = "clone".into();
        assert_eq!(format_frames(&own, 7, 80), ["clone app.js:7"], "it is not that of C");
    }

    #[test]
    fn stacks_of_one_language_are_shown_from_their_top() {
        assert_eq!(
            format_frames(&stack(&["a.rs", "b.rs", "c.rs"]), 2, 80),
            ["f0 a.rs:7", "f1 b.rs:7", "… 1 more"]
        );
        assert_eq!(format_frames(&stack(&["a.py", "b.py"]), 2, 80), ["f0 a.py:7", "f1 b.py:7"]);
    }

    #[test]
    fn frames_that_only_forward_call_are_counted_and_shown_on_demand() {
        let mut calls =
            stack(&["/v/torch/nn/modules/module.py", "/app/model.py", "/v/torch/nn/modules/module.py"]);
        calls[0].frame.function = "_call_impl".into();
        calls[2].frame.function = "Module._wrapped_call_impl".into();
        assert_eq!(format_frames(&calls, 7, 80), ["f1 model.py:7", "… 2 internal frames"]);
        assert_eq!(format_frames(&calls, 0, 80).len(), 3);
        assert_eq!(format_frames(&calls[..1], 7, 80), ["_call_impl module.py:7"], "nothing else is there");
    }

    #[test]
    fn unknown_places_are_omitted_and_known_ones_are_shown() {
        let frame = |file: &str, line| Frame {
            function: "f(int, int, int)".repeat(3),
            file: Some(file.into()),
            line: Some(line),
            binary: None,
        };
        assert_eq!(format_frame(&frame("??", 0), 100), "f(int, int, int)".repeat(3));
        assert_eq!(format_frame(&frame("a/b.cpp", 7), 30), "f(…)f(…)f(…) b.cpp:7");
    }
}
