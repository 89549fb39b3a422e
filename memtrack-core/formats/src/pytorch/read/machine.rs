//! The pickle machine. It keeps values in eight-byte cells and folds dictionaries into tables as soon as they are
//! complete. Reading a file therefore takes less memory than the file's size. The instructions that make up events are
//! executed here, directly from the window; [`super::instructions`] executes the others.

use crate::pickle::PickleErrorKind;
use crate::pickle::opcode::{self as op, RareToken, Token};
use crate::pickle::source::Source;
use crate::pytorch::read::cell::{self, Cell};
use crate::pytorch::read::cost::CostMonitor;
use crate::pytorch::read::heap::Memo;
use crate::pytorch::read::stencils::FastPath;
use crate::pytorch::read::tables::TableBuilder;
use std::io::Read;

type Result<T> = std::result::Result<T, PickleErrorKind>;

/// The reason why [`Machine::run_burst`] stopped executing tokens.
enum BurstEnd {
    /// The next token is not completely in the window.
    Cut,
    /// The next token is a one-byte instruction that the fast path does not execute. It may be followed by lines.
    Plain(u8),
    /// The next token is this rare token, which the fast path does not execute. It has the given length.
    Rare(RareToken, usize),
}

/// The machine's state.
pub(crate) struct Machine<'a> {
    pub(crate) builder: TableBuilder,
    pub(crate) stack: Vec<Cell>,
    /// The height that the stack had at each mark.
    pub(crate) marks: Vec<usize>,
    /// The height that the stack had at the innermost mark. Values below it cannot be popped.
    pub(crate) floor: usize,
    pub(crate) memo: Memo,
    pub(crate) fast: FastPath,
    pub(crate) frame_end: u64,
    pub(crate) scratch: Vec<u8>,
    pub(crate) watch: CostMonitor<'a>,
    /// The offset of the current instruction.
    pub(crate) at: u64,
}

impl<'a> Machine<'a> {
    pub(crate) fn new(watch: CostMonitor<'a>, builder: TableBuilder) -> Self {
        Self {
            builder,
            stack: Vec::new(),
            marks: Vec::new(),
            floor: 0,
            memo: Memo::default(),
            fast: FastPath::default(),
            frame_end: 0,
            scratch: Vec::new(),
            watch,
            at: 0,
        }
    }

    /// Reads a pickle and returns its root.
    ///
    /// # Errors
    /// Fails with the error and the offset of the instruction that failed.
    pub(crate) fn run(
        &mut self,
        source: &mut Source<impl Read>,
    ) -> std::result::Result<Cell, (u64, PickleErrorKind)> {
        self.run_instructions(source).map_err(|kind| (self.at, kind))
    }

    fn run_instructions(&mut self, source: &mut Source<impl Read>) -> Result<Cell> {
        loop {
            let (offset, mut next) = (source.offset(), 0);
            let end = self.run_burst(source.unread(), &mut next);
            self.at = offset + next as u64;
            let end = end?;
            if self.watch.is_due(self.at) {
                self.check_cost()?;
            }
            let value = match end {
                BurstEnd::Cut => {
                    source.skip(next);
                    source.refill()?;
                    continue;
                }
                BurstEnd::Plain(op::STOP) => {
                    source.skip(next + 1);
                    let root = self.pop()?;
                    let cut = self.frame_end > source.offset();
                    return if cut { Err(PickleErrorKind::Truncated) } else { Ok(root) };
                }
                BurstEnd::Plain(opcode) => {
                    source.skip(next + 1);
                    self.execute_plain(source, opcode)?
                }
                BurstEnd::Rare(token, length) => {
                    source.skip(next + length);
                    self.execute_rare(source, token)?
                }
            };
            self.stack.extend(value);
        }
    }

    /// Executes as many tokens from `ready` as possible. Afterwards, `next` is the offset of the token that ended the
    /// burst or failed.
    ///
    /// # Errors
    /// Fails if a token cannot be executed.
    #[inline(always)]
    fn run_burst(&mut self, ready: &[u8], next: &mut usize) -> Result<BurstEnd> {
        // The position after the last mark, unless a container has been closed since then.
        let mut marked = None;
        let mut room = [0; op::MAX_TOKEN_BYTES];
        loop {
            let Some(head) = op::pad_head(&ready[*next..], &mut room) else {
                return Ok(BurstEnd::Cut);
            };
            let (token, length) = op::decode_token(head);
            let value = match token {
                Token::Get(slot) => self.recall(slot.into())?,
                Token::Int(number) => self.builder.heap.add_int(number),
                Token::Plain(op::NEWTRUE) => Cell::bool(true),
                Token::Plain(op::NEWFALSE) => Cell::bool(false),
                Token::Plain(op::EMPTY_DICT) => self.builder.heap.add_container(cell::DICT),
                Token::Plain(op::EMPTY_LIST) => self.builder.heap.add_container(cell::LIST),
                Token::Plain(op::TUPLE2) => self.build_tuple(2)?,
                Token::Plain(op::MEMOIZE) => {
                    let value = self.top()?;
                    self.memoize(value);
                    *next += 1;
                    continue;
                }
                Token::Plain(op::MARK) => {
                    match self.fold_contents(&ready[*next + 1..])? {
                        Some(length) => *next += 1 + length,
                        None => {
                            *next += 1;
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
                    if let (Some(marked), Some(&dict)) = (marked.take(), self.stack.last()) {
                        self.fast.learn_event(&self.builder, &self.memo, dict, &ready[marked..*next]);
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

    /// Fills the new dictionary or list on top of the stack with the contents at the start of `ready`, which holds the
    /// bytes after the mark. Returns the number of bytes consumed, or `None` if the fast path does not read them.
    #[inline(always)]
    fn fold_contents(&mut self, ready: &[u8]) -> Result<Option<usize>> {
        let Ok(new) = self.top() else { return Ok(None) };
        let Self { fast, builder, memo, .. } = self;
        match new.tag() {
            cell::DICT if builder.heap.containers[new.row()] == Cell::UNSET => {
                fast.fold_event(builder, memo, new, ready)
            }
            cell::LIST if builder.heap.containers[new.row()] == Cell::UNSET => {
                Ok(fast.fold_stack(builder, memo, new, ready))
            }
            _ => Ok(None),
        }
    }

    /// Checks the cost of reading so far. `self.at` is the current position.
    #[cold]
    fn check_cost(&mut self) -> Result<()> {
        let used = self.builder.used_bytes()
            + self.memo.used_bytes()
            + self.fast.used_bytes()
            + 8 * (self.stack.capacity() + self.marks.capacity()) as u64;
        self.watch.check(self.at, used)
    }

    /// Returns the error to report when there is no value to pop.
    #[cold]
    fn no_value_error(&self) -> PickleErrorKind {
        if self.marks.is_empty() { PickleErrorKind::StackUnderflow } else { PickleErrorKind::UnexpectedMark }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Result<Cell> {
        if self.stack.len() <= self.floor {
            return Err(self.no_value_error());
        }
        self.stack.pop().ok_or(PickleErrorKind::StackUnderflow)
    }

    #[inline]
    pub(crate) fn top(&self) -> Result<Cell> {
        match self.stack.last() {
            Some(&top) if self.stack.len() > self.floor => Ok(top),
            _ => Err(self.no_value_error()),
        }
    }

    #[inline]
    pub(crate) fn mark(&mut self) {
        self.marks.push(self.stack.len());
        self.floor = self.stack.len();
    }

    /// Removes the innermost mark and returns the index of the first value above it.
    #[inline]
    pub(crate) fn pop_mark(&mut self) -> Result<usize> {
        let start = self.marks.pop().ok_or(PickleErrorKind::NoMark)?;
        self.floor = self.marks.last().copied().unwrap_or(0);
        Ok(start)
    }

    /// Returns the value below `start`, which must be a container with the tag `tag`.
    #[inline]
    fn container_below(&self, start: usize, tag: u8, name: &'static str) -> Result<Cell> {
        match start.checked_sub(1) {
            Some(index) if index >= self.floor && self.stack[index].tag() == tag => Ok(self.stack[index]),
            Some(index) if index >= self.floor => Err(PickleErrorKind::WrongType(name)),
            _ => Err(self.no_value_error()),
        }
    }

    #[inline]
    pub(crate) fn recall(&self, slot: u64) -> Result<Cell> {
        let value = usize::try_from(slot).ok().and_then(|slot| self.memo.get(slot));
        value.ok_or(PickleErrorKind::UnsetMemo(slot))
    }

    /// Stores a value in the next memo slot.
    #[inline]
    pub(crate) fn memoize(&mut self, value: Cell) {
        if self.memo.append(value) {
            self.fast.clear();
        }
    }

    /// Stores the top value in a memo slot given by the file. A writer needs at least two bytes to fill a slot, so an
    /// index larger than the offset is refused.
    pub(crate) fn memoize_at(&mut self, slot: u64) -> Result<()> {
        let value = self.top()?;
        match usize::try_from(slot) {
            Ok(index) if slot <= self.at => {
                if self.memo.set(index, value) {
                    self.fast.clear();
                }
                Ok(())
            }
            _ => Err(PickleErrorKind::MemoIndex(slot)),
        }
    }

    #[inline]
    pub(crate) fn build_tuple(&mut self, count: usize) -> Result<Cell> {
        match self.stack.len().checked_sub(count) {
            Some(start) if start >= self.floor => {
                let tuple = self.builder.heap.build_tuple(&self.stack[start..]);
                self.stack.truncate(start);
                Ok(tuple)
            }
            _ => Err(self.no_value_error()),
        }
    }

    /// Adds the keys and values starting at `start` to the dictionary below them.
    #[inline]
    pub(crate) fn set_items(&mut self, start: usize) -> Result<()> {
        let dict = self.container_below(start, cell::DICT, "a dictionary")?;
        let items = &self.stack[start..];
        check_pairs(items)?;
        let fresh = self.builder.heap.containers[dict.row()] == Cell::UNSET;
        let folded = if fresh { self.builder.fold_dictionary(items)? } else { None };
        match folded {
            // A value inside the dictionary refers to the dictionary, which was still empty when the value was converted.
            Some(_) if self.builder.heap.containers[dict.row()] != Cell::UNSET => {
                return Err(PickleErrorKind::Cyclic);
            }
            Some(folded) => self.builder.heap.containers[dict.row()] = folded,
            None => self.builder.heap.extend(dict, items)?,
        }
        self.stack.truncate(start);
        Ok(())
    }

    /// Appends the values starting at `start` to the list or set below them.
    #[inline]
    pub(crate) fn append(&mut self, start: usize, tag: u8) -> Result<()> {
        let name = if tag == cell::LIST { "a list" } else { "a set" };
        let container = self.container_below(start, tag, name)?;
        if self.builder.heap.containers[container.row()].is_loose_stack() {
            self.builder.unfold(container)?;
        }
        self.builder.heap.extend(container, &self.stack[start..])?;
        self.stack.truncate(start);
        Ok(())
    }
}

/// Checks that keys and values alternate and that Python can hash the keys.
#[inline]
pub(crate) fn check_pairs(items: &[Cell]) -> Result<()> {
    let (pairs, rest) = items.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(PickleErrorKind::OddItems);
    }
    if pairs.iter().any(|pair| matches!(pair[0].tag(), cell::LIST | cell::DICT | cell::SET)) {
        return Err(PickleErrorKind::UnhashableKey);
    }
    Ok(())
}
