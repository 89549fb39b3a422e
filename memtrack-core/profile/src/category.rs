//! Categories of memory by purpose.

use std::fmt;

/// The purpose of a piece of memory. PyTorch's categories come first, in the order of its exports, followed
/// by memtrack's own.
///
/// Exports in PyTorch's format have one column for each of the first eight categories ([`Self::COMPATIBLE`]),
/// and count the others as unknown ([`Self::index`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Category {
    /// A model's weights.
    Parameter,
    /// State that an optimizer keeps from one step to the next.
    OptimizerState,
    /// Data that the computation starts from.
    Input,
    /// Memory that a single operator allocates and frees.
    Temporary,
    /// A result of the forward pass.
    Activation,
    /// The gradient of a parameter.
    Gradient,
    /// An intermediate result of the backward pass.
    AutogradDetail,
    /// The category could not be determined.
    #[default]
    Unknown,
    /// Memory that an optimizer step allocates but does not keep.
    OptimizerTemporary,
    /// A module's buffer, such as the running mean of a batch norm.
    Buffer,
}

memtrack_model::serialize_as!(Category => &'static str: |category| category.name());

impl Category {
    /// All categories.
    pub const ALL: [Self; 10] = [
        Self::Parameter,
        Self::OptimizerState,
        Self::Input,
        Self::Temporary,
        Self::Activation,
        Self::Gradient,
        Self::AutogradDetail,
        Self::Unknown,
        Self::OptimizerTemporary,
        Self::Buffer,
    ];

    /// The number of PyTorch's categories, including the unknown one.
    pub const COMPATIBLE: usize = 8;

    /// Returns the category's column in PyTorch's exports, from 0 to 7. Categories that do not exist in
    /// PyTorch share the column for unknown memory.
    pub const fn index(self) -> usize {
        match self {
            Self::OptimizerTemporary | Self::Buffer => Self::Unknown as usize,
            known => known as usize,
        }
    }

    /// Returns PyTorch's name for the category, such as `OPTIMIZER_STATE`. memtrack's own categories have
    /// names in the same style.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parameter => "PARAMETER",
            Self::OptimizerState => "OPTIMIZER_STATE",
            Self::Input => "INPUT",
            Self::Temporary => "TEMPORARY",
            Self::Activation => "ACTIVATION",
            Self::Gradient => "GRADIENT",
            Self::AutogradDetail => "AUTOGRAD_DETAIL",
            Self::Unknown => "UNKNOWN",
            Self::OptimizerTemporary => "OPTIMIZER_TEMPORARY",
            Self::Buffer => "BUFFER",
        }
    }

    /// Returns the name used in a snapshot's events. This is [`Self::name`] in lower case, which is how
    /// PyTorch's `_profile_to_snapshot` writes it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Parameter => "parameter",
            Self::OptimizerState => "optimizer_state",
            Self::Input => "input",
            Self::Temporary => "temporary",
            Self::Activation => "activation",
            Self::Gradient => "gradient",
            Self::AutogradDetail => "autograd_detail",
            Self::Unknown => "unknown",
            Self::OptimizerTemporary => "optimizer_temporary",
            Self::Buffer => "buffer",
        }
    }

    /// Returns the category's colour as red, green and blue. PyTorch's categories have the colours that
    /// PyTorch gives them. The viewer cannot depend on this package, so `page/viewer/src/categories/names.ts`
    /// repeats the names, order and colours, and a test compares the two.
    pub const fn colour(self) -> [u8; 3] {
        match self {
            Self::Parameter => [0x00, 0x64, 0x00],
            Self::OptimizerState => [0xda, 0xa5, 0x20],
            Self::Input => [0x00, 0x00, 0x00],
            Self::Temporary => [0x93, 0x70, 0xdb],
            Self::Activation => [0xff, 0x00, 0x00],
            Self::Gradient => [0x00, 0x00, 0xcd],
            Self::AutogradDetail => [0x41, 0x69, 0xe1],
            Self::Unknown => [0x80, 0x80, 0x80],
            Self::OptimizerTemporary => [0xc7, 0x15, 0x85],
            Self::Buffer => [0x20, 0xb2, 0xaa],
        }
    }

    /// Returns the category with this name, ignoring case, or `None` if there is no such category.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.name().eq_ignore_ascii_case(name))
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
