//! Stacks as a program records them, in the form of raw addresses and the list of its loaded binaries (`modules`,
//! Linux). The reader of the recording symbolizes them later, possibly on another machine.

pub mod capture;
pub mod intern;
pub mod modules;
pub mod separate_stack;
mod stored;
