//! The offsets of CPython's structures that are read, in bytes, by version. They are those of 64-bit release builds,
//! and the same in all patch releases of a version.
//!
//! They were printed by a C program that includes the internal headers of the installed version (`Py_BUILD_CORE`,
//! `internal/pycore_frame.h` and so on) and calls `offsetof` for each field: 3.8.18, 3.9.18, 3.10.13, 3.11.7, 3.12.1
//! and 3.13.0. From 3.13 on the interpreter itself contains such a table (`_Py_DebugOffsets`, the beginning of
//! `_PyRuntime`), which replaces the numbers here and must agree with them where a difference would mean another layout.

use super::memory::{Checked, Memory};

/// The way in which a version links its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chain {
    /// Frames are objects, and the evaluator is called for each (3.8 to 3.10).
    Objects,
    /// Frames are structures; one evaluator runs several, the outermost of which has a flag (3.11).
    Flagged,
    /// One evaluator runs several frames, which end at a frame without code (from 3.12 on).
    Delimited,
}

/// The encoding of a code object's line table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineTable {
    /// `co_lnotab` (3.8, 3.9).
    Lnotab,
    /// The line table of PEP 626 (3.10).
    Ranges,
    /// The location table of PEP 657 (from 3.11 on).
    Locations,
}

/// The offsets of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) chain: Chain,
    pub(super) lines: LineTable,
    /// Whether the interpreter's current thread state is that of the calling thread, or of any thread (before 3.12).
    pub(super) current_is_of_thread: bool,
    /// `_PyRuntimeState`: the thread state that ends the interpreter, the newest and the main interpreter.
    pub(super) runtime_finalizing: u64,
    pub(super) runtime_head: u64,
    pub(super) runtime_main: u64,
    /// `PyThreadState`: the system's thread, and the innermost frame, or the structure that has it.
    pub(super) state_thread: u64,
    pub(super) state_frame: u64,
    /// The innermost frame in that structure (`_PyCFrame`); `None` if the thread state itself has it.
    pub(super) cframe_frame: Option<u64>,
    /// The frame: its code, the outer frame, the instruction, and who owns it.
    pub(super) frame_code: u64,
    pub(super) frame_previous: u64,
    pub(super) frame_instruction: u64,
    pub(super) frame_owner: u64,
    pub(super) frame_is_entry: u64,
    /// `PyCodeObject`. The name is the qualified one, and the instructions exist, from 3.11 on.
    pub(super) code_file: u64,
    pub(super) code_name: u64,
    pub(super) code_first_line: u64,
    pub(super) code_line_table: u64,
    pub(super) code_instructions: u64,
    pub(super) code_first_traceable: u64,
    /// The number of its positional parameters, its own name, its qualified name, and the version that functions made of it
    /// receive.
    pub(super) code_parameters: u64,
    pub(super) code_own_name: u64,
    pub(super) code_qualified_name: Option<u64>,
    pub(super) code_version: Option<u64>,
    /// The first local variable of a frame, which is the first parameter.
    pub(super) frame_locals: u64,
    /// `PyFunctionObject`; `None` in versions whose functions are not read.
    pub(super) function: Option<FunctionLayout>,
    /// The bytes of a code object up to its instructions.
    pub(super) code_bytes: u64,
    /// The beginning of the characters of `PyASCIIObject` and `PyCompactUnicodeObject`.
    pub(super) ascii_data: u64,
    pub(super) compact_data: u64,
}

/// The offsets of `PyFunctionObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionLayout {
    pub(super) code: u64,
    pub(super) defaults: u64,
    /// The C function that calls it.
    pub(super) vectorcall: u64,
}

/// The owner of a frame that belongs to a generator or coroutine.
pub(super) const OWNED_BY_GENERATOR: u8 = 1;
/// The owner of the frame without code at which the frames of an evaluator end.
pub(super) const OWNED_BY_EVALUATOR: u8 = 3;
/// The offset of an object's type, and of `tp_dealloc` in a type.
pub(super) const OBJECT_TYPE: u64 = 8;
pub(super) const TYPE_DEALLOC: u64 = 48;
/// The offsets of a bytes object's length and content.
pub(super) const BYTES_LENGTH: u64 = 16;
pub(super) const BYTES_CONTENT: u64 = 32;
/// The offsets of a string's length and state.
pub(super) const TEXT_LENGTH: u64 = 16;
pub(super) const TEXT_STATE: u64 = 32;
/// The offsets of a tuple's length and items.
pub(super) const TUPLE_LENGTH: u64 = 16;
pub(super) const TUPLE_ITEMS: u64 = 24;
/// The offset of the evaluator in the `PyInterpreterState` of 3.8. Later versions have functions that get and set it.
pub(super) const EVALUATOR_IN_3_8: u64 = 568;

const PYTHON_3_8: Layout = Layout {
    chain: Chain::Objects,
    lines: LineTable::Lnotab,
    current_is_of_thread: false,
    runtime_finalizing: 16,
    runtime_head: 32,
    runtime_main: 40,
    state_thread: 176,
    state_frame: 24,
    cframe_frame: None,
    frame_code: 32,
    frame_previous: 24,
    frame_instruction: 104,
    frame_owner: 0,
    frame_is_entry: 0,
    code_file: 104,
    code_name: 112,
    code_first_line: 40,
    code_line_table: 120,
    code_instructions: 0,
    code_first_traceable: 0,
    code_parameters: 16,
    code_own_name: 112,
    code_qualified_name: None,
    code_version: None,
    frame_locals: 360,
    function: None,
    code_bytes: 176,
    ascii_data: 48,
    compact_data: 72,
};

const PYTHON_3_10: Layout =
    Layout { lines: LineTable::Ranges, frame_instruction: 96, frame_locals: 352, ..PYTHON_3_8 };

const PYTHON_3_11: Layout = Layout {
    chain: Chain::Flagged,
    lines: LineTable::Locations,
    runtime_finalizing: 24,
    runtime_head: 40,
    runtime_main: 48,
    state_thread: 152,
    state_frame: 56,
    cframe_frame: Some(8),
    frame_code: 32,
    frame_previous: 48,
    frame_instruction: 56,
    frame_owner: 69,
    frame_is_entry: 68,
    code_file: 112,
    code_name: 128,
    code_first_line: 72,
    code_line_table: 136,
    code_instructions: 184,
    code_first_traceable: 168,
    code_parameters: 56,
    code_own_name: 120,
    code_qualified_name: Some(128),
    frame_locals: 72,
    code_bytes: 192,
    ..PYTHON_3_8
};

const PYTHON_3_12: Layout = Layout {
    chain: Chain::Delimited,
    current_is_of_thread: true,
    state_thread: 136,
    cframe_frame: Some(0),
    frame_code: 0,
    frame_previous: 8,
    frame_owner: 70,
    frame_is_entry: 0,
    code_first_line: 68,
    code_instructions: 192,
    code_first_traceable: 176,
    code_parameters: 52,
    code_version: Some(92),
    function: Some(FunctionLayout { code: 48, defaults: 56, vectorcall: 128 }),
    code_bytes: 200,
    ascii_data: 40,
    compact_data: 56,
    ..PYTHON_3_11
};

const PYTHON_3_13: Layout = Layout {
    runtime_finalizing: 608,
    runtime_head: 632,
    runtime_main: 640,
    state_thread: 152,
    state_frame: 72,
    cframe_frame: None,
    code_instructions: 200,
    code_first_traceable: 184,
    code_bytes: 208,
    ..PYTHON_3_12
};

/// Returns the layout of a version of CPython whose `_PyRuntime` is at this address, or the reason why its frames
/// cannot be read.
pub(super) fn layout_of((major, minor): (u8, u8), runtime: u64) -> Result<Layout, String> {
    match (major, minor) {
        (3, 8 | 9) => Ok(PYTHON_3_8),
        (3, 10) => Ok(PYTHON_3_10),
        (3, 11) => Ok(PYTHON_3_11),
        (3, 12) => Ok(PYTHON_3_12),
        (3, 13) => match described_layout(runtime) {
            Ok(layout) if layout == PYTHON_3_13 => Ok(layout),
            Ok(_) => Err(format!("this build of Python {major}.{minor} has another layout")),
            Err(reason) => Err(reason),
        },
        _ => Err(format!("the layout of Python {major}.{minor} is not known")),
    }
}

/// The words of `_Py_DebugOffsets` (3.13) that are read, by their index.
mod described {
    pub(super) const VERSION: usize = 1;
    pub(super) const FREE_THREADED: usize = 2;
    pub(super) const FINALIZING: usize = 4;
    pub(super) const HEAD: usize = 5;
    pub(super) const STATE_FRAME: usize = 23;
    pub(super) const STATE_THREAD: usize = 24;
    pub(super) const FRAME_PREVIOUS: usize = 29;
    pub(super) const FRAME_CODE: usize = 30;
    pub(super) const FRAME_INSTRUCTION: usize = 31;
    pub(super) const FRAME_OWNER: usize = 33;
    pub(super) const CODE_BYTES: usize = 34;
    pub(super) const CODE_FILE: usize = 35;
    pub(super) const CODE_NAME: usize = 37;
    pub(super) const CODE_LINE_TABLE: usize = 38;
    pub(super) const CODE_FIRST_LINE: usize = 39;
    pub(super) const CODE_INSTRUCTIONS: usize = 43;
    pub(super) const WORDS: usize = 44;
}

/// Returns the layout of 3.13 with the offsets that the interpreter describes.
fn described_layout(runtime: u64) -> Result<Layout, String> {
    let mut bytes = [0; described::WORDS * 8];
    if !Checked.copy(runtime, &mut bytes) || bytes[..8] != *b"xdebugpy" {
        return Err("the interpreter does not describe its layout".to_owned());
    }
    let word = |index: usize| {
        let bytes: [u8; 8] = std::array::from_fn(|byte| bytes[index * 8 + byte]);
        u64::from_ne_bytes(bytes)
    };
    if word(described::FREE_THREADED) != 0 {
        return Err("free-threaded builds are not supported".to_owned());
    }
    if word(described::VERSION) >> 16 != 0x030d {
        return Err("the interpreter describes the layout of another version".to_owned());
    }
    Ok(Layout {
        runtime_finalizing: word(described::FINALIZING),
        runtime_head: word(described::HEAD),
        state_frame: word(described::STATE_FRAME),
        state_thread: word(described::STATE_THREAD),
        frame_previous: word(described::FRAME_PREVIOUS),
        frame_code: word(described::FRAME_CODE),
        frame_instruction: word(described::FRAME_INSTRUCTION),
        frame_owner: word(described::FRAME_OWNER),
        code_bytes: word(described::CODE_BYTES),
        code_file: word(described::CODE_FILE),
        code_name: word(described::CODE_NAME),
        code_line_table: word(described::CODE_LINE_TABLE),
        code_first_line: word(described::CODE_FIRST_LINE),
        code_instructions: word(described::CODE_INSTRUCTIONS),
        ..PYTHON_3_13
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_versions_and_undescribed_layouts_are_refused() {
        assert!(layout_of((3, 7), 0).is_err());
        assert!(layout_of((3, 14), 0).is_err());
        assert!(layout_of((3, 13), 0).unwrap_err().contains("does not describe"));
        assert_eq!(layout_of((3, 9), 0), layout_of((3, 8), 0));
    }

    #[test]
    fn free_threaded_builds_and_other_layouts_are_refused() {
        let mut words = [0_u64; described::WORDS];
        words[0] = u64::from_ne_bytes(*b"xdebugpy");
        words[described::VERSION] = 0x030d_00f0;
        let runtime = |words: &[u64]| words.as_ptr() as u64;
        assert!(layout_of((3, 13), runtime(&words)).unwrap_err().contains("another layout"));
        words[described::FREE_THREADED] = 1;
        assert!(layout_of((3, 13), runtime(&words)).unwrap_err().contains("free-threaded"));
    }
}
