//! The tensors that a record refers to, and their roles in it.

use memtrack_model::optrace::{RecordKind, TensorId};

/// The role of a tensor in a record that refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// An argument of an operator, with whether the operator writes to it, if that is known.
    Argument(Option<bool>),
    /// A result of an operator.
    Result,
    /// A parameter that a module or an optimizer registers.
    Parameter,
    /// The gradient of the parameter before it.
    Gradient,
    /// State that an optimizer keeps for the parameter before it.
    State,
    /// A buffer of a module.
    Buffer,
    /// The parameter that the gradient after it belongs to, in a record that reports only the gradient.
    Differentiated,
}

/// Calls `visit` for each tensor that a record refers to, in PyTorch's order.
pub(crate) fn for_each_tensor(what: &RecordKind, mut visit: impl FnMut(TensorId, Role)) {
    match what {
        RecordKind::Op(op) => {
            for arg in &op.args {
                arg.tensors().iter().for_each(|&tensor| visit(tensor, Role::Argument(arg.written())));
            }
            op.outs.iter().for_each(|&tensor| visit(tensor, Role::Result));
        }
        RecordKind::Module(module) => {
            for param in &module.params {
                visit(param.tensor, Role::Parameter);
                param.grad.into_iter().for_each(|grad| visit(grad, Role::Gradient));
            }
            module.buffers.iter().for_each(|buffer| visit(buffer.tensor, Role::Buffer));
        }
        RecordKind::Optimizer(optimizer) => {
            for param in &optimizer.params {
                visit(param.tensor, Role::Parameter);
                param.grad.into_iter().for_each(|grad| visit(grad, Role::Gradient));
                param.state.iter().for_each(|state| visit(state.tensor, Role::State));
            }
        }
        RecordKind::Grad { param, grad } => {
            param.iter().for_each(|&param| visit(param, Role::Differentiated));
            visit(*grad, Role::Gradient);
        }
        RecordKind::Memory(_) | RecordKind::Mark(_) => {}
    }
}
