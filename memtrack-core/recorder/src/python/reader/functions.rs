//! Reads the functions of Python whose calls are marks, and their arguments. The hooks at calls are in the preload library
//! (`preload/src/python/calls.rs`): they run with the GIL, and their caller holds what is read here.
#![allow(unsafe_code)]

use super::interpreter::active;
use super::layout::{EVALUATOR_IN_3_8, FunctionLayout, Layout, OBJECT_TYPE, TUPLE_ITEMS, TUPLE_LENGTH};
use super::memory::{Memory, Trusted};
use super::text::{Keep, text_at};

pub use super::wanted::{WantedFunction, WantedFunctions};

/// The maximum number of characters of a text that names a mark.
const MAX_NAME: usize = 256;

/// The arguments for the first two parameters of a call, as addresses of objects; 0 where there is none. The first parameter of a
/// method is its object.
pub type Arguments = [u64; 2];

/// The arguments of a call, as CPython passes them to a function.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The function object.
    pub function: u64,
    /// The array of arguments, first those by position.
    pub arguments: u64,
    /// The number of arguments by position.
    pub count: u64,
    /// The tuple of the names of the other arguments; 0 if there are none.
    pub keywords: u64,
}

/// A reader of the interpreter's functions.
#[derive(Clone, Copy)]
pub struct Functions {
    layout: Layout,
    memory: Trusted,
}

impl Functions {
    /// Returns a reader; `None` while the layout is not verified, or if the calling thread does not hold the GIL.
    pub fn of_interpreter() -> Option<Self> {
        let layout = *active()?.verified_layout()?;
        // SAFETY: the layout was verified, and the functions below require that their arguments exist.
        Some(Self { layout, memory: unsafe { Trusted::new() } })
    }

    /// Returns whether each function can be read when it is made (3.12 and newer). Otherwise, frames are.
    pub fn are_watched(&self) -> bool {
        self.layout.function.is_some() && self.layout.code_version.is_some()
    }

    fn function(&self) -> Option<FunctionLayout> {
        self.layout.function
    }

    /// Returns the code object of a function object, if it may be wanted.
    ///
    /// # Safety
    /// The function object must exist during the call.
    #[inline(always)]
    pub unsafe fn code_of_function(&self, wanted: &WantedFunctions, function: u64) -> Option<u64> {
        let code = self.memory.word(function + self.function()?.code)?;
        (!wanted.excludes(self.memory, &self.layout, code)).then_some(code)
    }

    /// Returns the code object of a frame that begins, if it may be wanted. A frame that continues, as those of generators do,
    /// does not begin.
    ///
    /// # Safety
    /// The frame must exist during the call.
    #[inline(always)]
    pub unsafe fn code_of_frame(&self, wanted: &WantedFunctions, frame: u64) -> Option<u64> {
        let code = self.memory.word(frame + self.layout.frame_code)?;
        if wanted.excludes(self.memory, &self.layout, code) {
            return None;
        }
        let is_begin = match self.layout.code_qualified_name {
            // Before 3.11, the instruction is an index.
            None => self.memory.half(frame + self.layout.frame_instruction)? == u32::MAX,
            // Instructions have two bytes.
            Some(_) => {
                let instruction = self.memory.word(frame + self.layout.frame_instruction)?;
                instruction == code + self.layout.code_instructions - 2
            }
        };
        is_begin.then_some(code)
    }

    /// Returns the wanted functions that a code object is of.
    ///
    /// # Safety
    /// The code object must exist while the iterator is used.
    pub unsafe fn wanted<'a>(
        &'a self,
        wanted: &'a WantedFunctions,
        code: u64,
    ) -> impl Iterator<Item = &'a WantedFunction> + use<'a> {
        wanted.of_code(self.memory, &self.layout, code)
    }

    /// Returns the address of the field that contains the C function which calls a function object.
    pub fn vectorcall_of(&self, function: u64) -> Option<u64> {
        Some(function + self.function()?.vectorcall)
    }

    /// Makes CPython give no version to functions that are made of the code of this function. It inlines calls only of functions
    /// with a version, and does not look at the C function then.
    ///
    /// # Safety
    /// The function object must exist during the call, and the calling thread must hold the GIL.
    pub unsafe fn remove_version(&self, function: u64) -> Option<()> {
        let code = self.memory.word(function + self.function()?.code)?;
        let version = code + self.layout.code_version?;
        // SAFETY: code objects are in writable memory, like all objects with a count of references, and the GIL protects them.
        unsafe { (version as *mut u32).write_volatile(0) };
        Some(())
    }

    /// Returns the arguments of a call.
    ///
    /// # Safety
    /// The function object and the arguments must exist during the call.
    pub unsafe fn arguments_of_call(&self, call: &Call) -> Arguments {
        [0, 1].map(|index| self.argument(call, index).unwrap_or(0))
    }

    /// Returns the argument for a parameter: by position, by name (in the order of the call), or the default.
    fn argument(&self, call: &Call, index: u64) -> Option<u64> {
        let named = if call.keywords == 0 { 0 } else { self.memory.word(call.keywords + TUPLE_LENGTH)? };
        if index < call.count + named {
            return self.memory.word(call.arguments + 8 * index);
        }
        let function = self.function()?;
        let code = self.memory.word(call.function + function.code)?;
        let parameters = u64::from(self.memory.half(code + self.layout.code_parameters)?);
        let defaults = self.memory.word(call.function + function.defaults)?;
        let count = self.memory.word(defaults + TUPLE_LENGTH)?;
        let number = index.checked_sub(parameters.checked_sub(count)?)?;
        self.memory.word(defaults + TUPLE_ITEMS + 8 * number).filter(|_| number < count)
    }

    /// Returns the arguments of a frame that begins.
    ///
    /// # Safety
    /// The frame must exist during the call.
    pub unsafe fn arguments_of_frame(&self, frame: u64) -> Arguments {
        let argument = |index: u64| {
            let code = self.memory.word(frame + self.layout.frame_code)?;
            let parameters = u64::from(self.memory.half(code + self.layout.code_parameters)?);
            if index < parameters {
                self.memory.word(frame + self.layout.frame_locals + 8 * index)
            } else {
                None
            }
        };
        [0, 1].map(|index| argument(index).unwrap_or(0))
    }

    /// Returns the first of the arguments that is a text. `text_type` is the address of `PyUnicode_Type`.
    ///
    /// # Safety
    /// The arguments must exist during the call.
    pub unsafe fn first_text(&self, arguments: Arguments, text_type: u64) -> Option<String> {
        let is_text =
            |&object: &u64| object != 0 && self.memory.word(object + OBJECT_TYPE) == Some(text_type);
        text_at(self.memory, &self.layout, arguments.into_iter().find(is_text)?, MAX_NAME, Keep::Beginning)
    }

    /// Returns the address of the evaluator in the state of an interpreter of 3.8.
    pub fn evaluator_in_3_8(state: u64) -> u64 {
        state + EVALUATOR_IN_3_8
    }
}
