//! The errors of reading a pickle: each states what is wrong, at which byte, and what to do.

use super::Global;
use std::fmt;
use std::io;

/// The reason why a pickle was refused or could not be read, displayed as one line. If the input could not be read, the
/// error's source is the I/O error.
#[derive(Debug)]
#[non_exhaustive]
pub struct PickleError {
    /// The byte offset of the instruction that failed, from the start of the input.
    pub offset: u64,
    pub(crate) kind: PickleErrorKind,
}

/// An error in a pickle, or in JSON.
#[derive(Debug)]
pub(crate) enum PickleErrorKind {
    /// The input ends before the pickle does.
    Truncated,
    /// Reading the input failed.
    Io(io::Error),
    /// The byte is not a pickle instruction: most likely another kind of file.
    NotAPickle(u8),
    /// A protocol above 5.
    Protocol(u8),
    /// An instruction that would build objects, run code or reach outside the file.
    RefusedOpcode(&'static str),
    /// A Python class that the caller did not allow.
    RefusedGlobal {
        /// The module as spelled in the file, shortened.
        module: String,
        /// The name in the module, shortened.
        name: String,
    },
    /// A call that is not one of the few supported calls, such as that of an empty `defaultdict`.
    RefusedCall(Option<Global>),
    /// An instruction that finds fewer values on the stack than it needs.
    StackUnderflow,
    /// An instruction that needs a mark and finds none.
    NoMark,
    /// A mark where a value is expected.
    UnexpectedMark,
    /// A dictionary with a key but no value.
    OddItems,
    /// An instruction on a value of the wrong type.
    WrongType(&'static str),
    /// A dictionary key that Python cannot hash.
    UnhashableKey,
    /// A memo slot that is read before it is written.
    UnsetMemo(u64),
    /// A memo slot far beyond the slots that the file can have filled.
    MemoIndex(u64),
    /// A number, string or name that is not written as its instruction requires.
    Malformed(&'static str),
    /// More of an item than the reader accepts.
    TooLarge {
        /// The item of which there are too many.
        what: &'static str,
        /// The maximum, in the unit that `what` names.
        limit: u64,
    },
    /// Containers nested deeper than the limit.
    TooDeep(u32),
    /// A container that contains itself.
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
        // Text, archives and images may begin with a byte that happens to be an instruction.
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
    /// Returns the error of reading the input, if that is the cause.
    pub(crate) fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}
