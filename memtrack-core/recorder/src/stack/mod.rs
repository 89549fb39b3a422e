//! Stacks as a program records them: raw addresses, and the list of its loaded binaries (`modules`, Linux). The
//! reader of the recording resolves the names, then or elsewhere.

pub mod capture;
pub mod intern;
#[cfg(target_os = "linux")]
pub mod modules;
pub mod separate_stack;
