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

/// The name and the colour of each category.
const TABLE: [(&str, [u8; 3]); Category::ALL.len()] = [
    ("PARAMETER", [0x00, 0x64, 0x00]),
    ("OPTIMIZER_STATE", [0xda, 0xa5, 0x20]),
    ("INPUT", [0x00, 0x00, 0x00]),
    ("TEMPORARY", [0x93, 0x70, 0xdb]),
    ("ACTIVATION", [0xff, 0x00, 0x00]),
    ("GRADIENT", [0x00, 0x00, 0xcd]),
    ("AUTOGRAD_DETAIL", [0x41, 0x69, 0xe1]),
    ("UNKNOWN", [0x80, 0x80, 0x80]),
    ("OPTIMIZER_TEMPORARY", [0xc7, 0x15, 0x85]),
    ("BUFFER", [0x20, 0xb2, 0xaa]),
];

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
        TABLE[self as usize].0
    }

    /// Returns the names used in a snapshot's events, in the order of [`Self::ALL`]. They are in lower case, which is
    /// how PyTorch's `_profile_to_snapshot` writes them.
    pub(crate) fn labels() -> Vec<String> {
        Self::ALL.map(|category| category.name().to_ascii_lowercase()).to_vec()
    }

    /// Returns the category's colour as red, green and blue. PyTorch's categories have the colours that
    /// PyTorch gives them. The viewer cannot depend on this package, so `page/viewer/src/categories/names.ts`
    /// repeats the names, order and colours, and a test compares the two.
    pub const fn colour(self) -> [u8; 3] {
        TABLE[self as usize].1
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
