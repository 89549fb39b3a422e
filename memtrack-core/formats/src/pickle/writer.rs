//! Writes pickles the way CPython does, using protocol 4 in frames of about 64 KiB. Every container and
//! string is memoised, and equal strings are shared. The result can be read by any Python since 3.4 and by
//! pytorch.org/memory_viz.

use super::Global;
use super::emitter::Emitter;
use super::opcode as op;
use std::collections::HashMap;
use std::io::{self, Write};

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
