//! Writes pickles as CPython does: protocol 4 in frames of about 64 KiB, every container and string memoised, equal
//! strings shared. Any Python since 3.4, and pytorch.org/memory_viz, read the result.

use super::Global;
use super::opcode as op;
use std::collections::HashMap;
use std::io::{self, Write};

/// A frame is closed once it has this many bytes.
const FRAME_BYTES: usize = 64 * 1024;
/// Entries of a dictionary or items of a list are set in batches of this size.
const BATCH: usize = 1000;

/// Writes one pickle, value by value: a call per value, in the order Python reads them. Containers take their
/// contents through a closure, so that the nesting of the code is the nesting of the data.
///
/// A container's contents must be written by exactly one value per item (two per entry); the writer does not check.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    frame: Vec<u8>,
    /// The memo slot of each string and class written so far.
    strings: HashMap<Box<str>, u32>,
    globals: HashMap<Global, u32>,
    /// Memo slots in use.
    memo: u32,
}

/// Appends an integer in as few bytes as it needs.
#[inline]
pub(crate) fn put_int(out: &mut Vec<u8>, number: i64) {
    if let Ok(byte) = u8::try_from(number) {
        return out.extend_from_slice(&[op::BININT1, byte]);
    }
    if let Ok(short) = u16::try_from(number) {
        let [low, high] = short.to_le_bytes();
        return out.extend_from_slice(&[op::BININT2, low, high]);
    }
    let bytes = number.to_le_bytes();
    if let Ok(word) = i32::try_from(number) {
        out.push(op::BININT);
        return out.extend_from_slice(&word.to_le_bytes());
    }
    let significant = |count: &usize| {
        let shift = 64 - 8 * *count as u32;
        number << shift >> shift == number
    };
    let count = (5..8).find(significant).unwrap_or(8);
    out.extend_from_slice(&[op::LONG1, count as u8]);
    out.extend_from_slice(&bytes[..count]);
}

impl<W: Write> Writer<W> {
    /// Starts a pickle.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[op::PROTO, 4])?;
        Ok(Self { out, frame: Vec::new(), strings: HashMap::new(), globals: HashMap::new(), memo: 0 })
    }

    /// Ends the pickle and returns what it was written to, flushed.
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.frame.push(op::STOP);
        self.close_frame()?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes `None`.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn none(&mut self) -> io::Result<()> {
        self.emit(&[op::NONE])
    }

    /// Writes a boolean.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn bool(&mut self, truth: bool) -> io::Result<()> {
        self.emit(&[if truth { op::NEWTRUE } else { op::NEWFALSE }])
    }

    /// Writes an integer in as few bytes as it needs.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn int(&mut self, number: i64) -> io::Result<()> {
        put_int(&mut self.frame, number);
        self.emit(&[])
    }

    /// Writes a float.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn float(&mut self, number: f64) -> io::Result<()> {
        self.frame.push(op::BINFLOAT);
        self.emit(&number.to_be_bytes())
    }

    /// Writes a string; one that was written before becomes a reference to it.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(&slot) = self.strings.get(text) {
            return self.recall(slot);
        }
        let length = text.len();
        if let Ok(short) = u8::try_from(length) {
            self.frame.extend_from_slice(&[op::SHORT_BINUNICODE, short]);
        } else if let Ok(word) = u32::try_from(length) {
            self.frame.push(op::BINUNICODE);
            self.frame.extend_from_slice(&word.to_le_bytes());
        } else {
            self.frame.push(op::BINUNICODE8);
            self.frame.extend_from_slice(&(length as u64).to_le_bytes());
        }
        self.frame.extend_from_slice(text.as_bytes());
        let slot = self.memoize()?;
        self.strings.insert(text.into(), slot);
        Ok(())
    }

    /// Writes a tuple of the `N` values that `contents` writes.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn tuple<const N: usize>(
        &mut self,
        contents: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        if N > 3 {
            self.emit(&[op::MARK])?;
        }
        contents(self)?;
        match N {
            // Python has one empty tuple and never memoises it.
            0 => return self.emit(&[op::EMPTY_TUPLE]),
            1 => self.frame.push(op::TUPLE1),
            2 => self.frame.push(op::TUPLE2),
            3 => self.frame.push(op::TUPLE3),
            _ => self.frame.push(op::TUPLE),
        }
        self.memoize().map(|_| ())
    }

    /// Writes a list; `item` writes one value for each of `items`.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        item: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.frame.push(op::EMPTY_LIST);
        self.memoize()?;
        self.batches(items, item, op::APPEND, op::APPENDS)
    }

    /// Writes a dictionary; `entry` writes a key and a value for each of `entries`.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn dict<T>(
        &mut self,
        entries: impl IntoIterator<Item = T>,
        entry: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.frame.push(op::EMPTY_DICT);
        self.memoize()?;
        self.batches(entries, entry, op::SETITEM, op::SETITEMS)
    }

    /// Writes a `collections.defaultdict`, with `int` as its factory or with none.
    ///
    /// # Errors
    /// When the output cannot be written.
    pub fn default_dict<T>(
        &mut self,
        int_factory: bool,
        entries: impl IntoIterator<Item = T>,
        entry: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.global(Global::DefaultDict)?;
        if int_factory {
            self.tuple::<1>(|writer| writer.global(Global::Int))?;
        } else {
            self.tuple::<0>(|_| Ok(()))?;
        }
        self.frame.push(op::REDUCE);
        self.memoize()?;
        self.batches(entries, entry, op::SETITEM, op::SETITEMS)
    }

    /// Writes the contents of a container: a batch of one by `single`, longer ones between a mark and `batched`.
    fn batches<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T) -> io::Result<()>,
        single: u8,
        batched: u8,
    ) -> io::Result<()> {
        let mut items = items.into_iter().peekable();
        while let Some(first) = items.next() {
            if items.peek().is_none() {
                write(self, first)?;
                return self.emit(&[single]);
            }
            self.emit(&[op::MARK])?;
            write(self, first)?;
            for item in items.by_ref().take(BATCH - 1) {
                write(self, item)?;
            }
            self.emit(&[batched])?;
        }
        Ok(())
    }

    /// Writes a class by its name.
    fn global(&mut self, global: Global) -> io::Result<()> {
        if let Some(&slot) = self.globals.get(&global) {
            return self.recall(slot);
        }
        let (module, name) = global.path();
        self.text(module)?;
        self.text(name)?;
        self.frame.push(op::STACK_GLOBAL);
        let slot = self.memoize()?;
        self.globals.insert(global, slot);
        Ok(())
    }

    /// Refers to a value in the memo.
    fn recall(&mut self, slot: u32) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(slot) {
            return self.emit(&[op::BINGET, byte]);
        }
        self.frame.push(op::LONG_BINGET);
        self.emit(&slot.to_le_bytes())
    }

    /// Puts the value just written into the next memo slot.
    fn memoize(&mut self) -> io::Result<u32> {
        let slot = self.memo;
        self.memo =
            slot.checked_add(1).ok_or_else(|| io::Error::other("more than 4 G values in one pickle"))?;
        self.emit(&[op::MEMOIZE])?;
        Ok(slot)
    }

    /// Writes the end of an instruction.
    fn emit(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.frame.extend_from_slice(bytes);
        if self.frame.len() >= FRAME_BYTES { self.close_frame() } else { Ok(()) }
    }

    /// Writes the frame. As in Python, a frame of fewer than four bytes is not worth a header.
    fn close_frame(&mut self) -> io::Result<()> {
        if self.frame.len() >= 4 {
            self.out.write_all(&[op::FRAME])?;
            self.out.write_all(&(self.frame.len() as u64).to_le_bytes())?;
        }
        self.out.write_all(&self.frame)?;
        self.frame.clear();
        Ok(())
    }
}
