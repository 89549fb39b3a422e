//! What a frame is called where a name is all that a format shows.

use memtrack_model::Frame;

/// The one frame of a stack that has none.
pub(crate) const NO_STACK: &str = "(no stack)";

/// The file of a frame, where it is known: PyTorch writes `??` for what it does not know.
pub(crate) fn file_of(frame: &Frame) -> Option<&str> {
    frame.file.as_deref().filter(|file| !file.is_empty() && *file != "??")
}

/// The line of a frame, where it is known.
pub(crate) fn line_of(frame: &Frame) -> Option<u32> {
    frame.line.filter(|&line| line > 0 && file_of(frame).is_some())
}

/// `function file:line`, with the file's name only. The line belongs to the name, because these formats take frames of one name
/// for one frame.
pub(crate) fn label(frame: &Frame) -> String {
    let file = file_of(frame).map(|file| file.rsplit('/').next().unwrap_or(file));
    match (file, line_of(frame)) {
        (Some(file), Some(line)) => format!("{} {file}:{line}", frame.function),
        (Some(file), None) => format!("{} {file}", frame.function),
        _ => frame.function.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_where_it_is_known() {
        let frame =
            |file: &str, line| Frame { function: "step".into(), file: Some(file.into()), line: Some(line) };
        assert_eq!(label(&frame("/x/optimizer.py", 76)), "step optimizer.py:76");
        assert_eq!(label(&frame("optimizer.py", 0)), "step optimizer.py");
        assert_eq!(label(&frame("??", 7)), "step");
        assert_eq!(label(&Frame { function: "malloc".into(), ..Frame::default() }), "malloc");
    }
}
