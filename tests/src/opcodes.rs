//! Splits a pickle into its instructions, as CPython's `pickletools` does: an independent check of memtrack's writer.

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction<'a> {
    /// The name in `pickletools`.
    pub name: &'static str,
    /// The bytes after the opcode, without their length prefix.
    pub operand: &'a [u8],
}

/// The length of an operand.
enum Operand {
    Bytes(usize),
    /// A length of this many bytes precedes the operand.
    Counted(usize),
}

use Operand::{Bytes, Counted};

/// Every instruction of protocol 4 that plain data can contain.
const INSTRUCTIONS: &[(u8, &str, Operand)] = &[
    (0x80, "PROTO", Bytes(1)),
    (0x95, "FRAME", Bytes(8)),
    (b'.', "STOP", Bytes(0)),
    (b'(', "MARK", Bytes(0)),
    (b'}', "EMPTY_DICT", Bytes(0)),
    (b'd', "DICT", Bytes(0)),
    (b's', "SETITEM", Bytes(0)),
    (b'u', "SETITEMS", Bytes(0)),
    (b']', "EMPTY_LIST", Bytes(0)),
    (b'l', "LIST", Bytes(0)),
    (b'a', "APPEND", Bytes(0)),
    (b'e', "APPENDS", Bytes(0)),
    (b')', "EMPTY_TUPLE", Bytes(0)),
    (b't', "TUPLE", Bytes(0)),
    (0x85, "TUPLE1", Bytes(0)),
    (0x86, "TUPLE2", Bytes(0)),
    (0x87, "TUPLE3", Bytes(0)),
    (b'N', "NONE", Bytes(0)),
    (0x88, "NEWTRUE", Bytes(0)),
    (0x89, "NEWFALSE", Bytes(0)),
    (b'J', "BININT", Bytes(4)),
    (b'K', "BININT1", Bytes(1)),
    (b'M', "BININT2", Bytes(2)),
    (0x8a, "LONG1", Counted(1)),
    (0x8b, "LONG4", Counted(4)),
    (b'G', "BINFLOAT", Bytes(8)),
    (0x8c, "SHORT_BINUNICODE", Counted(1)),
    (b'X', "BINUNICODE", Counted(4)),
    (0x8d, "BINUNICODE8", Counted(8)),
    (b'C', "SHORT_BINBYTES", Counted(1)),
    (0x8e, "BINBYTES8", Counted(8)),
    (b'q', "BINPUT", Bytes(1)),
    (b'r', "LONG_BINPUT", Bytes(4)),
    (b'h', "BINGET", Bytes(1)),
    (b'j', "LONG_BINGET", Bytes(4)),
    (0x94, "MEMOIZE", Bytes(0)),
    (0x8f, "EMPTY_SET", Bytes(0)),
    (0x90, "ADDITEMS", Bytes(0)),
    (0x91, "FROZENSET", Bytes(0)),
];

/// The instructions that the pickle reader of the viewer at pytorch.org/memory_viz (MemoryViz.js) supports.
pub const KNOWN_TO_THE_VIEWER: &[&str] = &[
    "PROTO",
    "FRAME",
    "STOP",
    "MARK",
    "EMPTY_DICT",
    "DICT",
    "SETITEM",
    "SETITEMS",
    "EMPTY_LIST",
    "LIST",
    "APPEND",
    "APPENDS",
    "EMPTY_TUPLE",
    "TUPLE",
    "TUPLE1",
    "TUPLE2",
    "TUPLE3",
    "NONE",
    "NEWTRUE",
    "NEWFALSE",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "SHORT_BINUNICODE",
    "BINUNICODE",
    "BINPUT",
    "LONG_BINPUT",
    "BINGET",
    "LONG_BINGET",
    "MEMOIZE",
];

/// Returns the instructions of one pickle, which must fill the bytes.
///
/// # Panics
/// When an opcode is unknown, an operand is cut short, or bytes follow the end.
pub fn instructions(pickle: &[u8]) -> Vec<Instruction<'_>> {
    let (mut found, mut rest) = (Vec::new(), pickle);
    while let Some((&opcode, after)) = rest.split_first() {
        let at = pickle.len() - rest.len();
        let known = INSTRUCTIONS.iter().find(|(byte, ..)| *byte == opcode);
        let (_, name, operand) = known.unwrap_or_else(|| panic!("opcode {opcode:#x} at byte {at}"));
        let (head, length) = match *operand {
            Bytes(length) => (0, length),
            Counted(head) => {
                let mut wide = [0; 8];
                wide[..head].copy_from_slice(&after[..head]);
                (head, usize::try_from(u64::from_le_bytes(wide)).expect("a length in memory"))
            }
        };
        let (operand, after) = after[head..].split_at(length);
        found.push(Instruction { name, operand });
        rest = after;
    }
    let stops = found.iter().filter(|instruction| instruction.name == "STOP").count();
    assert!(stops == 1 && found.last().is_some_and(|last| last.name == "STOP"), "one end, at the end");
    found
}

/// Asserts that the viewer can read a pickle: only supported instructions, and no integer of more than eight bytes.
///
/// # Panics
/// When the viewer cannot read the pickle; the message begins with `what`.
pub fn assert_known_to_the_viewer(what: &str, pickle: &[u8]) {
    for (place, instruction) in instructions(pickle).into_iter().enumerate() {
        let Instruction { name, operand } = instruction;
        assert!(KNOWN_TO_THE_VIEWER.contains(&name), "{what}: {name}, instruction {place}");
        assert!(name != "LONG1" || operand.len() <= 8, "{what}: an integer of {} bytes", operand.len());
        assert!(name != "PROTO" || operand[0] <= 4, "{what}: protocol {}", operand[0]);
    }
}
