//! Reports by programs about their operators: which tensors they read and make, and which of these are parameters,
//! gradients and optimizer state. `memtrack_core::operators` documents the functions for programs; [`Side`] is for
//! the attribute's expansion.

use crate::events::operators::write;
use crate::{reentry, scope, switch};
use memtrack_file::operators::OperatorLine;
pub use memtrack_model::operators::{Dtype, ReportTensors, TensorInfo, TensorReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns whether operators are recorded now: work that is done only for such reports can be skipped otherwise.
#[inline(always)]
pub fn is_recorded() -> bool {
    switch::is_on(switch::OPERATORS)
}

/// Calls `each` with the tensors of `value`, inside memtrack. A panic ends the reading.
fn read<T: ReportTensors<M> + ?Sized, M>(value: &T, each: &mut dyn FnMut(&TensorInfo<'_>, bool)) {
    let _inside = reentry::enter();
    // The interrupted report is not used afterwards.
    let _ = catch_unwind(AssertUnwindSafe(|| value.report(&mut TensorReader::new(each))));
}

/// Collects the tensors of one side of an operator: its inputs, or its outputs.
pub struct Side {
    begin: fn() -> OperatorLine,
    line: OperatorLine,
    any: bool,
}

impl Side {
    /// Collects the inputs of the thread's current operator.
    pub fn inputs() -> Self {
        Self::of(OperatorLine::inputs)
    }

    /// Collects its outputs.
    pub fn outputs() -> Self {
        Self::of(OperatorLine::outputs)
    }

    fn of(begin: fn() -> OperatorLine) -> Self {
        Self { begin, line: begin(), any: false }
    }

    /// Adds the tensors of a value.
    pub fn add<T: ReportTensors<M> + ?Sized, M>(&mut self, value: &T) {
        read(value, &mut |tensor, written| {
            let fits = self.line.with(tensor, written);
            if !fits {
                // A list that long continues in the next line. Inside memtrack nothing is written.
                reentry::outside(|| self.finish());
                self.line.with(tensor, written);
            }
            self.any = true;
        });
    }

    /// Writes the collected tensors.
    pub fn finish(&mut self) {
        if std::mem::take(&mut self.any) {
            write(&self.line);
            self.line = (self.begin)();
        }
    }
}

/// A running operator; made by [`operator`].
///
/// ```
/// # use memtrack_core::operators::{self, Dtype, ReportTensors, TensorInfo};
/// fn matmul<T: ReportTensors<M>, M>(left: &T, right: &T, multiply: impl Fn(&T, &T) -> T) -> T {
///     let operator = operators::operator("matmul").input(left).input(right);
///     let product = multiply(left, right);
///     operator.output(&product);
///     product
/// }
/// ```
#[must_use = "the operator ends when this is dropped: bind it to a name"]
pub struct Operator {
    _scope: scope::Guard,
}

/// Begins an operator, as [`scope::operator`] does; it ends when the result is dropped.
#[inline]
pub fn operator(name: &str) -> Operator {
    Operator { _scope: scope::operator(name) }
}

impl Operator {
    /// Reports that it reads the tensors of `value`.
    #[inline]
    pub fn input<T: ReportTensors<M> + ?Sized, M>(self, value: &T) -> Self {
        self.report(Side::inputs, value)
    }

    /// Reports that it reads and writes the tensors of `value`.
    #[inline]
    pub fn written<T: ReportTensors<M> + ?Sized, M>(self, value: &T) -> Self {
        /// A value whose tensors are written.
        struct Written<'a, T: ?Sized>(&'a T);
        impl<T: ReportTensors<M> + ?Sized, M> ReportTensors<M> for Written<'_, T> {
            fn report(&self, to: &mut TensorReader<'_>) {
                to.written(self.0);
            }
        }
        self.report(Side::inputs, &Written(value))
    }

    /// Reports that it has made the tensors of `value`.
    #[inline]
    pub fn output<T: ReportTensors<M> + ?Sized, M>(&self, value: &T) {
        if is_recorded() {
            let mut side = Side::outputs();
            side.add(value);
            side.finish();
        }
    }

    fn report<T: ReportTensors<M> + ?Sized, M>(self, side: fn() -> Side, value: &T) -> Self {
        if is_recorded() {
            let mut side = side();
            side.add(value);
            side.finish();
        }
        self
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
}

/// Returns a number for a module or optimizer that registers something.
fn next_owner() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Declares the parameters of the model, or part of a model, named `of`, each with its own name. Call it when they exist,
/// before they are used; once is enough.
///
/// ```
/// # use memtrack_core::operators::{self, ReportTensors};
/// # fn register<T: ReportTensors<M>, M>(weight: &T, bias: &T) {
/// operators::parameters("head", [("weight", weight), ("bias", bias)]);
/// # }
/// ```
pub fn parameters<N: AsRef<str>, T: ReportTensors<M>, M>(of: &str, all: impl IntoIterator<Item = (N, T)>) {
    registered(OperatorLine::parameter, of, all);
}

/// Declares the buffers of the model, or part of a model, named `of`: tensors that belong to it and are not trained,
/// such as masks and running means.
pub fn buffers<N: AsRef<str>, T: ReportTensors<M>, M>(of: &str, all: impl IntoIterator<Item = (N, T)>) {
    registered(OperatorLine::buffer, of, all);
}

fn registered<N: AsRef<str>, T: ReportTensors<M>, M>(
    begin: fn(u64, &str, &str) -> OperatorLine,
    of: &str,
    all: impl IntoIterator<Item = (N, T)>,
) {
    if !is_recorded() {
        return;
    }
    let owner = next_owner();
    for (name, value) in all {
        read(&value, &mut |tensor, _| {
            let mut line = begin(owner, of, name.as_ref());
            line.with(tensor, false);
            reentry::outside(|| write(&line));
        });
    }
}

/// Declares that `gradient` is the gradient of `parameter`. Call it after each backward pass, while the gradient exists.
pub fn gradient<P: ReportTensors<MP> + ?Sized, G: ReportTensors<MG> + ?Sized, MP, MG>(
    parameter: &P,
    gradient: &G,
) {
    if is_recorded() {
        pair(OperatorLine::gradient(), parameter, gradient);
    }
}

/// Declares that `state` belongs to the optimizer named `of` and `parameter`, with the optimizer's name for it
/// (`exp_avg`). Call it at the end of a step in which the state was made; once is enough.
pub fn optimizer_state<P: ReportTensors<MP> + ?Sized, S: ReportTensors<MS> + ?Sized, MP, MS>(
    of: &str,
    parameter: &P,
    name: &str,
    state: &S,
) {
    if is_recorded() {
        pair(OperatorLine::state(0, of, name), parameter, state);
    }
}

/// Writes a line with one tensor of each.
fn pair<A: ReportTensors<MA> + ?Sized, B: ReportTensors<MB> + ?Sized, MA, MB>(
    mut line: OperatorLine,
    first: &A,
    second: &B,
) {
    let mut found = 0;
    let mut with_one = |is_there: &mut bool, line: &mut OperatorLine, tensor: &TensorInfo<'_>| {
        if !std::mem::replace(is_there, true) {
            found += u32::from(line.with(tensor, false));
        }
    };
    let (mut one, mut other) = (false, false);
    read(first, &mut |tensor, _| with_one(&mut one, &mut line, tensor));
    read(second, &mut |tensor, _| with_one(&mut other, &mut line, tensor));
    if found == 2 {
        write(&line);
    }
}
