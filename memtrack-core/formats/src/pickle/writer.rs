//! Writes pickles as CPython does: protocol 4 in frames of about 64 KiB, with every container and string memoised, and
//! equal strings shared. Any Python since 3.4 and pytorch.org/memory_viz can read the result.

use super::Global;
use super::emitter::Emitter;
use super::opcode as op;
use std::collections::HashMap;
use std::io::{self, Write};

/// Entries of a dictionary or items of a list are set in batches of this size.
const BATCH: usize = 1000;

/// A writer of a pickle, with a call per value, in the order in which Python reads them. The contents of a container are
/// written by a closure, so that the nesting of the code is the nesting of the data.
///
/// Each call of a closure must write exactly one value per item, or two per entry of a dictionary; the writer does not
/// check that.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Emitter<W>,
    /// The memo slots of the strings written so far.
    strings: HashMap<Box<str>, u32>,
    /// The memo slots of the classes written so far.
    globals: HashMap<Global, u32>,
}

impl<W: Write> Writer<W> {
    /// Starts a pickle.
    ///
    /// # Errors
    /// Fails when `out` cannot be written.
    pub fn new(out: W) -> io::Result<Self> {
        Ok(Self { out: Emitter::new(out)?, strings: HashMap::new(), globals: HashMap::new() })
    }

    /// Ends the pickle and returns the writer, flushed.
    ///
    /// # Errors
    /// Fails when the rest cannot be written.
    pub fn finish(self) -> io::Result<W> {
        self.out.finish()
    }

    /// Writes `None`.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn none(&mut self) -> io::Result<()> {
        self.out.emit(&[op::NONE])
    }

    /// Writes a boolean.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn bool(&mut self, truth: bool) -> io::Result<()> {
        self.out.emit(&[if truth { op::NEWTRUE } else { op::NEWFALSE }])
    }

    /// Writes an integer in as few bytes as it needs.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn int(&mut self, number: i64) -> io::Result<()> {
        self.out.int(number)
    }

    /// Writes a float.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn float(&mut self, number: f64) -> io::Result<()> {
        self.out.float(number)
    }

    /// Writes a string, or a reference if the same string was written before.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        if let Some(&slot) = self.strings.get(text) {
            return self.out.refer(slot);
        }
        let slot = self.out.string(text.as_bytes())?;
        self.strings.insert(text.into(), slot);
        Ok(())
    }

    /// Writes a tuple of the `N` values that `contents` writes.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn tuple<const N: usize>(
        &mut self,
        contents: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        if N > 3 {
            self.out.emit(&[op::MARK])?;
        }
        contents(self)?;
        match N {
            // Python has one empty tuple and never memoises it.
            0 => return self.out.emit(&[op::EMPTY_TUPLE]),
            1 => self.out.begin(&[op::TUPLE1]),
            2 => self.out.begin(&[op::TUPLE2]),
            3 => self.out.begin(&[op::TUPLE3]),
            _ => self.out.begin(&[op::TUPLE]),
        }
        self.out.memoize().map(|_| ())
    }

    /// Writes a list; `item` writes one value for each of `items`.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn list<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        item: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.begin(&[op::EMPTY_LIST]);
        self.out.memoize()?;
        self.batches(items, item, op::APPEND, op::APPENDS)
    }

    /// Writes a dictionary; `entry` writes a key and a value for each of `entries`.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
    pub fn dict<T>(
        &mut self,
        entries: impl IntoIterator<Item = T>,
        entry: impl FnMut(&mut Self, T) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.begin(&[op::EMPTY_DICT]);
        self.out.memoize()?;
        self.batches(entries, entry, op::SETITEM, op::SETITEMS)
    }

    /// Writes a `collections.defaultdict`, with the factory `int` or without a factory.
    ///
    /// # Errors
    /// Fails when the output cannot be written.
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
        self.out.begin(&[op::REDUCE]);
        self.out.memoize()?;
        self.batches(entries, entry, op::SETITEM, op::SETITEMS)
    }

    /// Writes the contents of a container in batches: a batch of one item ends with `single`, a longer one begins with a
    /// mark and ends with `batched`.
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
                return self.out.emit(&[single]);
            }
            self.out.emit(&[op::MARK])?;
            write(self, first)?;
            for item in items.by_ref().take(BATCH - 1) {
                write(self, item)?;
            }
            self.out.emit(&[batched])?;
        }
        Ok(())
    }

    /// Writes a class by its name.
    fn global(&mut self, global: Global) -> io::Result<()> {
        if let Some(&slot) = self.globals.get(&global) {
            return self.out.refer(slot);
        }
        let (module, name) = global.path();
        self.text(module)?;
        self.text(name)?;
        self.out.begin(&[op::STACK_GLOBAL]);
        let slot = self.out.memoize()?;
        self.globals.insert(global, slot);
        Ok(())
    }
}
