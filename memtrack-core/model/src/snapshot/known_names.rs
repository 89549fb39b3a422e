//! Function names that a recording itself contains. A recording normally contains return addresses and the build ids of
//! binaries, and its functions are named on a machine that has the binaries. A scrubbed recording does not disclose the
//! binaries, so it contains the names.

use crate::frame::Frame;
use std::collections::BTreeMap;

/// The functions at return addresses; empty if they can be derived from
/// [`Snapshot::modules`](super::Snapshot::modules).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownNames {
    /// The functions at the addresses in [`Snapshot::stacks`](super::Snapshot::stacks), with the innermost inlined
    /// function first.
    pub frames: BTreeMap<u64, Vec<Frame>>,
}

impl KnownNames {
    /// Returns whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

/// A function in a [`NamesPiece`], given by the indices of its name and file in [`NamesPiece::texts`] and by its line
/// (0 if unknown).
#[cfg(feature = "serde")]
pub type FunctionRow = (u32, u32, u32);

/// A piece of [`KnownNames`] as stored in files: each text once, and rows of numbers that refer to the texts.
#[cfg(feature = "serde")]
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct NamesPiece {
    /// The names of functions and files. The first one is empty.
    pub texts: Vec<String>,
    /// The addresses, each with its functions.
    pub rows: Vec<(u64, Vec<FunctionRow>)>,
}

#[cfg(feature = "serde")]
impl KnownNames {
    /// Splits the names into pieces of at most `addresses` addresses.
    pub fn pieces(&self, addresses: usize) -> Vec<NamesPiece> {
        let rows: Vec<(&u64, &Vec<Frame>)> = self.frames.iter().collect();
        rows.chunks(addresses.max(1)).map(NamesPiece::of).collect()
    }

    /// Adds a piece. Indices that are out of range become empty texts.
    pub fn add_piece(&mut self, piece: &NamesPiece) {
        let text = |index: u32| piece.texts.get(index as usize).cloned().unwrap_or_default();
        for (address, frames) in &piece.rows {
            let frame = |&(function, file, line): &FunctionRow| Frame {
                function: text(function),
                file: (file > 0).then(|| text(file)),
                line: (line > 0).then_some(line),
                binary: None,
            };
            self.frames.insert(*address, frames.iter().map(frame).collect());
        }
    }
}

#[cfg(feature = "serde")]
impl NamesPiece {
    fn of(rows: &[(&u64, &Vec<Frame>)]) -> Self {
        let mut piece = Self { texts: vec![String::new()], rows: Vec::with_capacity(rows.len()) };
        let mut known: std::collections::HashMap<String, u32> = [(String::new(), 0)].into();
        let texts = &mut piece.texts;
        let mut index = |text: &str| {
            if let Some(&index) = known.get(text) {
                return index;
            }
            let index = texts.len() as u32;
            texts.push(text.to_owned());
            known.insert(text.to_owned(), index);
            index
        };
        for (address, frames) in rows {
            let mut row = |frame: &Frame| {
                let file = frame.file.as_deref().map_or(0, &mut index);
                (index(&frame.function), file, frame.line.unwrap_or(0))
            };
            let frames = frames.iter().map(&mut row).collect();
            piece.rows.push((**address, frames));
        }
        piece
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use super::*;

    #[test]
    fn names_are_restored_from_their_pieces() {
        let frame = |function: &str, file: Option<&str>, line| Frame {
            function: function.into(),
            file: file.map(str::to_owned),
            line,
            binary: None,
        };
        let mut names = KnownNames::default();
        names.frames.insert(7, vec![frame("a", Some("a.rs"), Some(3)), frame("b", None, None)]);
        names.frames.insert(1 << 60, vec![frame("a", Some("b.rs"), None)]);
        let mut restored = KnownNames::default();
        for piece in names.pieces(1) {
            restored.add_piece(&piece);
        }
        assert_eq!(restored, names);
        assert_eq!(names.pieces(2).len(), 1);
        restored.add_piece(&NamesPiece { texts: vec![], rows: vec![(9, vec![(4, 5, 6)])] });
        assert_eq!(restored.frames[&9], [frame("", Some(""), Some(6))]);
    }
}
