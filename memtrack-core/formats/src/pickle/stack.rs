//! The machine's working memory, which consists of the stack with its marks, and the memo. As in Python, a value below
//! the innermost mark cannot be popped, so that a damaged file fails at the point of damage.

use super::error::PickleErrorKind;
use super::value::Value;

/// A stack of values and marks.
#[derive(Debug, Default)]
pub(super) struct Stack {
    values: Vec<Value>,
    /// The height that the stack had at each mark.
    marks: Vec<usize>,
}

impl Stack {
    pub(super) fn push(&mut self, value: Value) {
        self.values.push(value);
    }

    pub(super) fn mark(&mut self) {
        self.marks.push(self.values.len());
    }

    /// Returns the number of bytes in use.
    pub(super) fn used_bytes(&self) -> u64 {
        (self.values.len() * size_of::<Value>() + self.marks.len() * size_of::<usize>()) as u64
    }

    /// Returns the lowest index that may be popped.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    /// Returns the error to report when there is no value to pop.
    fn no_value_error(&self) -> PickleErrorKind {
        if self.marks.is_empty() { PickleErrorKind::StackUnderflow } else { PickleErrorKind::UnexpectedMark }
    }

    /// Pops the top value.
    pub(super) fn pop(&mut self) -> Result<Value, PickleErrorKind> {
        if self.values.len() <= self.floor() {
            return Err(self.no_value_error());
        }
        self.values.pop().ok_or(PickleErrorKind::StackUnderflow)
    }

    /// Returns the top value without removing it.
    pub(super) fn top(&self) -> Result<Value, PickleErrorKind> {
        if self.values.len() <= self.floor() {
            return Err(self.no_value_error());
        }
        self.values.last().copied().ok_or(PickleErrorKind::StackUnderflow)
    }

    /// Pops the top value, or pops the mark if there is one on top.
    pub(super) fn pop_value_or_mark(&mut self) -> Result<(), PickleErrorKind> {
        if self.marks.last() == Some(&self.values.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(|_| ())
    }

    /// Returns the top `count` values without removing them.
    pub(super) fn last_values(&self, count: usize) -> Result<&[Value], PickleErrorKind> {
        match self.values.len().checked_sub(count) {
            Some(start) if start >= self.floor() => Ok(&self.values[start..]),
            _ => Err(self.no_value_error()),
        }
    }

    /// Drops the top `count` values.
    pub(super) fn drop_last(&mut self, count: usize) {
        self.values.truncate(self.values.len().saturating_sub(count));
    }

    /// Removes the innermost mark and returns the index of the first value above it. The values remain until
    /// [`Self::truncate`] is called.
    pub(super) fn pop_mark(&mut self) -> Result<usize, PickleErrorKind> {
        self.marks.pop().ok_or(PickleErrorKind::NoMark)
    }

    /// Returns the values starting at `start`.
    pub(super) fn values_from(&self, start: usize) -> &[Value] {
        &self.values[start..]
    }

    /// Returns the value below `start`, which is an index returned by [`Self::pop_mark`].
    pub(super) fn value_below(&self, start: usize) -> Result<Value, PickleErrorKind> {
        match start.checked_sub(1) {
            Some(index) if index >= self.floor() => Ok(self.values[index]),
            _ => Err(self.no_value_error()),
        }
    }

    /// Drops the values starting at `start`.
    pub(super) fn truncate(&mut self, start: usize) {
        self.values.truncate(start);
    }
}

/// The values that a pickle refers to by number.
#[derive(Debug, Default)]
pub(super) struct Memo {
    slots: Vec<Option<Value>>,
    /// The number of slots that have been set. This is also the next slot that MEMOIZE fills.
    count: usize,
}

impl Memo {
    /// Returns the number of bytes in use.
    pub(super) fn used_bytes(&self) -> u64 {
        (self.slots.len() * size_of::<Option<Value>>()) as u64
    }

    /// Sets the next slot.
    pub(super) fn append(&mut self, value: Value) {
        let index = self.count;
        self.set(index, value);
    }

    /// Sets slot `index`. A writer needs at least two bytes to fill a slot. An index larger than `offset`, which is the
    /// number of bytes read, is therefore refused, so that no table of that size is allocated.
    pub(super) fn put(&mut self, index: u64, value: Value, offset: u64) -> Result<(), PickleErrorKind> {
        match usize::try_from(index) {
            Ok(slot) if index <= offset => {
                self.set(slot, value);
                Ok(())
            }
            _ => Err(PickleErrorKind::MemoIndex(index)),
        }
    }

    fn set(&mut self, index: usize, value: Value) {
        if index >= self.slots.len() {
            self.slots.resize(index + 1, None);
        }
        if self.slots[index].replace(value).is_none() {
            self.count += 1;
        }
    }

    /// Returns the value in slot `index`.
    pub(super) fn get(&self, index: u64) -> Result<Value, PickleErrorKind> {
        let slot = usize::try_from(index).ok().and_then(|index| self.slots.get(index).copied().flatten());
        slot.ok_or(PickleErrorKind::UnsetMemo(index))
    }
}
