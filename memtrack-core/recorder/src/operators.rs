//! Reports by programs about their operators: which tensors they read and create, and which tensors are parameters,
//! gradients and optimizer state. `memtrack_core::operators` documents the functions for programs; [`Side`] is for the
//! expansion of `#[track_memory]`.

use crate::events::operators::write;
use crate::{reentry, scope, switch};
use memtrack_file::operators::OperatorLine;
pub use memtrack_model::operators::{Dtype, ReportTensors, TensorInfo, TensorReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns whether operators are being recorded; if not, work that is done only for these reports can be skipped.
#[inline(always)]
pub fn is_recorded() -> bool {
    switch::is_on(switch::OPERATORS)
}

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

/// A running operator, created by [`operator`].
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

/// Begins an operator, like [`scope::operator`]; it ends when the returned value is dropped.
#[inline]
pub fn operator(name: &str) -> Operator {
    Operator { _scope: scope::operator(name) }
}

impl Operator {
    /// Reports that the operator reads the tensors of `value`.
    #[inline]
    pub fn input<T: ReportTensors<M> + ?Sized, M>(self, value: &T) -> Self {
        self.report(Side::inputs, value)
    }

    /// Reports that the operator reads and writes the tensors of `value`.
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

    /// Reports that the operator has created the tensors of `value`.
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

/// Returns a new number for a module or optimizer that registers tensors.
fn next_owner() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Declares the parameters of the model, or part of a model, named `owner`, each with its own name. Call it once, after
/// the parameters are created and before they are used.
///
/// ```
/// # use memtrack_core::operators::{self, ReportTensors};
/// # fn register<T: ReportTensors<M>, M>(weight: &T, bias: &T) {
/// operators::parameters("head", [("weight", weight), ("bias", bias)]);
/// # }
/// ```
pub fn parameters<N: AsRef<str>, T: ReportTensors<M>, M>(
    owner: &str,
    tensors: impl IntoIterator<Item = (N, T)>,
) {
    register(OperatorLine::parameter, owner, tensors);
}

/// Declares the buffers of the model, or part of a model, named `owner`: tensors that belong to the model and are not
/// trained, such as masks and running means.
pub fn buffers<N: AsRef<str>, T: ReportTensors<M>, M>(
    owner: &str,
    tensors: impl IntoIterator<Item = (N, T)>,
) {
    register(OperatorLine::buffer, owner, tensors);
}

fn register<N: AsRef<str>, T: ReportTensors<M>, M>(
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

/// Declares that `gradient` is the gradient of `parameter`. Call it after each backward pass, while the gradient exists.
pub fn gradient<P: ReportTensors<MP> + ?Sized, G: ReportTensors<MG> + ?Sized, MP, MG>(
    parameter: &P,
    gradient: &G,
) {
    if is_recorded() {
        write_pair(OperatorLine::gradient(), parameter, gradient);
    }
}

/// Declares that `state` is state that the optimizer named `optimizer` keeps for `parameter` under `name` (such as
/// `exp_avg`). Call it once, at the end of the step in which the state was created.
pub fn optimizer_state<P: ReportTensors<MP> + ?Sized, S: ReportTensors<MS> + ?Sized, MP, MS>(
    optimizer: &str,
    parameter: &P,
    name: &str,
    state: &S,
) {
    if is_recorded() {
        write_pair(OperatorLine::state(0, optimizer, name), parameter, state);
    }
}

/// Writes a line with the first tensor of each of two values, if both have one.
fn write_pair<A: ReportTensors<MA> + ?Sized, B: ReportTensors<MB> + ?Sized, MA, MB>(
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
