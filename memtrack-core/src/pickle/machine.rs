//! The machine that reads a pickle: one instruction at a time, from any reader, into a [`Document`]. It understands
//! data and refuses everything else by name; [`load`] is the door.

use super::error::{PickleError, PickleErrorKind};
use super::opcode as op;
use super::source::Source;
use super::stack::{Memo, Stack};
use super::value::{Dict, DictId, Document, Value};
use super::{Global, number, shape, text};
use std::io::Read;

/// How much a pickle may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory for the values, in bytes.
    pub memory_bytes: u64,
    /// Levels of containers in containers.
    pub depth: u32,
    /// Length of one integer and of one line of the text protocols, in bytes.
    pub operand_bytes: u64,
}

impl Default for Limits {
    /// 256 MiB of values, 500 levels, 1 MiB per integer or text line.
    fn default() -> Self {
        Self { memory_bytes: 256 << 20, depth: 500, operand_bytes: 1 << 20 }
    }
}

impl Limits {
    /// The default, with more memory for an input of `input_bytes` that is so large that it needs it: sound files of
    /// many small tuples take about ten times their size.
    pub fn for_input(input_bytes: u64) -> Self {
        let limits = Self::default();
        Self { memory_bytes: limits.memory_bytes.max(input_bytes.saturating_mul(16)), ..limits }
    }
}

/// Reads one pickle of any protocol up to 5. What follows it in the input is not looked at (though it may be taken
/// from the reader). Only classes in `allowed` may be named, and `defaultdict` and `OrderedDict` may be made empty
/// (`defaultdict` also with the factory `int`); nothing is ever imported or called.
///
/// # Errors
/// With the offset of the instruction, for anything that is no sound pickle of plain data within `limits`, and for
/// data that holds itself.
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

struct Machine<'a, R> {
    source: Source<R>,
    document: Document,
    stack: Stack,
    memo: Memo,
    allowed: &'a [Global],
    limits: Limits,
    /// Bytes of the document.
    charged_bytes: u64,
    /// Where the last frame says it ends. A frame only helps to buffer, but it may not claim more than there is.
    frame_end: u64,
}

impl<R: Read> Machine<'_, R> {
    /// Carries out one instruction; `false` after the last.
    fn step(&mut self) -> Result<bool, PickleErrorKind> {
        let opcode = self.source.byte()?;
        let value = match opcode {
            op::STOP => {
                self.document.root = self.stack.pop()?;
                return if self.frame_end > self.source.offset() {
                    Err(PickleErrorKind::Truncated)
                } else {
                    Ok(false)
                };
            }
            op::PROTO => {
                let protocol = self.source.byte()?;
                return if protocol > 5 { Err(PickleErrorKind::Protocol(protocol)) } else { Ok(true) };
            }
            op::FRAME => {
                let length = u64::from_le_bytes(self.source.array()?);
                self.frame_end = self.source.offset().saturating_add(length);
                return Ok(true);
            }
            op::NONE => Value::None,
            op::NEWTRUE => Value::Bool(true),
            op::NEWFALSE => Value::Bool(false),
            op::BININT => Value::Int(i32::from_le_bytes(self.source.array()?).into()),
            op::BININT1 => Value::Int(self.source.byte()?.into()),
            op::BININT2 => Value::Int(u16::from_le_bytes(self.source.array()?).into()),
            op::BINFLOAT => Value::Float(f64::from_be_bytes(self.source.array()?)),
            op::LONG1 => {
                let length = self.source.byte()?;
                self.long(length.into())?
            }
            op::LONG4 => {
                let length = self.signed_length("integer: a negative length")?;
                self.long(length)?
            }
            op::INT | op::LONG | op::FLOAT | op::STRING | op::UNICODE => self.text_line(opcode)?,
            op::SHORT_BINUNICODE | op::BINUNICODE | op::BINUNICODE8 => {
                let length = self.length(opcode)?;
                self.string(length)?
            }
            op::SHORT_BINSTRING | op::BINSTRING => {
                let length = self.length(opcode)?;
                self.string(length)?
            }
            op::SHORT_BINBYTES | op::BINBYTES | op::BINBYTES8 | op::BYTEARRAY8 => {
                let length = self.length(opcode)?;
                Value::Bytes(self.raw(length)?)
            }
            op::EMPTY_TUPLE => self.tuple(0)?,
            op::TUPLE1 => self.tuple(1)?,
            op::TUPLE2 => self.tuple(2)?,
            op::TUPLE3 => self.tuple(3)?,
            op::TUPLE | op::LIST | op::DICT => self.container_from_mark(opcode)?,
            op::EMPTY_LIST => {
                self.charge(size_of::<Vec<Value>>())?;
                Value::List(self.document.push_list()?)
            }
            op::EMPTY_DICT => self.empty_dict(None)?,
            op::GLOBAL | op::STACK_GLOBAL => self.global(opcode)?,
            op::REDUCE => self.reduce()?,
            op::DUP => self.stack.top()?,
            op::GET | op::BINGET | op::LONG_BINGET => {
                let index = self.memo_index(opcode)?;
                self.memo.get(index)?
            }
            _ => return self.act(opcode).map(|()| true),
        };
        self.stack.push(value);
        self.check_budget()?;
        Ok(true)
    }

    /// Carries out an instruction that leaves no new value on the stack.
    fn act(&mut self, opcode: u8) -> Result<(), PickleErrorKind> {
        match opcode {
            op::MARK => self.stack.mark(),
            op::POP => self.stack.pop_value_or_mark()?,
            op::POP_MARK => {
                let start = self.stack.pop_mark()?;
                self.stack.truncate(start);
            }
            op::PUT | op::BINPUT | op::LONG_BINPUT => {
                let index = self.memo_index(opcode)?;
                let value = self.stack.top()?;
                self.memo.put(index, value, self.source.offset())?;
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
                let Value::List(id) = self.stack.below(start)? else {
                    return Err(PickleErrorKind::WrongType("a list"));
                };
                self.charge(size_of_val(self.stack.from(start)))?;
                self.document.lists[id.0 as usize].extend_from_slice(self.stack.from(start));
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
                let dict = self.stack.below(start)?;
                let items = self.stack.from(start).to_vec();
                self.set_items(dict, &items)?;
                self.stack.truncate(start);
            }
            _ => {
                return Err(match op::name(opcode) {
                    Some(name) => PickleErrorKind::RefusedOpcode(name),
                    None => PickleErrorKind::NotAPickle(opcode),
                });
            }
        }
        self.check_budget()
    }

    /// Counts `bytes` of the document against the budget.
    fn charge(&mut self, bytes: usize) -> Result<(), PickleErrorKind> {
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

    /// A length operand, in bytes.
    fn length(&mut self, opcode: u8) -> Result<u64, PickleErrorKind> {
        Ok(match opcode {
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING | op::SHORT_BINBYTES => self.source.byte()?.into(),
            op::BINUNICODE | op::BINBYTES => u32::from_le_bytes(self.source.array()?).into(),
            op::BINSTRING => self.signed_length("string: a negative length")?,
            _ => u64::from_le_bytes(self.source.array()?),
        })
    }

    /// A length operand that Python reads with a sign.
    fn signed_length(&mut self, complaint: &'static str) -> Result<u64, PickleErrorKind> {
        let length = i32::from_le_bytes(self.source.array()?);
        u64::try_from(length).map_err(|_| PickleErrorKind::Malformed(complaint))
    }

    /// The operand of a memo instruction.
    fn memo_index(&mut self, opcode: u8) -> Result<u64, PickleErrorKind> {
        match opcode {
            op::BINGET | op::BINPUT => Ok(self.source.byte()?.into()),
            op::LONG_BINGET | op::LONG_BINPUT => Ok(u32::from_le_bytes(self.source.array()?).into()),
            _ => match number::from_decimal(&self.source.line(self.limits.operand_bytes)?)? {
                number::Integer::Small(index) => {
                    u64::try_from(index).map_err(|_| PickleErrorKind::Malformed("memo slot"))
                }
                number::Integer::Big(_) => Err(PickleErrorKind::Malformed("memo slot")),
            },
        }
    }

    /// The next `length` bytes of input, kept in the document.
    fn raw(&mut self, length: u64) -> Result<super::Span, PickleErrorKind> {
        let free = self.limits.memory_bytes.saturating_sub(self.charged_bytes);
        let start = self.document.bytes.len();
        // Reading one byte more than fits tells a file that is cut from one that is too large.
        self.source.append_to(&mut self.document.bytes, length.min(free.saturating_add(1)))?;
        self.charge(usize::try_from(length).unwrap_or(usize::MAX))?;
        self.document.span_from(start)
    }

    /// A string of `length` bytes. Python 2's byte strings come here too: they are text, and ours are UTF-8.
    fn string(&mut self, length: u64) -> Result<Value, PickleErrorKind> {
        let span = self.raw(length)?;
        if !text::is_utf8_with_surrogates(self.document.bytes(span)) {
            return Err(PickleErrorKind::Malformed("string: it is not UTF-8"));
        }
        Ok(Value::Str(span))
    }

    /// An integer of `length` bytes.
    fn long(&mut self, length: u64) -> Result<Value, PickleErrorKind> {
        let limit = self.limits.operand_bytes;
        if length > limit {
            return Err(PickleErrorKind::TooLarge { what: "bytes of an integer", limit });
        }
        let mut bytes = Vec::new();
        self.source.append_to(&mut bytes, length)?;
        self.charge(bytes.len())?;
        self.document.push_twos_complement(bytes)
    }

    /// A value of the text protocol: its operand is a line.
    fn text_line(&mut self, opcode: u8) -> Result<Value, PickleErrorKind> {
        let line = self.source.line(self.limits.operand_bytes)?;
        self.charge(line.len())?;
        match opcode {
            // How protocols 0 and 1 spell booleans.
            op::INT if line == b"00" => Ok(Value::Bool(false)),
            op::INT if line == b"01" => Ok(Value::Bool(true)),
            op::INT => self.document.push_integer(number::from_decimal(&line)?),
            op::LONG => {
                let digits = line.strip_suffix(b"L").unwrap_or(&line);
                self.document.push_integer(number::from_decimal(digits)?)
            }
            op::FLOAT => number::float(&line).map(Value::Float),
            op::UNICODE => Ok(Value::Str(self.document.push_bytes(&text::raw_unicode_escape(&line)?)?)),
            _ => {
                let string = text::quoted_string(&line)?;
                if !text::is_utf8_with_surrogates(&string) {
                    return Err(PickleErrorKind::Malformed("string: it is not UTF-8"));
                }
                Ok(Value::Str(self.document.push_bytes(&string)?))
            }
        }
    }

    /// A tuple of the top `count` values.
    fn tuple(&mut self, count: usize) -> Result<Value, PickleErrorKind> {
        self.charge(count * size_of::<Value>() + size_of::<(u32, u32)>())?;
        let tuple = self.document.push_tuple(self.stack.last(count)?)?;
        self.stack.drop_last(count);
        Ok(tuple)
    }

    /// A container of everything above the innermost mark.
    fn container_from_mark(&mut self, opcode: u8) -> Result<Value, PickleErrorKind> {
        let start = self.stack.pop_mark()?;
        let items = self.stack.from(start).to_vec();
        self.stack.truncate(start);
        match opcode {
            op::TUPLE => {
                self.charge(size_of_val(items.as_slice()) + size_of::<(u32, u32)>())?;
                self.document.push_tuple(&items)
            }
            op::LIST => {
                self.charge(size_of_val(items.as_slice()) + size_of::<Vec<Value>>())?;
                let id = self.document.push_list()?;
                self.document.lists[id.0 as usize] = items;
                Ok(Value::List(id))
            }
            _ => {
                let dict = self.empty_dict(None)?;
                self.set_items(dict, &items)?;
                Ok(dict)
            }
        }
    }

    fn empty_dict(&mut self, factory: Option<Global>) -> Result<Value, PickleErrorKind> {
        self.charge(size_of::<Dict>())?;
        self.document.push_dict(factory).map(Value::Dict)
    }

    /// Sets keys and values, which take turns in `items`.
    fn set_items(&mut self, dict: Value, items: &[Value]) -> Result<(), PickleErrorKind> {
        let Value::Dict(DictId(row)) = dict else { return Err(PickleErrorKind::WrongType("a dictionary")) };
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(PickleErrorKind::OddItems);
        }
        if pairs.iter().any(|pair| matches!(pair[0], Value::List(_) | Value::Dict(_))) {
            return Err(PickleErrorKind::UnhashableKey);
        }
        self.charge(size_of_val(items))?;
        self.document.dicts[row as usize].entries.extend(pairs.iter().map(|&[key, value]| (key, value)));
        Ok(())
    }

    /// A name of Python's, if the caller allows it.
    fn global(&mut self, opcode: u8) -> Result<Value, PickleErrorKind> {
        let (module, name) = if opcode == op::GLOBAL {
            (self.source.line(self.limits.operand_bytes)?, self.source.line(self.limits.operand_bytes)?)
        } else {
            match (self.stack.pop()?, self.stack.pop()?) {
                (Value::Str(name), Value::Str(module)) => {
                    (self.document.bytes(module).to_vec(), self.document.bytes(name).to_vec())
                }
                _ => return Err(PickleErrorKind::WrongType("the name of a class")),
            }
        };
        match Global::find(&module, &name) {
            Some(global) if self.allowed.contains(&global) => Ok(Value::Global(global)),
            _ => Err(PickleErrorKind::RefusedGlobal { module: shorten(&module), name: shorten(&name) }),
        }
    }

    /// The few calls that are understood: they make empty dictionaries.
    fn reduce(&mut self) -> Result<Value, PickleErrorKind> {
        let arguments = self.stack.pop()?;
        let callable = self.stack.pop()?;
        let Value::Global(global) = callable else { return Err(PickleErrorKind::RefusedCall(None)) };
        let Value::Tuple(arguments) = arguments else { return Err(PickleErrorKind::WrongType("a tuple")) };
        match (global, self.document.tuple(arguments)) {
            (Global::DefaultDict | Global::OrderedDict, []) | (Global::DefaultDict, [Value::None]) => {
                self.empty_dict(None)
            }
            (Global::DefaultDict, [Value::Global(Global::Int)]) => self.empty_dict(Some(Global::Int)),
            _ => Err(PickleErrorKind::RefusedCall(Some(global))),
        }
    }
}

/// A name from the file, short enough for a message.
fn shorten(name: &[u8]) -> String {
    let shown = text::lossy(&name[..name.len().min(80)]);
    if name.len() > 80 { format!("{shown}…") } else { shown }
}
