//! The memory tracker: counters after every operator, as PyTorch's `MemoryTracker` keeps them. This room holds the
//! data of a run, its file, its summary and its figures; whoever records or loads a run ends up with the same data.

mod replacing_file;

pub use replacing_file::ReplacingFile;
