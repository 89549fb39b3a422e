//! Errors that occur when reading a pickle. Each error states what is wrong, at which byte it is wrong, and what to do
//! about it.

use super::operand::Global;
use std::fmt;
use std::io;

/// The reason why a pickle was refused or could not be read. Displays as one line. If reading the input
/// failed, the error's source is the I/O error.
#[derive(Debug)]
#[non_exhaustive]
pub struct PickleError {
    /// The byte offset of the instruction that failed, counted from the start of the input.
    pub offset: u64,
    pub(crate) kind: PickleErrorKind,
}

/// An error in a pickle or in JSON.
#[derive(Debug)]
pub(crate) enum PickleErrorKind {
    /// The input ends before the pickle does.
    Truncated,
    /// The input could not be read.
    Io(io::Error),
    /// The byte is not a pickle instruction, so the file is most likely of another kind.
    NotAPickle(u8),
    /// The protocol version is above 5.
    Protocol(u8),
    /// The instruction would build objects, run code or reach outside the file.
    RefusedOpcode(&'static str),
    /// The caller did not allow this Python class.
    RefusedGlobal {
        /// The module as spelled in the file, possibly shortened.
        module: String,
        /// The name within the module, possibly shortened.
        name: String,
    },
    /// The call is not one of the few supported ones, such as the call that makes an empty `defaultdict`.
    RefusedCall(Option<Global>),
    /// The instruction needs more values than there are on the stack.
    StackUnderflow,
    /// The instruction needs a mark, but there is none.
    NoMark,
    /// There is a mark where a value is expected.
    UnexpectedMark,
    /// A dictionary has a key without a value.
    OddItems,
    /// The instruction was applied to a value of the wrong type.
    WrongType(&'static str),
    /// Python cannot hash the dictionary key.
    UnhashableKey,
    /// The memo slot is read before it is written.
    UnsetMemo(u64),
    /// The memo slot is far beyond the slots that the file can have filled.
    MemoIndex(u64),
    /// A number, string or name is not written in the way that its instruction requires.
    Malformed(&'static str),
    /// There are more items of some kind than the reader accepts.
    TooLarge {
        /// The kind of items that exceeds the maximum.
        what: &'static str,
        /// The maximum, in the unit named by `what`.
        limit: u64,
    },
    /// Containers are nested more deeply than the limit.
    TooDeep(u32),
    /// A container contains itself.
    Cyclic,
}

impl fmt::Display for PickleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use PickleErrorKind::{Cyclic, Io, NotAPickle, Protocol, TooDeep, Truncated};
        // These errors have no position in the file.
        if !matches!(self.kind, TooDeep(_) | Cyclic | Io(_)) {
            write!(f, "at byte {}: ", self.offset)?;
        }
        write!(f, "{}", self.kind)?;
        // Text, archives and images may start with a byte that happens to be an instruction.
        if self.offset == 0 && !matches!(self.kind, NotAPickle(_) | Protocol(_) | Truncated | Io(_)) {
            f.write_str(" (few pickles begin like this; is it a pickle?)")?;
        }
        Ok(())
    }
}

impl fmt::Display for PickleErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the pickle ends too early; the file is cut, write it again"),
            Self::Io(error) => write!(f, "{error}"),
            Self::NotAPickle(byte) => {
                write!(f, "{byte:#04x} is not a pickle instruction; the file is not a pickle, or is damaged")
            }
            Self::Protocol(version) => {
                write!(f, "pickle protocol {version} is unknown; write the file with protocol 5 or less")
            }
            Self::RefusedOpcode(name) => {
                write!(f, "{name} is refused; memtrack reads plain data and runs nothing; save plain data")
            }
            Self::RefusedGlobal { module, name } => {
                let path = format!("{module}.{name}");
                write!(f, "the Python name {path:?} is refused; memtrack imports nothing; save plain data")
            }
            Self::RefusedCall(Some(global)) => {
                write!(f, "this call of {global} is refused; memtrack calls nothing; save plain data")
            }
            Self::RefusedCall(None) => {
                f.write_str("a call of something that is not a function; the file is damaged")
            }
            Self::StackUnderflow => f.write_str("a value is missing; the file is damaged"),
            Self::NoMark => f.write_str("a mark is missing; the file is damaged"),
            Self::UnexpectedMark => f.write_str("a mark where a value is expected; the file is damaged"),
            Self::OddItems => f.write_str("a dictionary key has no value; the file is damaged"),
            Self::WrongType(expected) => write!(f, "{expected} is missing here; the file is damaged"),
            Self::UnhashableKey => f.write_str("a list or dictionary is used as a key; the file is damaged"),
            Self::UnsetMemo(index) => {
                write!(f, "memo slot {index} is read but was never set; the file is damaged")
            }
            Self::MemoIndex(index) => {
                write!(f, "memo slot {index} is far too high; the file is damaged")
            }
            Self::Malformed(what) => write!(f, "malformed {what}; the file is damaged"),
            Self::TooLarge { what, limit } => {
                write!(f, "{what} exceed the limit of {limit}; is it the right file?")
            }
            Self::TooDeep(limit) => {
                write!(f, "values are nested more than {limit} deep; is it the right file?")
            }
            Self::Cyclic => f.write_str("a container contains itself; is it the right file?"),
        }
    }
}

impl std::error::Error for PickleError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

impl PickleErrorKind {
    /// Returns the I/O error that occurred when reading the input, if that is the cause.
    pub(crate) fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}
