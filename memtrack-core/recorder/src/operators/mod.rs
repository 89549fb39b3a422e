//! Reports by programs about their operators: which tensors they read and create, and which tensors are parameters,
//! gradients and optimizer state. `memtrack_core::operators` documents the functions for programs; [`Side`] is for the
//! expansion of `#[track_memory]`. Without the feature `record` the functions do nothing.

#[cfg(feature = "record")]
mod write;

use crate::{scope, switch};
#[cfg(feature = "record")]
use memtrack_file::operators::OperatorLine;
pub use memtrack_model::operators::{Dtype, ReportTensors, TensorInfo, TensorReader};
#[cfg(feature = "record")]
pub use write::Side;

/// Returns whether operators are being recorded; if not, work that is done only for these reports can be skipped.
#[inline(always)]
pub fn is_recorded() -> bool {
    switch::is_on(switch::OPERATORS)
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
        #[cfg(feature = "record")]
        write::report(Side::inputs, value);
        self
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
        #[cfg(feature = "record")]
        write::report(Side::inputs, &Written(value));
        self
    }

    /// Reports that the operator has created the tensors of `value`.
    #[inline]
    pub fn output<T: ReportTensors<M> + ?Sized, M>(&self, value: &T) {
        #[cfg(feature = "record")]
        write::report(Side::outputs, value);
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Operator").finish_non_exhaustive()
    }
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
    #[cfg(feature = "record")]
    write::register(OperatorLine::parameter, owner, tensors);
}

/// Declares the buffers of the model, or part of a model, named `owner`: tensors that belong to the model and are not
/// trained, such as masks and running means.
pub fn buffers<N: AsRef<str>, T: ReportTensors<M>, M>(
    owner: &str,
    tensors: impl IntoIterator<Item = (N, T)>,
) {
    #[cfg(feature = "record")]
    write::register(OperatorLine::buffer, owner, tensors);
}

/// Declares that `gradient` is the gradient of `parameter`. Call it after each backward pass, while the gradient exists.
pub fn gradient<P: ReportTensors<MP> + ?Sized, G: ReportTensors<MG> + ?Sized, MP, MG>(
    parameter: &P,
    gradient: &G,
) {
    #[cfg(feature = "record")]
    if is_recorded() {
        write::write_pair(OperatorLine::gradient(), parameter, gradient);
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
    #[cfg(feature = "record")]
    if is_recorded() {
        write::write_pair(OperatorLine::state(0, optimizer, name), parameter, state);
    }
}
