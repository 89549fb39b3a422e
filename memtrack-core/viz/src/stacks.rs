//! Stacks as PyTorch folds them, with the outermost frame first and without interpreter and dispatcher frames. Each
//! distinct name is checked only once.

use super::repr::Repr;
use super::sink::push_decimal;
use memtrack_model::answer::FrameAnswer;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::{FrameId, Snapshot, StringId};

/// Frames whose function name contains one of these are hidden.
const HIDDEN_NAMES: [&str; 8] = [
    "unwind::unwind",
    "CapturedTraceback::gather",
    "gather_with_cpp",
    "_start",
    "__libc_start_main",
    "PyEval_",
    "PyObject_",
    "PyFunction_",
];
/// Frames whose file name contains one of these are hidden.
const HIDDEN_FILES: [&str; 10] = [
    "core/boxing",
    "/Register",
    "/Redispatch",
    "pythonrun.c",
    "Modules/main.c",
    "Objects/call.c",
    "Objects/methodobject.c",
    "pycore_ceval.h",
    "ceval.c",
    "cpython/abstract.h",
];

/// The length at which stacks are cut, in bytes. A file that repeats one long frame could otherwise make them
/// arbitrarily long.
const MAX_STACK_BYTES: usize = 1 << 20;

/// A writer for the stacks of one snapshot.
pub(super) struct Stacks<'a> {
    snapshot: &'a Snapshot,
    /// For each string, whether it hides a frame when it is the function's name, or `None` if not yet checked.
    names: Vec<Option<bool>>,
    /// For each string, whether it hides a frame when it is the file's name, or `None` if not yet checked.
    files: Vec<Option<bool>>,
}

impl<'a> Stacks<'a> {
    /// Creates a writer for the stacks of `snapshot`.
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let strings = snapshot.strings.len();
        Self { snapshot, names: vec![None; strings], files: vec![None; strings] }
    }

    /// Appends a stack. A stack without frames becomes `<non-python>`; if all its frames are hidden, nothing is
    /// appended.
    pub(super) fn push(&mut self, out: &mut Vec<u8>, stack: StackId) {
        let frames = self.snapshot.named.get(stack);
        if frames.is_empty() {
            return out.extend_from_slice(b"<non-python>");
        }
        let start = out.len();
        let mut first = true;
        for &frame in frames.iter().rev() {
            if self.is_hidden(frame) {
                continue;
            }
            if !std::mem::take(&mut first) {
                out.push(b';');
            }
            if out.len() - start >= MAX_STACK_BYTES {
                return out.extend_from_slice(b"...");
            }
            push_frame(out, self.snapshot, frame);
        }
    }

    /// Returns the texts of the visible frames, innermost first.
    pub(super) fn frame_texts(&mut self, stack: StackId) -> Vec<String> {
        self.visible_frames(stack, "...".into(), |snapshot, frame| {
            let mut text = Vec::new();
            push_frame(&mut text, snapshot, frame);
            (String::from_utf8_lossy(&text).into_owned(), text.len())
        })
    }

    /// Returns the visible frames for JSON, innermost first, or `None` if there are none. A stack that was cut ends
    /// with an empty frame.
    pub(super) fn build_answer(&mut self, stack: StackId) -> Option<Vec<FrameAnswer>> {
        let visible = self.visible_frames(stack, FrameAnswer::default(), |snapshot, frame| {
            let frame = frame_to_answer(snapshot, frame);
            let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
            let bytes = length(&frame.function) + length(&frame.file);
            (frame, bytes)
        });
        (!visible.is_empty()).then_some(visible)
    }

    /// Converts the visible frames, innermost first. `convert` also returns the size of a frame in bytes. A stack that
    /// is too long ends with `cut`.
    fn visible_frames<T>(
        &mut self,
        stack: StackId,
        cut: T,
        convert: impl Fn(&Snapshot, FrameId) -> (T, usize),
    ) -> Vec<T> {
        let snapshot = self.snapshot;
        let mut visible = Vec::new();
        let mut bytes = 0;
        for &frame in snapshot.named.get(stack) {
            if self.is_hidden(frame) {
                continue;
            }
            if bytes >= MAX_STACK_BYTES {
                visible.push(cut);
                break;
            }
            let (converted, size_bytes) = convert(snapshot, frame);
            bytes += size_bytes;
            visible.push(converted);
        }
        visible
    }

    fn is_hidden(&mut self, frame: FrameId) -> bool {
        let (name, file) = (self.snapshot.frames.name(frame), self.snapshot.frames.filename(frame));
        let strings = &self.snapshot.strings;
        let contains = |id: StringId, parts: &[&str]| {
            let text = strings.bytes(id);
            parts.iter().any(|part| text.windows(part.len()).any(|window| window == part.as_bytes()))
        };
        let is_hidden = |known: Option<&mut Option<bool>>, id, parts| match known {
            Some(known) => *known.get_or_insert_with(|| contains(id, parts)),
            None => false,
        };
        is_hidden(self.names.get_mut(name.index()), name, &HIDDEN_NAMES)
            || is_hidden(self.files.get_mut(file.index()), file, &HIDDEN_FILES)
    }
}

/// Converts a frame for JSON.
fn frame_to_answer(snapshot: &Snapshot, frame: FrameId) -> FrameAnswer {
    let odd = |key| snapshot.frames.records.exact_under(frame.index(), key);
    let text = |key, id: StringId| {
        let mut text = Vec::new();
        match odd(key) {
            Some(value) => Repr::of(snapshot).write_str(&mut text, value),
            None => text.extend_from_slice(snapshot.strings.bytes(id)),
        }
        Some(String::from_utf8_lossy(&text).into_owned()).filter(|text| !text.is_empty())
    };
    let line = || u32::try_from(snapshot.frames.line(frame)).ok().filter(|&line| line > 0);
    FrameAnswer {
        function: text(Key::Name, snapshot.frames.name(frame)),
        file: text(Key::Filename, snapshot.frames.filename(frame)),
        line: if odd(Key::Line).is_some() { None } else { line() },
        address: None,
    }
}

/// Appends `file:line:function`, with the file's path reduced to its last component.
fn push_frame(out: &mut Vec<u8>, snapshot: &Snapshot, frame: FrameId) {
    let records = &snapshot.frames.records;
    let odd = |key| records.exact_under(frame.index(), key);
    let file = snapshot.strings.bytes(snapshot.frames.filename(frame));
    match odd(Key::Filename) {
        Some(value) => Repr::of(snapshot).write_str(out, value),
        None => out.extend_from_slice(file.rsplit(|&byte| byte == b'/').next().unwrap_or(file)),
    }
    out.push(b':');
    match odd(Key::Line) {
        Some(value) => Repr::of(snapshot).write_str(out, value),
        None => push_decimal(out, snapshot.frames.line(frame).into()),
    }
    out.push(b':');
    match odd(Key::Name) {
        Some(value) => Repr::of(snapshot).write_str(out, value),
        None => out.extend_from_slice(snapshot.strings.bytes(snapshot.frames.name(frame))),
    }
}
