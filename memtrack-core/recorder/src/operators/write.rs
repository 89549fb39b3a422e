//! Writes the reports on operators to the log of operators.

use super::is_recorded;
use crate::events::operators::write;
use crate::reentry;
use memtrack_file::operators::OperatorLine;
use memtrack_model::operators::{ReportTensors, TensorInfo, TensorReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Calls `each` with the tensors of `value`, with the thread marked as inside memtrack. A panic of `value` ends the
/// report early.
fn read<T: ReportTensors<M> + ?Sized, M>(value: &T, each: &mut dyn FnMut(&TensorInfo<'_>, bool)) {
    let _inside = reentry::enter();
    // A report that panicked is not used afterwards.
    let _ = catch_unwind(AssertUnwindSafe(|| value.report(&mut TensorReader::new(each))));
}

/// Collects the tensors of one side of an operator: its inputs, or its outputs.
pub struct Side {
    begin: fn() -> OperatorLine,
    line: OperatorLine,
    has_tensors: bool,
}

impl Side {
    /// Collects the inputs of the thread's current operator.
    pub fn inputs() -> Self {
        Self::of(OperatorLine::inputs)
    }

    /// Collects the outputs of the thread's current operator.
    pub fn outputs() -> Self {
        Self::of(OperatorLine::outputs)
    }

    fn of(begin: fn() -> OperatorLine) -> Self {
        Self { begin, line: begin(), has_tensors: false }
    }

    /// Adds the tensors of a value.
    pub fn add<T: ReportTensors<M> + ?Sized, M>(&mut self, value: &T) {
        read(value, &mut |tensor, written| {
            let fits = self.line.with(tensor, written);
            if !fits {
                // The list continues in the next line. Write this line outside of memtrack, because nothing is recorded
                // inside.
                reentry::outside(|| self.finish());
                self.line.with(tensor, written);
            }
            self.has_tensors = true;
        });
    }

    /// Writes the collected tensors.
    pub fn finish(&mut self) {
        if std::mem::take(&mut self.has_tensors) {
            write(&self.line);
            self.line = (self.begin)();
        }
    }
}

/// Writes one side of an operator, if operators are recorded.
pub(super) fn report<T: ReportTensors<M> + ?Sized, M>(side: fn() -> Side, value: &T) {
    if is_recorded() {
        let mut side = side();
        side.add(value);
        side.finish();
    }
}

/// Returns a new number for a module or optimizer that registers tensors.
fn next_owner() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Writes the tensors that belong to `owner`, if operators are recorded.
pub(super) fn register<N: AsRef<str>, T: ReportTensors<M>, M>(
    begin: fn(u64, &str, &str) -> OperatorLine,
    owner: &str,
    tensors: impl IntoIterator<Item = (N, T)>,
) {
    if !is_recorded() {
        return;
    }
    let number = next_owner();
    for (name, value) in tensors {
        read(&value, &mut |tensor, _| {
            let mut line = begin(number, owner, name.as_ref());
            line.with(tensor, false);
            reentry::outside(|| write(&line));
        });
    }
}

/// Writes a line with the first tensor of each of two values, if both have one.
pub(super) fn write_pair<A: ReportTensors<MA> + ?Sized, B: ReportTensors<MB> + ?Sized, MA, MB>(
    mut line: OperatorLine,
    first: &A,
    second: &B,
) {
    let mut found = 0;
    let mut add_first = |is_added: &mut bool, line: &mut OperatorLine, tensor: &TensorInfo<'_>| {
        if !std::mem::replace(is_added, true) {
            found += u32::from(line.with(tensor, false));
        }
    };
    let (mut first_added, mut second_added) = (false, false);
    read(first, &mut |tensor, _| add_first(&mut first_added, &mut line, tensor));
    read(second, &mut |tensor, _| add_first(&mut second_added, &mut line, tensor));
    if found == 2 {
        write(&line);
    }
}
