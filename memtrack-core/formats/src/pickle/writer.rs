//! Writes pickles the way CPython does, using protocol 4 in frames of about 64 KiB. The result can be read by any Python
//! since 3.4 and by pytorch.org/memory_viz. The [`Emitter`] writes instructions and numbers the memo slots; it serves
//! the writer of snapshots, too. The [`Writer`] writes values: every container and string is memoised, and equal strings
//! are shared.

use super::opcode as op;
use super::operand::Global;
use std::collections::HashMap;
use std::io::{self, Write};

/// The number of bytes at which a frame is closed.
const FRAME_BYTES: usize = 64 << 10;

/// An emitter of the instructions of a single pickle of protocol 4.
#[derive(Debug)]
pub(crate) struct Emitter<W> {
    out: W,
    frame: Vec<u8>,
    /// The number of memo slots in use.
    memo: u32,
}

impl<W: Write> Emitter<W> {
    /// Starts a pickle.
    pub(crate) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[op::PROTO, 4])?;
        Ok(Self { out, frame: Vec::with_capacity(FRAME_BYTES + 1024), memo: 0 })
    }

    /// Ends the pickle, flushes the writer and returns it.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.frame.push(op::STOP);
        self.close_frame()?;
        self.out.flush()?;
        Ok(self.out)
    }

    /// Writes the start of an instruction, which [`Self::emit`] completes.
    #[inline]
    pub(crate) fn begin(&mut self, bytes: &[u8]) {
        self.frame.extend_from_slice(bytes);
    }

    /// Writes an instruction or the rest of one.
    #[inline]
    pub(crate) fn emit(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.frame.extend_from_slice(bytes);
        if self.frame.len() >= FRAME_BYTES { self.close_frame() } else { Ok(()) }
    }

    /// Writes the frame. As in Python, frames of fewer than four bytes have no header.
    fn close_frame(&mut self) -> io::Result<()> {
        if self.frame.len() >= 4 {
            self.out.write_all(&[op::FRAME])?;
            self.out.write_all(&(self.frame.len() as u64).to_le_bytes())?;
        }
        self.out.write_all(&self.frame)?;
        self.frame.clear();
        Ok(())
    }

    /// Writes an integer in as few bytes as possible.
    #[inline]
    pub(crate) fn write_int(&mut self, number: i64) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(number) {
            return self.emit(&[op::BININT1, byte]);
        }
        if let Ok(short) = u16::try_from(number) {
            let [low, high] = short.to_le_bytes();
            return self.emit(&[op::BININT2, low, high]);
        }
        if let Ok(word) = i32::try_from(number) {
            self.begin(&[op::BININT]);
            return self.emit(&word.to_le_bytes());
        }
        let significant = |count: &usize| {
            let shift = 64 - 8 * *count as u32;
            number << shift >> shift == number
        };
        let count = (5..8).find(significant).unwrap_or(8);
        self.begin(&[op::LONG1, count as u8]);
        self.emit(&number.to_le_bytes()[..count])
    }

    /// Writes a float.
    pub(crate) fn write_float(&mut self, number: f64) -> io::Result<()> {
        self.begin(&[op::BINFLOAT]);
        self.emit(&number.to_be_bytes())
    }

    /// Writes a string and returns its memo slot.
    pub(crate) fn write_string(&mut self, text: &[u8]) -> io::Result<u32> {
        if let Ok(short) = u8::try_from(text.len()) {
            self.begin(&[op::SHORT_BINUNICODE, short]);
        } else if let Ok(word) = u32::try_from(text.len()) {
            self.begin(&[op::BINUNICODE]);
            self.begin(&word.to_le_bytes());
        } else {
            self.begin(&[op::BINUNICODE8]);
            self.begin(&(text.len() as u64).to_le_bytes());
        }
        self.begin(text);
        self.memoize()
    }

    /// Assigns the next memo slot to the value that was just written. Returns the slot's number, which is below
    /// `u32::MAX`.
    pub(crate) fn memoize(&mut self) -> io::Result<u32> {
        let slot = self.memo;
        let full = || io::Error::other("more than 4 G values in one pickle");
        self.memo = slot.checked_add(1).filter(|&next| next != u32::MAX).ok_or_else(full)?;
        self.emit(&[op::MEMOIZE])?;
        Ok(slot)
    }

    /// Writes a reference to a value in the memo.
    #[inline]
    pub(crate) fn write_reference(&mut self, slot: u32) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(slot) {
            return self.emit(&[op::BINGET, byte]);
        }
        self.begin(&[op::LONG_BINGET]);
        self.emit(&slot.to_le_bytes())
    }
}

/// The batch size for setting the entries of a dictionary or the items of a list.
const MAX_BATCH_LEN: usize = 1000;

/// A writer that takes one call per value, in the order in which Python reads the values. A closure writes
/// the contents of each container, so that the code is nested in the same way as the data.
///
/// Each call to a closure must write exactly one value per item, or two values per entry of a dictionary. The
/// writer does not check this.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Emitter<W>,
    /// The memo slots of the strings that have been written.
    strings: HashMap<Box<str>, u32>,
    /// The memo slots of the classes that have been written.
    globals: HashMap<Global, u32>,
}

impl<W: Write> Writer<W> {
    /// Starts a pickle.
    ///
    /// # Errors
    /// Fails if writing to `out` fails.
    pub fn new(out: W) -> io::Result<Self> {
        Ok(Self { out: Emitter::new(out)?, strings: HashMap::new(), globals: HashMap::new() })
    }

    /// Ends the pickle, flushes the writer and returns it.
    ///
    /// # Errors
    /// Fails if the rest cannot be written.
    pub fn finish(self) -> io::Result<W> {
        self.out.finish()
    }

    /// Writes `None`.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_none(&mut self) -> io::Result<()> {
        self.out.emit(&[op::NONE])
    }

    /// Writes a boolean.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_bool(&mut self, truth: bool) -> io::Result<()> {
        self.out.emit(&[if truth { op::NEWTRUE } else { op::NEWFALSE }])
    }

    /// Writes an integer in as few bytes as possible.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_int(&mut self, number: i64) -> io::Result<()> {
        self.out.write_int(number)
    }

    /// Writes a float.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_float(&mut self, number: f64) -> io::Result<()> {
        self.out.write_float(number)
    }

    /// Writes a string, or a reference if the same string has been written before.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_text(&mut self, text: &str) -> io::Result<()> {
        if let Some(&slot) = self.strings.get(text) {
            return self.out.write_reference(slot);
        }
        let slot = self.out.write_string(text.as_bytes())?;
        self.strings.insert(text.into(), slot);
        Ok(())
    }

    /// Writes a tuple that consists of the `N` values written by `contents`.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_tuple<const N: usize>(
        &mut self,
        contents: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        if N > 3 {
            self.out.emit(&[op::MARK])?;
        }
        contents(self)?;
        match N {
            // Python has a single empty tuple, which it never memoises.
            0 => return self.out.emit(&[op::EMPTY_TUPLE]),
            1 => self.out.begin(&[op::TUPLE1]),
            2 => self.out.begin(&[op::TUPLE2]),
            3 => self.out.begin(&[op::TUPLE3]),
            _ => self.out.begin(&[op::TUPLE]),
        }
        self.out.memoize().map(|_| ())
    }

    /// Writes a list. `item` must write one value for each of `items`.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        item: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.begin(&[op::EMPTY_LIST]);
        self.out.memoize()?;
        self.write_batches(items, item, op::APPEND, op::APPENDS)
    }

    /// Writes a dictionary. `entry` must write a key and a value for each of `entries`.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_dict<T>(
        &mut self,
        entries: impl IntoIterator<Item = T>,
        entry: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.begin(&[op::EMPTY_DICT]);
        self.out.memoize()?;
        self.write_batches(entries, entry, op::SETITEM, op::SETITEMS)
    }

    /// Writes a `collections.defaultdict`, either with the factory `int` or without a factory.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_default_dict<T>(
        &mut self,
        int_factory: bool,
        entries: impl IntoIterator<Item = T>,
        entry: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.write_global(Global::DefaultDict)?;
        if int_factory {
            self.write_tuple::<1>(|writer| writer.write_global(Global::Int))?;
        } else {
            self.write_tuple::<0>(|_| Ok(()))?;
        }
        self.out.begin(&[op::REDUCE]);
        self.out.memoize()?;
        self.write_batches(entries, entry, op::SETITEM, op::SETITEMS)
    }

    /// Writes the contents of a container in batches. A batch of one item ends with `single`. A longer batch
    /// starts with a mark and ends with `batched`.
    fn write_batches<T>(
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
                return self.out.emit(&[single]);
            }
            self.out.emit(&[op::MARK])?;
            write(self, first)?;
            for item in items.by_ref().take(MAX_BATCH_LEN - 1) {
                write(self, item)?;
            }
            self.out.emit(&[batched])?;
        }
        Ok(())
    }

    /// Writes a class by its name.
    fn write_global(&mut self, global: Global) -> io::Result<()> {
        if let Some(&slot) = self.globals.get(&global) {
            return self.out.write_reference(slot);
        }
        let (module, name) = global.path();
        self.write_text(module)?;
        self.write_text(name)?;
        self.out.begin(&[op::STACK_GLOBAL]);
        let slot = self.out.memoize()?;
        self.globals.insert(global, slot);
        Ok(())
    }
}
