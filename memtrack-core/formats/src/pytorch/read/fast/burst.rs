//! The fast path of the [`Machine`]: the few instructions that events are made of, as long as they lie whole in the
//! window. It stops before anything else, and before whatever would fail, so that the machine itself does that.

use crate::pickle::PickleErrorKind;
use crate::pickle::opcode as op;
use crate::pytorch::read::fast::runs::{self, Run};
use crate::pytorch::read::machine::cell::{self, Cell};
use crate::pytorch::read::machine::core::Machine;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::FrameId;
use std::io::Read;

/// No instruction here is longer than this, in bytes.
const LONGEST: usize = 10;

impl<R: Read> Machine<'_, R> {
    /// Carries out what it can.
    ///
    /// # Errors
    /// When a dictionary or list cannot be filled; `self.at` is where.
    pub(crate) fn burst(&mut self) -> Result<(), PickleErrorKind> {
        let offset = self.source.offset();
        let (window, unread) = self.source.lend();
        let ready = &window[unread];
        let mut next = 0;
        // Behind the mark that was set last, as long as nothing ended there.
        let mut marked = None;
        let done = loop {
            let Some(head) = ready[next..].first_chunk::<LONGEST>() else { break Ok(()) };
            let length;
            let value = match head[0] {
                op::BINGET => {
                    let Some(value) = self.memo.get(head[1].into()) else { break Ok(()) };
                    length = 2;
                    value
                }
                op::LONG_BINGET => {
                    let slot = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
                    let Some(value) = self.memo.get(slot as usize) else { break Ok(()) };
                    length = 5;
                    value
                }
                op::LONG1 if head[1] <= 8 => {
                    let bytes = u32::from(head[1]);
                    length = 2 + bytes as usize;
                    let wide = i64::from_le_bytes([
                        head[2], head[3], head[4], head[5], head[6], head[7], head[8], head[9],
                    ]);
                    // What follows the integer is shifted out, and the sign in.
                    let shift = 64 - 8 * bytes;
                    self.heap.int(if bytes == 0 { 0 } else { wide << shift >> shift })
                }
                op::BININT1 => {
                    length = 2;
                    self.heap.int(head[1].into())
                }
                op::BININT2 => {
                    length = 3;
                    self.heap.int(u16::from_le_bytes([head[1], head[2]]).into())
                }
                op::BININT => {
                    length = 5;
                    self.heap.int(i32::from_le_bytes([head[1], head[2], head[3], head[4]]).into())
                }
                op::EMPTY_DICT | op::EMPTY_LIST => {
                    length = 1;
                    self.heap.container(if head[0] == op::EMPTY_DICT { cell::DICT } else { cell::LIST })
                }
                op::MEMOIZE => {
                    let Ok(value) = self.top() else { break Ok(()) };
                    self.memoize(value);
                    next += 1;
                    continue;
                }
                op::TUPLE2 => {
                    let Ok(pair) = self.tuple(2) else { break Ok(()) };
                    length = 1;
                    pair
                }
                op::MARK => {
                    next += 1;
                    let inside = &ready[next..];
                    match self.event_in(inside) {
                        Ok(Some(event)) => {
                            next += event;
                            continue;
                        }
                        Ok(None) => {}
                        Err(kind) => break Err(kind),
                    }
                    match self.stack_in(inside) {
                        Some(run) => next += run,
                        None => {
                            self.mark();
                            marked = Some(next);
                        }
                    }
                    continue;
                }
                op::SETITEMS => match self.pop_mark().and_then(|start| self.set_items(start)) {
                    Ok(()) => {
                        if let Some(marked) = marked.take() {
                            self.learn_event(&ready[marked..next]);
                        }
                        next += 1;
                        continue;
                    }
                    Err(kind) => break Err(kind),
                },
                _ => break Ok(()),
            };
            self.stack.push(value);
            next += length;
        };
        if done.is_err() {
            self.at = offset + next as u64;
        }
        self.source.take_back(window, next);
        done
    }

    /// Makes the list on top of the stack, which must be new, the stack of frames that `ready` begins with. The length
    /// of what that took, or `None` when there is no such list or run.
    #[inline]
    fn stack_in(&mut self, ready: &[u8]) -> Option<usize> {
        let list = self.top().ok().filter(|list| list.tag() == cell::LIST)?;
        if self.heap.containers[list.row()] != Cell::UNSET {
            return None;
        }
        let run = self.runs.meet(ready)?;
        let stack = self.loose_stack(run, ready)?;
        self.heap.containers[list.row()] = Cell::loose_stack(stack);
        Some(run.length + 1)
    }

    /// The loose stack of the run that `ready` begins with; `None` when not all of it are frames.
    #[inline]
    pub(crate) fn loose_stack(&mut self, run: Run, ready: &[u8]) -> Option<StackId> {
        run.stack.or_else(|| self.spell_out(&ready[..run.length]))
    }

    /// The same for a run that was not met before.
    fn spell_out(&mut self, run: &[u8]) -> Option<StackId> {
        if !self.runs.has_room(run) {
            return None;
        }
        let frame = |slot| {
            let dict = self.memo.get(slot).filter(|value| value.tag() == cell::DICT)?;
            let folded = self.heap.containers[dict.row()];
            (folded.tag() == cell::FRAME).then(|| FrameId(folded.payload() as u32))
        };
        let frames: Vec<FrameId> = runs::slots(run).map(frame).collect::<Option<_>>()?;
        let stack = self.folder.loose.intern(&frames);
        self.runs.keep(run, stack);
        Some(stack)
    }
}
