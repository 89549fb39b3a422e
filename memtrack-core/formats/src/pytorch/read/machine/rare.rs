//! The instructions that large files hardly use: text protocols, classes, long lengths, odds and ends.

use crate::pickle::opcode as op;
use crate::pickle::{PickleErrorKind, number, text};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::core::{Machine, check_pairs};
use std::io::Read;

type Result<T> = std::result::Result<T, PickleErrorKind>;

impl<R: Read> Machine<'_, R> {
    /// Carries out an instruction that is not on the fast path; `None` when it leaves no new value.
    pub(crate) fn rare(&mut self, opcode: u8) -> Result<Option<Cell>> {
        Ok(Some(match opcode {
            op::PROTO => {
                let protocol = self.source.byte()?;
                return if protocol > 5 { Err(PickleErrorKind::Protocol(protocol)) } else { Ok(None) };
            }
            op::FRAME => {
                let length = u64::from_le_bytes(self.source.array()?);
                self.frame_end = self.source.offset().saturating_add(length);
                return Ok(None);
            }
            op::BINFLOAT => {
                let number = f64::from_be_bytes(self.source.array()?);
                self.heap.float(number)
            }
            op::LONG4 => {
                let length = self.signed_length("integer: a negative length")?;
                self.long(length)?
            }
            op::INT | op::LONG | op::FLOAT | op::STRING | op::UNICODE => self.text_line(opcode)?,
            op::BINUNICODE => {
                let length = u32::from_le_bytes(self.source.array()?);
                self.string(length.into())?
            }
            op::BINUNICODE8 => {
                let length = u64::from_le_bytes(self.source.array()?);
                self.string(length)?
            }
            op::SHORT_BINSTRING => {
                let length = self.source.byte()?;
                self.string(length.into())?
            }
            op::BINSTRING => {
                let length = self.signed_length("string: a negative length")?;
                self.string(length)?
            }
            op::SHORT_BINBYTES | op::BINBYTES | op::BINBYTES8 | op::BYTEARRAY8 => {
                let length = match opcode {
                    op::SHORT_BINBYTES => self.source.byte()?.into(),
                    op::BINBYTES => u32::from_le_bytes(self.source.array()?).into(),
                    _ => u64::from_le_bytes(self.source.array()?),
                };
                self.scratch.clear();
                self.limited(length)?;
                let bytes = self.scratch.clone();
                self.heap.raw(bytes)
            }
            op::EMPTY_TUPLE => self.tuple(0)?,
            op::TUPLE1 => self.tuple(1)?,
            op::TUPLE3 => self.tuple(3)?,
            op::EMPTY_SET => self.heap.container(cell::SET),
            op::TUPLE | op::LIST | op::DICT | op::FROZENSET => self.since_mark(opcode)?,
            op::GLOBAL => {
                let (module, name) = (self.line()?, self.line()?);
                Self::class(&module, &name)?
            }
            op::STACK_GLOBAL => {
                let (name, module) = (self.pop()?, self.pop()?);
                if name.tag() != cell::STR || module.tag() != cell::STR {
                    return Err(PickleErrorKind::WrongType("the name of a class"));
                }
                let text = |value: Cell| memtrack_model::snapshot::StringId(value.payload() as u32);
                let table = &self.heap.strings.table;
                Self::class(table.bytes(text(module)), table.bytes(text(name)))?
            }
            op::REDUCE => self.reduce()?,
            op::DUP => self.top()?,
            op::GET => {
                let slot = self.slot_line()?;
                self.recall_at(slot)?
            }
            _ => return self.act(opcode).map(|()| None),
        }))
    }

    /// Instructions that leave no new value on the stack.
    fn act(&mut self, opcode: u8) -> Result<()> {
        match opcode {
            op::POP if self.marks.last() == Some(&self.stack.len()) => self.pop_mark().map(|_| ()),
            op::POP => self.pop().map(|_| ()),
            op::POP_MARK => {
                let start = self.pop_mark()?;
                self.stack.truncate(start);
                Ok(())
            }
            op::PUT => {
                let slot = self.slot_line()?;
                self.memoize_at(slot)
            }
            op::BINPUT => {
                let slot = self.source.byte()?;
                self.memoize_at(slot.into())
            }
            op::LONG_BINPUT => {
                let slot = u32::from_le_bytes(self.source.array()?);
                self.memoize_at(slot.into())
            }
            op::APPEND => {
                self.top()?;
                let start = self.stack.len() - 1;
                // The text protocol fills dictionaries piece by piece; in a list they are whole.
                self.folder.settle(&mut self.heap, self.stack[start])?;
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
            _ => Err(match op::name(opcode) {
                Some(name) => PickleErrorKind::RefusedOpcode(name),
                None => PickleErrorKind::NotAPickle(opcode),
            }),
        }
    }

    /// Sets one key; the dictionary may get more, so it is not folded yet.
    fn set_item(&mut self, start: usize) -> Result<()> {
        check_pairs(&self.stack[start..])?;
        match start.checked_sub(1).filter(|&below| below >= self.floor).map(|below| self.stack[below]) {
            Some(dict) if dict.tag() == cell::DICT => self.heap.extend(dict, &self.stack[start..])?,
            Some(_) => return Err(PickleErrorKind::WrongType("a dictionary")),
            None => return Err(PickleErrorKind::StackUnderflow),
        }
        self.stack.truncate(start);
        Ok(())
    }

    /// A container of everything above the innermost mark.
    fn since_mark(&mut self, opcode: u8) -> Result<Cell> {
        let start = self.pop_mark()?;
        let items = &self.stack[start..];
        let made = match opcode {
            op::TUPLE => self.heap.tuple(items),
            op::DICT => {
                check_pairs(items)?;
                let dict = self.heap.container(cell::DICT);
                self.heap.extend(dict, items)?;
                dict
            }
            _ => {
                let list = self.heap.container(if opcode == op::LIST { cell::LIST } else { cell::FROZENSET });
                self.heap.extend(list, items)?;
                list
            }
        };
        self.stack.truncate(start);
        Ok(made)
    }

    /// The few calls that are understood: they make empty dictionaries.
    fn reduce(&mut self) -> Result<Cell> {
        let (arguments, class) = (self.pop()?, self.pop()?);
        if class.tag() != cell::GLOBAL {
            return Err(PickleErrorKind::RefusedCall(None));
        }
        if arguments.tag() != cell::TUPLE {
            return Err(PickleErrorKind::WrongType("a tuple"));
        }
        let fine = match (class.payload(), self.heap.tuple_items(arguments)) {
            (0 | 1, []) => true,
            (0, [factory]) => {
                matches!((factory.tag(), factory.payload()), (cell::NONE, _) | (cell::GLOBAL, 2))
            }
            _ => false,
        };
        if fine { Ok(self.heap.container(cell::DICT)) } else { Err(PickleErrorKind::RefusedCall(None)) }
    }

    /// A length operand that Python reads with a sign.
    fn signed_length(&mut self, complaint: &'static str) -> Result<u64> {
        let length = i32::from_le_bytes(self.source.array()?);
        u64::try_from(length).map_err(|_| PickleErrorKind::Malformed(complaint))
    }

    /// A value of the text protocol: its operand is a line.
    fn text_line(&mut self, opcode: u8) -> Result<Cell> {
        let line = self.line()?;
        match opcode {
            op::INT if line == b"00" => Ok(Cell::bool(false)),
            op::INT if line == b"01" => Ok(Cell::bool(true)),
            op::INT => Ok(self.heap.integer(number::from_decimal(&line)?)),
            op::LONG => {
                let digits = line.strip_suffix(b"L").unwrap_or(&line);
                Ok(self.heap.integer(number::from_decimal(digits)?))
            }
            op::FLOAT => number::float(&line).map(|number| self.heap.float(number)),
            op::UNICODE => Ok(self.heap.string(&text::raw_unicode_escape(&line)?)),
            _ => {
                let string = text::quoted_string(&line)?;
                if !memtrack_model::text::is_utf8_with_surrogates(&string) {
                    return Err(PickleErrorKind::Malformed("string: it is not UTF-8"));
                }
                Ok(self.heap.string(&string))
            }
        }
    }
}
