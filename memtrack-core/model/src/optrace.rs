//! An operator trace: the operators that ran, their tensors, and the memory that they allocated. It is either read from
//! an operator trace file (see docs/FILES.md in the repository) or recorded by a program. From a trace, the analysis
//! determines the purpose of the program's memory.

use crate::scope_path::Phase;
use crate::snapshot::{StringId, StringTable};

/// The number of a record, which is its index in [`OperatorTrace::records`].
pub type RecordId = u32;
/// The number of a tensor, which is its index in [`OperatorTrace::tensors`].
pub type TensorId = u32;

/// An operator trace. Records are in chronological order, and parents come before their children.
#[derive(Clone, Debug, Default)]
pub struct OperatorTrace {
    /// The origin of the trace.
    pub header: Header,
    /// The names of operators, modules and everything else.
    pub strings: StringTable,
    /// The names of devices (such as `cpu` or `cuda:0`), by [`DeviceIndex`].
    pub devices: Vec<String>,
    /// The descriptions of tensors, each at one point in time.
    pub tensors: Vec<Tensor>,
    /// The stacks, innermost frame first.
    pub stacks: Vec<Vec<TraceFrame>>,
    /// The records.
    pub records: Vec<Record>,
}

/// A device in a trace, as its index in [`OperatorTrace::devices`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceIndex(pub u16);

/// The origin of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// Whether times are Unix times. If not, they are relative to an unknown moment. In both cases, they are in ns.
    pub unix_time: bool,
    /// The program that wrote the trace, and its version.
    pub producer: (String, String),
    /// The process id.
    pub pid: Option<u64>,
    /// The name of the machine, if the producer states it.
    pub host: Option<String>,
    /// The number of the process in a distributed run.
    pub rank: Option<u64>,
    /// The devices that the producer names. They need not have records.
    pub devices: Vec<String>,
    /// Whether the producer reports that something is missing.
    pub partial: bool,
}

/// The description of a tensor at one point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensor {
    /// The identity of the logical tensor.
    pub identity: StringId,
    /// The address of the tensor's storage, if it has one.
    pub storage: Option<u64>,
    /// The device that the tensor is on.
    pub device: DeviceIndex,
    /// The type of the tensor's elements.
    pub dtype: StringId,
    /// The size of an element in bytes.
    pub element_bytes: u64,
    /// The size of each dimension, in elements.
    pub sizes: Vec<u64>,
    /// The stride of each dimension, in elements; `None` if the tensor is not strided.
    pub strides: Option<Vec<i64>>,
    /// The name of the layout, such as `strided`.
    pub layout: StringId,
    /// The size of the whole storage in bytes, if the producer knows it.
    pub storage_bytes: Option<u64>,
    /// The tensor's name, or the empty string.
    pub name: StringId,
}

/// A frame in a stack of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TraceFrame {
    /// The function's name.
    pub name: StringId,
    /// The file, or the empty string.
    pub file: StringId,
    /// The line in the file, or 0.
    pub line: u32,
}

/// A record in a trace. It is an event in the program, such as an operator call or an allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The time, in ns.
    pub time_ns: i64,
    /// The end of the record, in ns; `None` if the record takes no time, or if the trace does not contain its end.
    pub end_ns: Option<i64>,
    /// The thread's id in the trace.
    pub thread: u64,
    /// The record that contains this one.
    pub parent: Option<RecordId>,
    /// The phase of the program, which also applies to the records inside this one; [`TracePhase::Inherited`] if this
    /// record states no phase.
    pub phase: TracePhase,
    /// The kind and content of the record.
    pub what: RecordKind,
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
pub enum RecordKind {
    /// An operator, or an annotation that encloses operators.
    Op(Op),
    /// An allocation or a free.
    Memory(Memory),
    /// A module call.
    Module(Module),
    /// The state of an optimizer.
    Optimizer(Optimizer),
    /// A statement that a tensor is a gradient.
    Grad {
        /// The parameter that the gradient belongs to.
        param: Option<TensorId>,
        /// The gradient.
        grad: TensorId,
    },
    /// A marker set by the user.
    Mark(StringId),
}

/// An operator call.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Op {
    /// The operator's name.
    pub name: StringId,
    /// The operator's overload, or the empty string.
    pub overload: StringId,
    /// The kind of operator.
    pub kind: OpKind,
    /// Whether it is known which of its arguments the operator writes.
    pub known: bool,
    /// The operator's arguments.
    pub args: Vec<Arg>,
    /// The operator's results.
    pub outs: Vec<TensorId>,
    /// The sequence number that links a backward operator to its forward operator.
    pub sequence: Option<i64>,
    /// The stack of the call, as an index into [`OperatorTrace::stacks`].
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

/// An operator's argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// An argument that is not a tensor.
    None,
    /// A tensor, and whether it is written; `None` if that is unknown.
    Tensor(TensorId, Option<bool>),
    /// A list of tensors, and whether they are written; `None` if that is unknown.
    Tensors(Vec<TensorId>, Option<bool>),
}

impl Arg {
    /// Returns the argument's tensors.
    pub fn tensors(&self) -> &[TensorId] {
        match self {
            Self::None => &[],
            Self::Tensor(tensor, _) => std::slice::from_ref(tensor),
            Self::Tensors(tensors, _) => tensors,
        }
    }

    /// Returns whether the argument's tensors are written, or `None` if that is unknown.
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
    /// Whether this is a free.
    pub is_free: bool,
    /// The device.
    pub device: DeviceIndex,
    /// The address of the memory.
    pub address: u64,
    /// The size of the memory in bytes, which is at least 1.
    pub bytes: u64,
    /// The bytes that the program requested, if they are known.
    pub requested: Option<u64>,
    /// The stream's handle, if it is known.
    pub stream: Option<u64>,
    /// The stack of the request, as an index into [`OperatorTrace::stacks`].
    pub stack: Option<u32>,
}

/// A module call, with the parameters and buffers that were registered in the module at that time.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Module {
    /// The module's identity.
    pub identity: StringId,
    /// The module's type.
    pub class: StringId,
    /// The module's path in the model (such as `encoder.layers.0`), or the empty string.
    pub path: StringId,
    /// The module's own parameters, without its submodules' parameters.
    pub params: Vec<Param>,
    /// The module's own buffers.
    pub buffers: Vec<NamedTensor>,
}

/// A module's parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// The parameter's name, or the empty string.
    pub name: StringId,
    /// The tensor.
    pub tensor: TensorId,
    /// The parameter's gradient, if it had one.
    pub grad: Option<TensorId>,
}

/// A tensor with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedTensor {
    /// The tensor's name, or the empty string.
    pub name: StringId,
    /// The tensor.
    pub tensor: TensorId,
}

/// The state of an optimizer at the end of a step.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Optimizer {
    /// The optimizer's identity.
    pub identity: StringId,
    /// The optimizer's type, or the empty string.
    pub class: StringId,
    /// The optimised parameters.
    pub params: Vec<OptimizedParam>,
}

/// A parameter of an optimizer, with its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptimizedParam {
    /// The parameter.
    pub tensor: TensorId,
    /// The parameter's gradient, if it had one.
    pub grad: Option<TensorId>,
    /// The state that the optimizer keeps for the parameter.
    pub state: Vec<NamedTensor>,
}
