//! Reads JSON of the kind that Python writes. The values go into the same cells as a pickle's values.
//!
//! **Why not a library?** Python's JSON has integers of any size, lone surrogates in escapes, and the words `NaN` and
//! `Infinity`. In addition, errors must contain the byte offset.

use crate::pickle::source::Source;
use crate::pickle::{PickleErrorKind, operand};
use crate::pytorch::read::cell::{self, Cell};
use crate::pytorch::read::cost::CostMonitor;
use crate::pytorch::read::machine::check_pairs;
use crate::pytorch::read::tables::TableBuilder;
use crate::pytorch::read::values::MAX_DEPTH;
use std::io::Read;

type Result<T> = std::result::Result<T, PickleErrorKind>;

/// The maximum length of a number in bytes.
const MAX_NUMBER_BYTES: usize = 8192;

/// A reader of JSON.
pub(crate) struct JsonReader<'a, R> {
    source: Source<R>,
    pub(crate) builder: TableBuilder,
    watch: CostMonitor<'a>,
    /// The next byte, if it has been peeked at.
    next: Option<u8>,
    stack: Vec<Cell>,
    /// The open objects (`true`) and arrays (`false`), each with the height of the stack at its start.
    open: Vec<(bool, usize)>,
    scratch: Vec<u8>,
}

impl<'a, R: Read> JsonReader<'a, R> {
    pub(crate) fn new(reader: R, watch: CostMonitor<'a>, builder: TableBuilder) -> Self {
        Self {
            source: Source::new(reader),
            builder,
            watch,
            next: None,
            stack: Vec::new(),
            open: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Reads a value, which may be followed only by whitespace.
    ///
    /// # Errors
    /// Fails with the error and its offset.
    pub(crate) fn run(&mut self) -> std::result::Result<Cell, (u64, PickleErrorKind)> {
        self.read_document().map_err(|kind| (self.offset(), kind))
    }

    /// Returns the number of bytes parsed so far.
    pub(crate) fn offset(&self) -> u64 {
        self.source.offset() - u64::from(self.next.is_some())
    }

    fn read_document(&mut self) -> Result<Cell> {
        if self.peek()? == 0xef {
            self.expect(b"\xef\xbb\xbf", "byte order mark")?;
        }
        loop {
            if self.begin_value()? {
                continue;
            }
            // There is now a value on the stack. Close the containers that end after it until another value starts.
            while let Some(&(object, start)) = self.open.last() {
                self.skip_space()?;
                match (self.next_byte()?, object) {
                    (b',', false) => break,
                    (b',', true) => {
                        self.read_key()?;
                        break;
                    }
                    (b']', false) | (b'}', true) => self.close_container(object, start)?,
                    _ => return Err(PickleErrorKind::Malformed("list: a comma or bracket is missing")),
                }
            }
            if self.open.is_empty() {
                return match self.skip_space() {
                    Err(PickleErrorKind::Truncated) => {
                        self.stack.pop().ok_or(PickleErrorKind::StackUnderflow)
                    }
                    Ok(()) => Err(PickleErrorKind::Malformed("end: something follows the value")),
                    Err(error) => Err(error),
                };
            }
        }
    }

    /// Starts a value. Returns `true` if it is a container that is not empty.
    fn begin_value(&mut self) -> Result<bool> {
        self.skip_space()?;
        let value = match self.peek()? {
            b'{' | b'[' => {
                let object = self.next_byte()? == b'{';
                if self.open.len() >= MAX_DEPTH as usize {
                    return Err(PickleErrorKind::TooDeep(MAX_DEPTH));
                }
                let start = self.stack.len();
                self.skip_space()?;
                if self.peek()? == if object { b'}' } else { b']' } {
                    self.next_byte()?;
                    self.builder.heap.add_container(if object { cell::DICT } else { cell::LIST })
                } else {
                    self.open.push((object, start));
                    if object {
                        self.read_key()?;
                    }
                    return Ok(true);
                }
            }
            b'"' => self.read_string()?,
            b't' => self.read_word(b"true", Cell::bool(true))?,
            b'f' => self.read_word(b"false", Cell::bool(false))?,
            b'n' => self.read_word(b"null", Cell::NONE)?,
            b'N' => {
                self.expect(b"NaN", "word")?;
                self.builder.heap.add_float(f64::NAN)
            }
            _ => self.read_number()?,
        };
        self.stack.push(value);
        self.check_cost()?;
        Ok(false)
    }

    /// Checks the number of bytes read and the memory in use from time to time. Must be called after every value,
    /// because a list or an object may contain any number of values before it ends.
    #[inline]
    fn check_cost(&mut self) -> Result<()> {
        let offset = self.source.offset();
        if !self.watch.is_due(offset) {
            return Ok(());
        }
        let used = self.builder.used_bytes() + 8 * self.stack.capacity() as u64;
        self.watch.check(offset, used)
    }

    /// Closes a container.
    fn close_container(&mut self, object: bool, start: usize) -> Result<()> {
        self.open.pop();
        let items = &self.stack[start..];
        let container = self.builder.heap.add_container(if object { cell::DICT } else { cell::LIST });
        let folded = if object {
            check_pairs(items)?;
            self.builder.fold_dictionary(items)?
        } else {
            None
        };
        match folded {
            Some(folded) => self.builder.heap.containers[container.row()] = folded,
            None => self.builder.heap.extend(container, &self.stack[start..])?,
        }
        self.stack.truncate(start);
        self.stack.push(container);
        self.check_cost()
    }

    /// Reads a key and its colon.
    fn read_key(&mut self) -> Result<()> {
        self.skip_space()?;
        let key = self.read_string()?;
        self.stack.push(key);
        self.skip_space()?;
        self.expect(b":", "object: a colon is missing")
    }

    #[inline]
    fn peek(&mut self) -> Result<u8> {
        match self.next {
            Some(byte) => Ok(byte),
            None => Ok(*self.next.insert(self.source.read_byte()?)),
        }
    }

    #[inline]
    fn next_byte(&mut self) -> Result<u8> {
        match self.next.take() {
            Some(byte) => Ok(byte),
            None => self.source.read_byte(),
        }
    }

    fn skip_space(&mut self) -> Result<()> {
        while matches!(self.peek()?, b' ' | b'\t' | b'\n' | b'\r') {
            self.next = None;
        }
        Ok(())
    }

    fn read_word(&mut self, word: &[u8], value: Cell) -> Result<Cell> {
        self.expect(word, "word")?;
        Ok(value)
    }

    fn expect(&mut self, word: &[u8], what: &'static str) -> Result<()> {
        for &byte in word {
            if self.peek()? != byte {
                return Err(PickleErrorKind::Malformed(what));
            }
            self.next = None;
        }
        Ok(())
    }

    fn read_string(&mut self) -> Result<Cell> {
        self.expect(b"\"", "string: a quote is missing")?;
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        loop {
            match self.next_byte()? {
                b'"' => break,
                b'\\' => self.read_escape(&mut bytes)?,
                byte => bytes.push(byte),
            }
            if bytes.len().is_multiple_of(1 << 20) && !bytes.is_empty() {
                self.watch.check(self.source.offset(), bytes.capacity() as u64)?;
            }
        }
        if !memtrack_model::text::is_utf8_with_surrogates(&bytes) {
            return Err(PickleErrorKind::Malformed("string: it is not UTF-8"));
        }
        let string = self.builder.heap.add_string(&bytes);
        self.scratch = bytes;
        Ok(string)
    }

    fn read_escape(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        let mut unit = match self.next_byte()? {
            b'n' => b'\n'.into(),
            b't' => b'\t'.into(),
            b'r' => b'\r'.into(),
            b'b' => 8,
            b'f' => 12,
            byte @ (b'"' | b'\\' | b'/') => byte.into(),
            b'u' => self.read_code_unit()?,
            _ => return Err(PickleErrorKind::Malformed("escape in a string")),
        };
        // A high surrogate followed by a low surrogate forms one character. A lone surrogate is kept.
        while (0xd800..0xdc00).contains(&unit) && self.peek()? == b'\\' {
            self.next = None;
            if self.peek()? != b'u' {
                operand::push_code_point(bytes, unit)?;
                return self.read_escape(bytes);
            }
            self.next = None;
            let second = self.read_code_unit()?;
            if (0xdc00..0xe000).contains(&second) {
                unit = 0x10000 + ((unit - 0xd800) << 10) + (second - 0xdc00);
            } else {
                operand::push_code_point(bytes, unit)?;
                unit = second;
            }
        }
        operand::push_code_point(bytes, unit)
    }

    /// Reads a UTF-16 code unit that consists of four hexadecimal digits.
    fn read_code_unit(&mut self) -> Result<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = char::from(self.next_byte()?).to_digit(16);
            unit = unit << 4 | digit.ok_or(PickleErrorKind::Malformed("escape in a string"))?;
        }
        Ok(unit)
    }

    fn read_number(&mut self) -> Result<Cell> {
        let mut digits = std::mem::take(&mut self.scratch);
        digits.clear();
        loop {
            match self.peek() {
                Ok(byte @ (b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')) => digits.push(byte),
                Ok(b'I') if matches!(digits[..], [] | [b'-']) => {
                    self.expect(b"Infinity", "word")?;
                    let sign = if digits.is_empty() { 1.0 } else { -1.0 };
                    self.scratch = digits;
                    return Ok(self.builder.heap.add_float(sign * f64::INFINITY));
                }
                Ok(_) | Err(PickleErrorKind::Truncated) => break,
                Err(error) => return Err(error),
            }
            self.next = None;
            if digits.len() > MAX_NUMBER_BYTES {
                return Err(PickleErrorKind::TooLarge {
                    what: "digits of a number",
                    limit: MAX_NUMBER_BYTES as u64,
                });
            }
        }
        if digits.is_empty() {
            return Err(PickleErrorKind::Malformed("value"));
        }
        let value = if digits.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
            self.builder.heap.add_float(operand::parse_float(&digits)?)
        } else {
            self.builder.heap.add_integer(operand::parse_integer(&digits)?)
        };
        self.scratch = digits;
        Ok(value)
    }
}
