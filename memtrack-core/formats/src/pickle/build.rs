//! Builds containers and classes, i.e. the values that the machine makes from the values on its stack.

use super::Global;
use super::error::PickleErrorKind;
use super::machine::Machine;
use super::opcode as op;
use super::value::{Dict, DictId, Value};
use std::io::Read;

impl<R: Read> Machine<'_, R> {
    /// Makes a tuple from the top `count` values.
    pub(super) fn build_tuple(&mut self, count: usize) -> Result<Value, PickleErrorKind> {
        self.charge(count * size_of::<Value>() + size_of::<(u32, u32)>())?;
        let tuple = self.document.push_tuple(self.stack.last_values(count)?)?;
        self.stack.drop_last(count);
        Ok(tuple)
    }

    /// Makes a container from all values above the innermost mark.
    pub(super) fn build_container(&mut self, opcode: u8) -> Result<Value, PickleErrorKind> {
        let start = self.stack.pop_mark()?;
        let items = self.stack.values_from(start).to_vec();
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
                let dict = self.build_empty_dict(None)?;
                self.set_items(dict, &items)?;
                Ok(dict)
            }
        }
    }

    pub(super) fn build_empty_dict(&mut self, factory: Option<Global>) -> Result<Value, PickleErrorKind> {
        self.charge(size_of::<Dict>())?;
        self.document.push_dict(factory).map(Value::Dict)
    }

    /// Adds the alternating keys and values in `items` to a dictionary.
    pub(super) fn set_items(&mut self, dict: Value, items: &[Value]) -> Result<(), PickleErrorKind> {
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

    /// Makes the value that stands for a class, if the caller allows the class.
    pub(super) fn build_global(&mut self, opcode: u8) -> Result<Value, PickleErrorKind> {
        let (module, name) = if opcode == op::GLOBAL {
            (self.read_line()?, self.read_line()?)
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
            _ => Err(Global::refused_error(&module, &name)),
        }
    }

    /// Executes one of the few supported calls, all of which make empty dictionaries.
    pub(super) fn reduce(&mut self) -> Result<Value, PickleErrorKind> {
        let arguments = self.stack.pop()?;
        let callable = self.stack.pop()?;
        let Value::Global(global) = callable else { return Err(PickleErrorKind::RefusedCall(None)) };
        let Value::Tuple(arguments) = arguments else { return Err(PickleErrorKind::WrongType("a tuple")) };
        match (global, self.document.tuple(arguments)) {
            (Global::DefaultDict | Global::OrderedDict, []) | (Global::DefaultDict, [Value::None]) => {
                self.build_empty_dict(None)
            }
            (Global::DefaultDict, [Value::Global(Global::Int)]) => self.build_empty_dict(Some(Global::Int)),
            _ => Err(PickleErrorKind::RefusedCall(Some(global))),
        }
    }
}
