//! The hot path: reads the Python frames of the calling thread into a buffer, and adds them to the hash of its stack.
//! An unchanged stack is then found in the thread's cache like one without Python frames, and nothing else is read.
//!
//! It takes four loads and a multiplication per frame.
#![allow(unsafe_code)]

use super::codes::{generation_of, mark_used};
use super::interpreter::{Interpreter, active, refuse};
use super::layout::{Chain, Layout, OWNED_BY_EVALUATOR, OWNED_BY_GENERATOR};
use super::location::{Location, locate};
use super::memory::{Checked, Memory, Trusted};
use super::table;
use crate::python::{FrameWord, MAX_PYTHON_FRAMES};

/// A frame as the interpreter has it.
#[derive(Clone, Copy, Default)]
struct RawFrame {
    /// The address of the code object; 0 for a frame without code.
    code: u64,
    /// The instruction: its address, or (before 3.11) its index.
    instruction: u64,
    is_entry: bool,
    is_generator: bool,
}

/// The buffer for the Python frames of a stack, innermost first.
pub(crate) struct PythonFrames {
    frames: [RawFrame; MAX_PYTHON_FRAMES],
    len: usize,
    /// Whether the chain could not be followed to its end.
    is_broken: bool,
    /// Whether the chain was read with checks.
    is_checked: bool,
    /// Whether the thread holds the GIL.
    is_attached: bool,
}

/// Mixes two words into one, as foldhash does.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

const CODE_KEY: u64 = 0x2439_1cb4_7a3e_8d51;
const INSTRUCTION_KEY: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns a number that identifies a code object among all that have had its address.
#[inline(always)]
fn identity_of(code: u64) -> u64 {
    const GENERATION_FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    code ^ CODE_KEY ^ u64::from(generation_of(code)).wrapping_mul(GENERATION_FACTOR)
}

impl PythonFrames {
    /// Returns an empty buffer.
    pub(crate) const fn new() -> Self {
        let frame = RawFrame { code: 0, instruction: 0, is_entry: false, is_generator: false };
        Self {
            frames: [frame; MAX_PYTHON_FRAMES],
            len: 0,
            is_broken: false,
            is_checked: false,
            is_attached: false,
        }
    }

    /// Reads the frames of the calling thread, and returns `hash` with the frames mixed in. If the thread runs no Python,
    /// the hash is unchanged, and the buffer is not valid.
    #[inline(always)]
    pub(crate) fn add_to(&mut self, hash: u64) -> u64 {
        match active() {
            None => hash,
            Some(interpreter) => self.walk(interpreter, hash),
        }
    }

    #[inline(never)]
    fn walk(&mut self, interpreter: &Interpreter, hash: u64) -> u64 {
        (self.len, self.is_broken) = (0, false);
        let Some(layout) = interpreter.layout() else { return hash };
        let Some(state) = interpreter.thread_state(layout) else { return hash };
        (self.is_attached, self.is_checked) = (state.is_attached, !interpreter.trusts(&state));
        let walked = if self.is_checked {
            self.walk_with(Checked, layout, state.address, hash)
        } else {
            // SAFETY: the layout was verified, and the thread's frames exist during the hook (see `python`).
            self.walk_with(unsafe { Trusted::new() }, layout, state.address, hash)
        };
        self.is_broken = walked.is_none();
        walked.unwrap_or(hash ^ CODE_KEY)
    }

    /// Follows the chain of frames. Returns `None` if a pointer in it cannot be right.
    #[inline(always)]
    fn walk_with(&mut self, memory: impl Memory, layout: &Layout, state: u64, mut hash: u64) -> Option<u64> {
        let mut frame = memory.word(state + layout.state_frame)?;
        if let Some(offset) = layout.cframe_frame {
            frame = memory.word(frame + offset)?;
        }
        while frame != 0 && self.len < MAX_PYTHON_FRAMES {
            let previous = memory.word(frame + layout.frame_previous)?;
            let mut raw = RawFrame::default();
            match layout.chain {
                Chain::Objects => {
                    raw.code = memory.word(frame + layout.frame_code)?;
                    raw.instruction = memory.half(frame + layout.frame_instruction)?.into();
                    raw.is_entry = true;
                }
                Chain::Flagged => {
                    raw = structure(memory, layout, frame)?;
                    raw.is_entry = memory.byte(frame + layout.frame_is_entry)? != 0;
                    raw.is_generator = memory.byte(frame + layout.frame_owner)? == OWNED_BY_GENERATOR;
                }
                Chain::Delimited => match memory.byte(frame + layout.frame_owner)? {
                    OWNED_BY_EVALUATOR => {
                        hash = fold(hash ^ CODE_KEY, INSTRUCTION_KEY);
                        match self.frames[..self.len].last_mut() {
                            Some(last) if !last.is_entry => {
                                last.is_entry = true;
                                frame = previous;
                                continue;
                            }
                            // The evaluator has no frame at the moment.
                            _ => raw.is_entry = true,
                        }
                    }
                    owner => {
                        raw = structure(memory, layout, frame)?;
                        raw.is_generator = owner == OWNED_BY_GENERATOR;
                    }
                },
            }
            let flags = u64::from(raw.is_entry) << 63 | u64::from(raw.is_generator) << 62;
            hash = fold(hash ^ identity_of(raw.code), raw.instruction ^ flags ^ INSTRUCTION_KEY);
            self.frames[self.len] = raw;
            self.len += 1;
            frame = previous;
        }
        Some(hash)
    }

    /// Inserts the frames that [`Self::add_to`] has just read into a new stack, whose outermost address comes first. Returns
    /// whether there are any.
    #[cold]
    pub(crate) fn insert_into(&self, outermost_first: &mut Vec<u64>) -> bool {
        let Some(interpreter) = active() else { return false };
        let Some(layout) = interpreter.layout() else { return false };
        let words = match self.words(interpreter, layout) {
            Ok(words) if words.is_empty() => return false,
            Ok(words) => words,
            Err(reason) => {
                refuse(reason);
                return false;
            }
        };
        if self.is_checked && self.is_attached && words.len() == self.len {
            interpreter.set_verified();
        }
        outermost_first.reverse();
        interpreter.insert(outermost_first, &words, self.len == MAX_PYTHON_FRAMES);
        outermost_first.reverse();
        true
    }

    /// Returns the frames as words of a stack, or the reason why they cannot be right.
    fn words(&self, interpreter: &Interpreter, layout: &Layout) -> Result<Vec<FrameWord>, &'static str> {
        if self.is_broken && self.is_attached {
            return Err("the chain of its frames cannot be followed");
        }
        let mut words = Vec::with_capacity(self.len);
        for frame in &self.frames[..self.len] {
            match self.location_of(frame, interpreter, layout) {
                Some(location) => words.push(FrameWord { location, is_entry: frame.is_entry }),
                // A thread without the GIL may have lost its frames to the end of the interpreter.
                None if !self.is_attached => break,
                None => return Err("its frames do not refer to code objects"),
            }
        }
        Ok(words)
    }

    /// Returns the number of a frame's location, 0 if it has none, or `None` if it does not refer to a code object.
    fn location_of(&self, frame: &RawFrame, interpreter: &Interpreter, layout: &Layout) -> Option<u32> {
        if frame.code == 0 {
            return Some(0);
        }
        let identity = identity_of(frame.code);
        mark_used(frame.code);
        let flags = u64::from(frame.is_generator) << 62;
        let place = fold(identity, frame.instruction ^ flags ^ INSTRUCTION_KEY);
        let table = table::of_this_process();
        if let Some(number) = table.number_at(place) {
            return Some(number);
        }
        let RawFrame { code, instruction, is_generator, .. } = *frame;
        let found = if self.is_checked {
            locate(Checked, interpreter.code_type, layout, code, instruction, is_generator)?
        } else {
            // SAFETY: the frame was trusted when it was read, and the thread is still in the hook.
            let memory = unsafe { Trusted::new() };
            locate(memory, interpreter.code_type, layout, code, instruction, is_generator)?
        };
        Some(match found {
            Location::None => table.set_without_location(place),
            Location::Found(found) => table.add(place, &found),
        })
    }
}

/// Reads the code and the instruction of a frame that is not an object.
#[inline(always)]
fn structure(memory: impl Memory, layout: &Layout, frame: u64) -> Option<RawFrame> {
    let code = memory.word(frame + layout.frame_code)?;
    let instruction = memory.word(frame + layout.frame_instruction)?;
    Some(RawFrame { code, instruction, ..RawFrame::default() })
}
