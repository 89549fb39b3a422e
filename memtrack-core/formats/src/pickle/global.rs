//! The Python classes that a pickle may name. They are merely names: memtrack never imports a class, but
//! treats each one as described here.

use super::error::PickleErrorKind;
use std::fmt;

/// A Python class that may occur in a pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Global {
    /// `collections.defaultdict`, which is read as a dictionary.
    DefaultDict,
    /// `collections.OrderedDict`, which is read as a dictionary.
    OrderedDict,
    /// `builtins.int` (`__builtin__.int` or `__builtin__.long` in Python 2), the factory of a `defaultdict`.
    Int,
}

impl Global {
    /// All classes, by their numbers.
    pub(crate) const ALL: [Self; 3] = [Self::DefaultDict, Self::OrderedDict, Self::Int];

    /// Returns the class that Python would find under `name` in `module`.
    pub(crate) fn find(module: &[u8], name: &[u8]) -> Option<Self> {
        match (module, name) {
            (b"collections", b"defaultdict") => Some(Self::DefaultDict),
            (b"collections", b"OrderedDict") => Some(Self::OrderedDict),
            // In protocols up to 2, Python 3 writes its `int` as Python 2's `long`.
            (b"builtins" | b"__builtin__", b"int") | (b"__builtin__", b"long") => Some(Self::Int),
            _ => None,
        }
    }

    /// Returns the error for a class that is unknown.
    pub(crate) fn refused_error(module: &[u8], name: &[u8]) -> PickleErrorKind {
        PickleErrorKind::RefusedGlobal { module: shorten(module), name: shorten(name) }
    }

    /// Returns the module and name as Python 3 writes them.
    pub(super) const fn path(self) -> (&'static str, &'static str) {
        match self {
            Self::DefaultDict => ("collections", "defaultdict"),
            Self::OrderedDict => ("collections", "OrderedDict"),
            Self::Int => ("builtins", "int"),
        }
    }
}

/// Shortens a name from the file for use in a message.
fn shorten(name: &[u8]) -> String {
    let shown = memtrack_model::text::decode_lossy(&name[..name.len().min(80)]);
    if name.len() > 80 { format!("{shown}…") } else { shown }
}

impl fmt::Display for Global {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (module, name) = self.path();
        write!(f, "{module}.{name}")
    }
}
