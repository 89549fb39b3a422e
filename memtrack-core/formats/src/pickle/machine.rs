//! The machine that reads a pickle one instruction at a time from any reader into a [`Document`]. It accepts plain
//! data, and refuses everything else with an error that names the refused instruction or class. [`load`] runs the
//! machine.

use super::decode::{RareToken, Token};
use super::error::{PickleError, PickleErrorKind};
use super::opcode as op;
use super::source::Source;
use super::stack::{Memo, Stack};
use super::value::{Document, Value};
use super::{Global, line, shape};
use std::io::Read;

/// Limits on the cost of reading a pickle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of bytes of memory that the values may take.
    pub memory_bytes: u64,
    /// The maximum nesting depth of containers.
    pub depth: u32,
    /// The maximum length in bytes of an integer, or of a line in the text protocols.
    pub operand_bytes: u64,
}

impl Default for Limits {
    /// Returns the default limits: 256 MiB of values, 500 levels, and 1 MiB per integer or text line.
    fn default() -> Self {
        Self { memory_bytes: 256 << 20, depth: 500, operand_bytes: 1 << 20 }
    }
}

impl Limits {
    /// Returns the default limits, but with more memory if the input is large. Valid files with many small tuples take
    /// about ten times their size.
    pub fn for_input(input_bytes: u64) -> Self {
        let limits = Self::default();
        Self { memory_bytes: limits.memory_bytes.max(input_bytes.saturating_mul(16)), ..limits }
    }
}

/// Reads a pickle of any protocol up to 5. Input after the pickle is ignored, although it may be consumed from the
/// reader. Only the classes in `allowed` may occur, and the only supported calls are those that create an empty
/// `defaultdict` or `OrderedDict` (including a `defaultdict` with the factory `int`). Nothing is ever imported or
/// called.
///
/// # Errors
/// Fails for anything but a valid pickle of plain data within `limits`, and for data that contains itself. The error
/// gives the offset of the instruction.
pub fn load(reader: impl Read, allowed: &[Global], limits: Limits) -> Result<Document, PickleError> {
    let mut machine = Machine {
        source: Source::new(reader),
        document: Document::new(),
        stack: Stack::default(),
        memo: Memo::default(),
        allowed,
        limits,
        charged_bytes: 0,
        frame_end: 0,
    };
    loop {
        let offset = machine.source.offset();
        match machine.step() {
            Ok(true) => {}
            Ok(false) => {
                let checked = shape::check(&machine.document, limits.depth);
                return checked.map(|()| machine.document).map_err(|kind| PickleError { offset, kind });
            }
            Err(kind) => return Err(PickleError { offset, kind }),
        }
    }
}

/// The machine's state. The `operand` module reads the bytes after a token, and `build` makes containers.
pub(super) struct Machine<'a, R> {
    pub(super) source: Source<R>,
    pub(super) document: Document,
    pub(super) stack: Stack,
    pub(super) memo: Memo,
    pub(super) allowed: &'a [Global],
    pub(super) limits: Limits,
    /// The size of the document so far, in bytes.
    pub(super) charged_bytes: u64,
    /// The end of the last frame according to its header. Frames only help with buffering, but a frame must not extend
    /// past the end of the input.
    frame_end: u64,
}

impl<R: Read> Machine<'_, R> {
    /// Executes an instruction. Returns `false` after the last one.
    fn step(&mut self) -> Result<bool, PickleErrorKind> {
        let value = match self.source.read_token()? {
            Token::Get(slot) => Some(self.memo.get(slot.into())?),
            Token::Int(number) => Some(Value::Int(number)),
            Token::Plain(op::STOP) => {
                self.document.root = self.stack.pop()?;
                return if self.frame_end > self.source.offset() {
                    Err(PickleErrorKind::Truncated)
                } else {
                    Ok(false)
                };
            }
            Token::Plain(opcode) => self.execute_plain(opcode)?,
            Token::Rare(token) => self.execute_rare(token)?,
        };
        if let Some(value) = value {
            self.stack.push(value);
        }
        self.check_budget()?;
        Ok(true)
    }

    /// Executes an instruction with a larger operand. Returns `None` if it leaves no new value on the stack.
    fn execute_rare(&mut self, token: RareToken) -> Result<Option<Value>, PickleErrorKind> {
        Ok(Some(match token {
            RareToken::Long(length) => self.read_long(length)?,
            RareToken::Float(number) => Value::Float(number),
            RareToken::Text(length) => self.read_string(length)?,
            RareToken::Bytes(length) => Value::Bytes(self.read_raw(length)?),
            RareToken::Put(slot) => return self.store_in_memo(slot.into()).map(|()| None),
            RareToken::Negative(what) => return Err(PickleErrorKind::Malformed(what)),
            RareToken::Protocol(version) if version > 5 => return Err(PickleErrorKind::Protocol(version)),
            RareToken::Protocol(_) => return Ok(None),
            RareToken::Frame(length) => {
                self.frame_end = self.source.offset().saturating_add(length);
                return Ok(None);
            }
        }))
    }

    /// Executes an instruction that has no operand or is followed by lines. Returns `None` if it leaves no new value
    /// on the stack.
    fn execute_plain(&mut self, opcode: u8) -> Result<Option<Value>, PickleErrorKind> {
        Ok(Some(match opcode {
            op::NONE => Value::None,
            op::NEWTRUE => Value::Bool(true),
            op::NEWFALSE => Value::Bool(false),
            op::INT | op::LONG | op::FLOAT | op::STRING | op::UNICODE => self.read_text_line(opcode)?,
            op::EMPTY_TUPLE => self.build_tuple(0)?,
            op::TUPLE1 => self.build_tuple(1)?,
            op::TUPLE2 => self.build_tuple(2)?,
            op::TUPLE3 => self.build_tuple(3)?,
            op::TUPLE | op::LIST | op::DICT => self.build_container(opcode)?,
            op::EMPTY_LIST => {
                self.charge(size_of::<Vec<Value>>())?;
                Value::List(self.document.push_list()?)
            }
            op::EMPTY_DICT => self.build_empty_dict(None)?,
            op::GLOBAL | op::STACK_GLOBAL => self.build_global(opcode)?,
            op::REDUCE => self.reduce()?,
            op::DUP => self.stack.top()?,
            op::GET => {
                let slot = line::parse_slot(&self.read_line()?)?;
                self.memo.get(slot)?
            }
            _ => return self.execute_effect(opcode).map(|()| None),
        }))
    }

    /// Stores the top value in a memo slot given by the file.
    fn store_in_memo(&mut self, slot: u64) -> Result<(), PickleErrorKind> {
        let value = self.stack.top()?;
        self.memo.put(slot, value, self.source.offset())
    }

    /// Executes an instruction that does not leave a new value on the stack.
    fn execute_effect(&mut self, opcode: u8) -> Result<(), PickleErrorKind> {
        match opcode {
            op::MARK => self.stack.mark(),
            op::POP => self.stack.pop_value_or_mark()?,
            op::POP_MARK => {
                let start = self.stack.pop_mark()?;
                self.stack.truncate(start);
            }
            op::PUT => {
                let slot = line::parse_slot(&self.read_line()?)?;
                self.store_in_memo(slot)?;
            }
            op::MEMOIZE => self.memo.append(self.stack.top()?),
            op::APPEND => {
                let item = self.stack.pop()?;
                let Value::List(id) = self.stack.top()? else {
                    return Err(PickleErrorKind::WrongType("a list"));
                };
                self.charge(size_of::<Value>())?;
                self.document.lists[id.0 as usize].push(item);
            }
            op::APPENDS => {
                let start = self.stack.pop_mark()?;
                let Value::List(id) = self.stack.value_below(start)? else {
                    return Err(PickleErrorKind::WrongType("a list"));
                };
                self.charge(size_of_val(self.stack.values_from(start)))?;
                self.document.lists[id.0 as usize].extend_from_slice(self.stack.values_from(start));
                self.stack.truncate(start);
            }
            op::SETITEM => {
                let value = self.stack.pop()?;
                let key = self.stack.pop()?;
                let dict = self.stack.top()?;
                self.set_items(dict, &[key, value])?;
            }
            op::SETITEMS => {
                let start = self.stack.pop_mark()?;
                let dict = self.stack.value_below(start)?;
                let items = self.stack.values_from(start).to_vec();
                self.set_items(dict, &items)?;
                self.stack.truncate(start);
            }
            _ => return Err(op::unsupported_opcode_error(opcode)),
        }
        self.check_budget()
    }

    /// Counts `bytes` of the document against the budget.
    pub(super) fn charge(&mut self, bytes: usize) -> Result<(), PickleErrorKind> {
        self.charged_bytes = self.charged_bytes.saturating_add(bytes as u64);
        self.check_budget()
    }

    fn check_budget(&self) -> Result<(), PickleErrorKind> {
        let used = self.charged_bytes + self.stack.used_bytes() + self.memo.used_bytes();
        if used <= self.limits.memory_bytes {
            return Ok(());
        }
        Err(PickleErrorKind::TooLarge { what: "bytes of values", limit: self.limits.memory_bytes })
    }
}
