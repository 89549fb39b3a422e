//! The fast path of the [`Machine`], which executes the tokens that make up events directly from the window. An event
//! that is encoded like an earlier one is consumed as a whole, and so is a list of frames.

use crate::pickle::PickleErrorKind;
use crate::pickle::decode::{self, RareToken, Token};
use crate::pickle::opcode as op;
use crate::pytorch::read::fast::runs::{self, Run};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::core::Machine;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::FrameId;

/// The reason why [`Machine::run_burst`] stopped executing tokens.
pub(crate) enum BurstEnd {
    /// The next token is not completely in the window.
    Cut,
    /// The next token is a one-byte instruction that the fast path does not execute. It may be followed by lines.
    Plain(u8),
    /// The next token is this rare token, which the fast path does not execute. It has the given length.
    Rare(RareToken, usize),
}

impl Machine<'_> {
    /// Executes as many tokens from `ready` as possible. Afterwards, `next` is the offset of the token that ended the
    /// burst or failed.
    ///
    /// # Errors
    /// Fails if a token cannot be executed.
    #[inline(always)]
    pub(crate) fn run_burst(&mut self, ready: &[u8], next: &mut usize) -> Result<BurstEnd, PickleErrorKind> {
        // The position after the last mark, unless a container has been closed since then.
        let mut marked = None;
        let mut room = [0; decode::MAX_TOKEN_BYTES];
        loop {
            let Some(head) = decode::pad_head(&ready[*next..], &mut room) else {
                return Ok(BurstEnd::Cut);
            };
            let (token, length) = decode::decode_token(head);
            let value = match token {
                Token::Get(slot) => self.recall(slot.into())?,
                Token::Int(number) => self.heap.add_int(number),
                Token::Plain(op::NEWTRUE) => Cell::bool(true),
                Token::Plain(op::NEWFALSE) => Cell::bool(false),
                Token::Plain(op::EMPTY_DICT) => self.heap.add_container(cell::DICT),
                Token::Plain(op::EMPTY_LIST) => self.heap.add_container(cell::LIST),
                Token::Plain(op::TUPLE2) => self.build_tuple(2)?,
                Token::Plain(op::MEMOIZE) => {
                    let value = self.top()?;
                    self.memoize(value);
                    *next += 1;
                    continue;
                }
                Token::Plain(op::MARK) => {
                    let inside = &ready[*next + 1..];
                    if let Some(event) = self.fold_event(inside)? {
                        *next += 1 + event;
                        continue;
                    }
                    *next += 1;
                    match self.fold_stack(inside) {
                        Some(run) => *next += run,
                        None => {
                            self.mark();
                            marked = Some(*next);
                        }
                    }
                    continue;
                }
                Token::Plain(op::SETITEMS) => {
                    let start = self.pop_mark()?;
                    self.set_items(start)?;
                    *next += 1;
                    if let Some(marked) = marked.take() {
                        self.learn_event(&ready[marked..*next]);
                    }
                    continue;
                }
                Token::Plain(opcode) => return Ok(BurstEnd::Plain(opcode)),
                Token::Rare(token) => return Ok(BurstEnd::Rare(token, length)),
            };
            self.stack.push(value);
            *next += length;
        }
    }

    /// Turns the new list on top of the machine's stack into the call stack whose frames are at the start of `ready`.
    /// Returns the number of bytes consumed, or `None` if there is no new list or no run of frames.
    #[inline]
    fn fold_stack(&mut self, ready: &[u8]) -> Option<usize> {
        let list = self.top().ok().filter(|list| list.tag() == cell::LIST)?;
        if self.heap.containers[list.row()] != Cell::UNSET {
            return None;
        }
        let run = self.runs.find(ready)?;
        let stack = self.find_loose_stack(run, ready)?;
        self.heap.containers[list.row()] = Cell::loose_stack(stack);
        Some(run.length + 1)
    }

    /// Returns the loose stack (a list of frames that is not used yet) of the run at the start of `ready`, or `None` if
    /// not all of its values are frames.
    #[inline]
    pub(crate) fn find_loose_stack(&mut self, run: Run, ready: &[u8]) -> Option<StackId> {
        run.stack.or_else(|| self.intern_run(&ready[..run.length]))
    }

    /// Returns the loose stack of a run that is not in [`Runs`](super::runs::Runs) yet, and stores the run.
    fn intern_run(&mut self, run: &[u8]) -> Option<StackId> {
        if !self.runs.has_room(run) {
            return None;
        }
        let frame = |slot| {
            let dict = self.memo.get(slot).filter(|value| value.tag() == cell::DICT)?;
            let folded = self.heap.containers[dict.row()];
            (folded.tag() == cell::FRAME).then(|| FrameId(folded.payload() as u32))
        };
        let frames: Vec<FrameId> = runs::memo_slots(run).map(frame).collect::<Option<_>>()?;
        let stack = self.builder.loose.intern(&frames);
        self.runs.insert(run, stack);
        Some(stack)
    }
}
