//! An operator trace: the operators that ran, their tensors, and the memory that they allocated. It is read
//! from a file of that name (the repository's docs/FILES.md) or recorded by a program; the analysis determines
//! the purpose of its memory.

use crate::scope_path::Phase;
use crate::snapshot::{StringId, StringTable};

/// The number of a record: its index in [`OperatorTrace::records`].
pub type RecordId = u32;
/// The number of a tensor: its index in [`OperatorTrace::tensors`].
pub type TensorId = u32;

/// An operator trace. Records are in chronological order; parents come before their children.
#[derive(Clone, Debug, Default)]
pub struct OperatorTrace {
    /// The origin of the trace.
    pub header: Header,
    /// The names of operators, modules and everything else.
    pub strings: StringTable,
    /// Names of devices (`cpu`, `cuda:0`), by [`DeviceIndex`].
    pub devices: Vec<String>,
    /// The tensors, each as it was at some moment.
    pub tensors: Vec<Tensor>,
    /// Stacks, innermost frame first.
    pub stacks: Vec<Vec<TraceFrame>>,
    /// The records.
    pub records: Vec<Record>,
}

/// A device of a trace: its index in [`OperatorTrace::devices`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u16);

/// The origin of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// Whether times are Unix times; otherwise they are relative to an unknown moment. In both cases in ns.
    pub unix_time: bool,
    /// The program that wrote the trace, and its version.
    pub producer: (String, String),
    /// The process.
    pub pid: Option<u64>,
    /// The machine.
    pub host: Option<String>,
    /// The number of the process in a distributed run.
    pub rank: Option<u64>,
    /// The devices that the producer names, which need not have records.
    pub devices: Vec<String>,
    /// Whether the producer reports that something is missing.
    pub partial: bool,
}

/// A tensor as it was at some moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// The logical tensor.
    pub identity: StringId,
    /// The address of its storage, if it has one.
    pub storage: Option<u64>,
    /// The device that the tensor is on.
    pub device: DeviceIndex,
    /// The type of its elements.
    pub dtype: StringId,
    /// The size of an element in bytes.
    pub element_bytes: u64,
    /// The size of each dimension, in elements.
    pub sizes: Vec<u64>,
    /// The stride of each dimension, in elements; none if the tensor is not strided.
    pub strides: Option<Vec<i64>>,
    /// `strided`, or another layout.
    pub layout: StringId,
    /// The whole storage in bytes, where the producer knows it.
    pub storage_bytes: Option<u64>,
    /// The tensor's name, or empty.
    pub name: StringId,
}

/// A frame of a stack in a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TraceFrame {
    /// The function.
    pub name: StringId,
    /// The file, or empty.
    pub file: StringId,
    /// The line in the file, or 0.
    pub line: u32,
}

/// A record of a trace: an event of the program, such as an operator's call or an allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The time, in ns.
    pub time_ns: i64,
    /// Its end, in ns; none if it takes no time, or the trace does not contain it.
    pub end_ns: Option<i64>,
    /// The thread.
    pub thread: u64,
    /// The record that contains it.
    pub parent: Option<RecordId>,
    /// The phase of the program, for the record and those inside it; [`TracePhase::Inherited`] where the record
    /// states none.
    pub phase: TracePhase,
    /// Its kind and content.
    pub what: What,
}

/// The phase that a record specifies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TracePhase {
    /// The phase of the enclosing record.
    #[default]
    Inherited,
    /// One of the three phases.
    Of(Phase),
    /// None of the three phases.
    Other,
}

/// The kind and content of a record.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// An operator, or an annotation that encloses operators.
    Op(Op),
    /// An allocation or a free.
    Memory(Memory),
    /// The call of a module.
    Module(Module),
    /// The state of an optimizer.
    Optimizer(Optimizer),
    /// A statement that a tensor is a gradient.
    Grad {
        /// The parameter that it belongs to.
        param: Option<TensorId>,
        /// The gradient.
        grad: TensorId,
    },
    /// A marker set by the user.
    Mark(StringId),
}

/// An operator's call.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Op {
    /// Its name.
    pub name: StringId,
    /// Its overload, or empty.
    pub overload: StringId,
    /// The kind of operator.
    pub kind: OpKind,
    /// Whether it is known which of its arguments it writes.
    pub known: bool,
    /// Its arguments.
    pub args: Vec<Arg>,
    /// Its results.
    pub outs: Vec<TensorId>,
    /// The sequence number that links a backward operator to its forward operator.
    pub sequence: Option<i64>,
    /// The stack of the call, an index in [`OperatorTrace::stacks`].
    pub stack: Option<u32>,
}

/// A kind of operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpKind {
    /// An ordinary operator.
    #[default]
    Op,
    /// An autograd node.
    Backward,
    /// An annotation set by the user.
    User,
    /// Any other operator.
    Other,
}

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// An argument that is not a tensor.
    None,
    /// A tensor, and whether it is written; none where that is unknown.
    Tensor(TensorId, Option<bool>),
    /// A list of tensors.
    Tensors(Vec<TensorId>, Option<bool>),
}

impl Arg {
    /// Returns its tensors.
    pub fn tensors(&self) -> &[TensorId] {
        match self {
            Self::None => &[],
            Self::Tensor(tensor, _) => std::slice::from_ref(tensor),
            Self::Tensors(tensors, _) => tensors,
        }
    }

    /// Returns whether its tensors are written; none where that is unknown.
    pub const fn written(&self) -> Option<bool> {
        match self {
            Self::None => None,
            Self::Tensor(_, written) | Self::Tensors(_, written) => *written,
        }
    }
}

/// An allocation or a free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Whether it is a free.
    pub is_free: bool,
    /// The device.
    pub device: DeviceIndex,
    /// Its address.
    pub address: u64,
    /// Its size, at least 1.
    pub bytes: u64,
    /// The requested bytes.
    pub requested: Option<u64>,
    /// The stream.
    pub stream: Option<u64>,
    /// The stack of the request, an index in [`OperatorTrace::stacks`].
    pub stack: Option<u32>,
}

/// A module's call, with the parameters and buffers that were registered in it at that time.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Module {
    /// The module.
    pub identity: StringId,
    /// Its type.
    pub class: StringId,
    /// Its path in the model (`encoder.layers.0`), or empty.
    pub path: StringId,
    /// Its own parameters, without those of its submodules.
    pub params: Vec<Param>,
    /// Its own buffers.
    pub buffers: Vec<NamedTensor>,
}

/// A module's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name, or empty.
    pub name: StringId,
    /// The tensor.
    pub tensor: TensorId,
    /// Its gradient, if it had one.
    pub grad: Option<TensorId>,
}

/// A tensor with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedTensor {
    /// Its name, or empty.
    pub name: StringId,
    /// The tensor.
    pub tensor: TensorId,
}

/// The state of an optimizer at the end of a step.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Optimizer {
    /// The optimizer.
    pub identity: StringId,
    /// Its type, or empty.
    pub class: StringId,
    /// The optimised parameters.
    pub params: Vec<OptimizedParam>,
}

/// A parameter of an optimizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptimizedParam {
    /// The parameter.
    pub tensor: TensorId,
    /// Its gradient, if it had one.
    pub grad: Option<TensorId>,
    /// The state that the optimizer keeps for it.
    pub state: Vec<NamedTensor>,
}
