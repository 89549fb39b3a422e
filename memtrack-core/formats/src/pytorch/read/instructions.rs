//! Executes the instructions that do not occur in events, such as those for strings, the text protocols and classes.

use crate::pickle::opcode::{self as op, RareToken};
use crate::pickle::operand::{self, LineValue};
use crate::pickle::source::Source;
use crate::pickle::{Global, PickleErrorKind};
use crate::pytorch::read::cell::{self, Cell};
use crate::pytorch::read::machine::{Machine, check_pairs};
use std::io::Read;

type Result<T> = std::result::Result<T, PickleErrorKind>;

/// The maximum length in bytes of an integer, and of a line in the text protocols.
const MAX_OPERAND_BYTES: u64 = 1 << 20;

impl Machine<'_> {
    /// Executes an instruction with a larger operand. Returns `None` if it leaves no new value on the stack.
    pub(crate) fn execute_rare(
        &mut self,
        source: &mut Source<impl Read>,
        token: RareToken,
    ) -> Result<Option<Cell>> {
        Ok(Some(match token {
            RareToken::Text(length) => self.read_string(source, length)?,
            RareToken::Put(slot) => return self.memoize_at(slot.into()).map(|()| None),
            RareToken::Long(length) => self.read_long(source, length)?,
            RareToken::Float(number) => self.builder.heap.add_float(number),
            RareToken::Bytes(length) => self.read_bytes(source, length)?,
            RareToken::Negative(what) => return Err(PickleErrorKind::Malformed(what)),
            RareToken::Protocol(version) if version > 5 => return Err(PickleErrorKind::Protocol(version)),
            RareToken::Protocol(_) => return Ok(None),
            RareToken::Frame(length) => {
                self.frame_end = source.offset().saturating_add(length);
                return Ok(None);
            }
        }))
    }

    /// Executes an instruction that has no operand or is followed by lines. Returns `None` if it leaves no
    /// new value on the stack.
    pub(crate) fn execute_plain(
        &mut self,
        source: &mut Source<impl Read>,
        opcode: u8,
    ) -> Result<Option<Cell>> {
        Ok(Some(match opcode {
            op::NONE => Cell::NONE,
            op::INT | op::LONG | op::FLOAT | op::STRING | op::UNICODE => {
                self.read_text_line(source, opcode)?
            }
            op::EMPTY_TUPLE => self.build_tuple(0)?,
            op::TUPLE1 => self.build_tuple(1)?,
            op::TUPLE3 => self.build_tuple(3)?,
            op::EMPTY_SET => self.builder.heap.add_container(cell::SET),
            op::TUPLE | op::LIST | op::DICT | op::FROZENSET => self.build_container(opcode)?,
            op::GLOBAL => {
                let (module, name) =
                    (source.read_line(MAX_OPERAND_BYTES)?, source.read_line(MAX_OPERAND_BYTES)?);
                Self::find_class(&module, &name)?
            }
            op::STACK_GLOBAL => {
                let (name, module) = (self.pop()?, self.pop()?);
                if name.tag() != cell::STR || module.tag() != cell::STR {
                    return Err(PickleErrorKind::WrongType("the name of a class"));
                }
                let text = |value: Cell| memtrack_model::snapshot::StringId(value.payload() as u32);
                let table = &self.builder.heap.strings.table;
                Self::find_class(table.bytes(text(module)), table.bytes(text(name)))?
            }
            op::REDUCE => self.reduce()?,
            op::DUP => self.top()?,
            op::GET => {
                let slot = operand::parse_slot(&source.read_line(MAX_OPERAND_BYTES)?)?;
                self.recall(slot)?
            }
            _ => return self.execute_effect(source, opcode).map(|()| None),
        }))
    }

    /// Executes an instruction that does not leave a new value on the stack.
    fn execute_effect(&mut self, source: &mut Source<impl Read>, opcode: u8) -> Result<()> {
        match opcode {
            op::POP if self.marks.last() == Some(&self.stack.len()) => self.pop_mark().map(|_| ()),
            op::POP => self.pop().map(|_| ()),
            op::POP_MARK => {
                let start = self.pop_mark()?;
                self.stack.truncate(start);
                Ok(())
            }
            op::PUT => {
                let slot = operand::parse_slot(&source.read_line(MAX_OPERAND_BYTES)?)?;
                self.memoize_at(slot)
            }
            op::APPENDS => {
                let start = self.pop_mark()?;
                self.append(start, cell::LIST)
            }
            op::APPEND => {
                self.top()?;
                let start = self.stack.len() - 1;
                // The text protocol fills dictionaries piece by piece. A dictionary is complete when it is
                // appended to a list.
                self.builder.settle(self.stack[start])?;
                self.append(start, cell::LIST)
            }
            op::ADDITEMS => {
                let start = self.pop_mark()?;
                self.append(start, cell::SET)
            }
            op::SETITEM => match self.stack.len().checked_sub(2) {
                Some(start) if start >= self.floor => self.set_item(start),
                _ => {
                    self.pop()?;
                    self.pop().map(|_| ())
                }
            },
            _ => Err(op::unsupported_opcode_error(opcode)),
        }
    }

    /// Adds a key and its value. More keys may follow, so the dictionary is not folded yet.
    fn set_item(&mut self, start: usize) -> Result<()> {
        check_pairs(&self.stack[start..])?;
        match start.checked_sub(1).filter(|&below| below >= self.floor).map(|below| self.stack[below]) {
            Some(dict) if dict.tag() == cell::DICT => self.builder.heap.extend(dict, &self.stack[start..])?,
            Some(_) => return Err(PickleErrorKind::WrongType("a dictionary")),
            None => return Err(PickleErrorKind::StackUnderflow),
        }
        self.stack.truncate(start);
        Ok(())
    }

    /// Makes a container from all values above the innermost mark.
    fn build_container(&mut self, opcode: u8) -> Result<Cell> {
        let start = self.pop_mark()?;
        let items = &self.stack[start..];
        let made = match opcode {
            op::TUPLE => self.builder.heap.build_tuple(items),
            op::DICT => {
                check_pairs(items)?;
                let dict = self.builder.heap.add_container(cell::DICT);
                self.builder.heap.extend(dict, items)?;
                dict
            }
            _ => {
                let list = self.builder.heap.add_container(if opcode == op::LIST {
                    cell::LIST
                } else {
                    cell::FROZENSET
                });
                self.builder.heap.extend(list, items)?;
                list
            }
        };
        self.stack.truncate(start);
        Ok(made)
    }

    /// Executes one of the few supported calls, all of which make empty dictionaries.
    fn reduce(&mut self) -> Result<Cell> {
        let (arguments, class) = (self.pop()?, self.pop()?);
        if class.tag() != cell::GLOBAL {
            return Err(PickleErrorKind::RefusedCall(None));
        }
        let arguments = match arguments.tag() {
            cell::TUPLE => self.builder.heap.tuple_items(arguments),
            // No supported call has two integers as arguments.
            cell::PAIR => &[Cell::NONE; 2],
            _ => return Err(PickleErrorKind::WrongType("a tuple")),
        };
        const INT: Cell = Cell::global(Global::Int);
        let global = Global::ALL[class.row()];
        match (global, arguments) {
            (Global::DefaultDict | Global::OrderedDict, []) | (Global::DefaultDict, [Cell::NONE | INT]) => {
                Ok(self.builder.heap.add_container(cell::DICT))
            }
            _ => Err(PickleErrorKind::RefusedCall(Some(global))),
        }
    }

    /// Reads an integer of `length` bytes.
    fn read_long(&mut self, source: &mut Source<impl Read>, length: u64) -> Result<Cell> {
        if length > MAX_OPERAND_BYTES {
            return Err(PickleErrorKind::TooLarge { what: "bytes of an integer", limit: MAX_OPERAND_BYTES });
        }
        let mut bytes = Vec::new();
        source.append_to(&mut bytes, length)?;
        Ok(self.builder.heap.add_integer(operand::from_twos_complement(bytes)))
    }

    /// Reads a string of `length` bytes.
    #[inline]
    fn read_string(&mut self, source: &mut Source<impl Read>, length: u64) -> Result<Cell> {
        if let Some(ready) = source.take_buffered(length) {
            return Ok(self.builder.heap.add_string(operand::validate(ready)?));
        }
        self.scratch.clear();
        self.read_scratch(source, length)?;
        Ok(self.builder.heap.add_string(operand::validate(&self.scratch)?))
    }

    /// Reads `length` bytes.
    fn read_bytes(&mut self, source: &mut Source<impl Read>, length: u64) -> Result<Cell> {
        self.scratch.clear();
        self.read_scratch(source, length)?;
        let bytes = self.scratch.clone();
        Ok(self.builder.heap.add_raw(bytes))
    }

    /// Reads `length` bytes into the scratch buffer. Fails if they exceed the memory limit.
    fn read_scratch(&mut self, source: &mut Source<impl Read>, length: u64) -> Result<()> {
        let mut missing = length;
        while missing > 0 {
            let part = missing.min(1 << 20);
            source.append_to(&mut self.scratch, part)?;
            missing -= part;
            self.watch.check(source.offset(), self.scratch.capacity() as u64)?;
        }
        Ok(())
    }

    /// Reads a value in the text protocols, where the operand is a line.
    fn read_text_line(&mut self, source: &mut Source<impl Read>, opcode: u8) -> Result<Cell> {
        Ok(match operand::parse_value(opcode, &source.read_line(MAX_OPERAND_BYTES)?)? {
            LineValue::Bool(truth) => Cell::bool(truth),
            LineValue::Integer(integer) => self.builder.heap.add_integer(integer),
            LineValue::Float(number) => self.builder.heap.add_float(number),
            LineValue::Text(text) => self.builder.heap.add_string(&text),
        })
    }

    /// Returns the class `module.name` if it is allowed in plain data.
    fn find_class(module: &[u8], name: &[u8]) -> Result<Cell> {
        let global = Global::find(module, name).ok_or_else(|| Global::refused_error(module, name))?;
        Ok(Cell::global(global))
    }
}
