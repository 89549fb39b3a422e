//! The functions that report operators, in builds without the recorder.

use super::scope;
pub use memtrack_model::operators::{Dtype, ReportTensors, TensorInfo, TensorReader};

/// Returns whether operators are being recorded, which they never are without the recorder.
#[inline(always)]
pub const fn is_recorded() -> bool {
    false
}

/// A running operator. It is empty without the recorder.
#[derive(Debug)]
#[must_use = "the operator ends when this is dropped: bind it to a name"]
pub struct Operator {
    _scope: scope::Guard,
}

/// Starts an operator. Does nothing without the recorder.
#[inline(always)]
pub fn operator(name: &str) -> Operator {
    Operator { _scope: scope::operator(name) }
}

impl Operator {
    /// Records that the operator reads the tensors of `value`. Does nothing without the recorder.
    #[inline(always)]
    pub fn input<T: ReportTensors<M> + ?Sized, M>(self, _value: &T) -> Self {
        self
    }

    /// Records that the operator reads and writes the tensors of `value`. Does nothing without the recorder.
    #[inline(always)]
    pub fn written<T: ReportTensors<M> + ?Sized, M>(self, _value: &T) -> Self {
        self
    }

    /// Records that the operator created the tensors of `value`. Does nothing without the recorder.
    #[inline(always)]
    pub fn output<T: ReportTensors<M> + ?Sized, M>(&self, _value: &T) {}
}

/// Declares parameters. Without the recorder, this does nothing and does not iterate over `all`.
#[inline(always)]
pub fn parameters<N: AsRef<str>, T: ReportTensors<M>, M>(_of: &str, _all: impl IntoIterator<Item = (N, T)>) {}

/// Declares buffers. Without the recorder, this does nothing and does not iterate over `all`.
#[inline(always)]
pub fn buffers<N: AsRef<str>, T: ReportTensors<M>, M>(_of: &str, _all: impl IntoIterator<Item = (N, T)>) {}

/// Declares a gradient. Does nothing without the recorder.
#[inline(always)]
pub fn gradient<P: ReportTensors<MP> + ?Sized, G: ReportTensors<MG> + ?Sized, MP, MG>(
    _parameter: &P,
    _gradient: &G,
) {
}

/// Declares an optimizer's state. Does nothing without the recorder.
#[inline(always)]
pub fn optimizer_state<P: ReportTensors<MP> + ?Sized, S: ReportTensors<MS> + ?Sized, MP, MS>(
    _of: &str,
    _parameter: &P,
    _name: &str,
    _state: &S,
) {
}
