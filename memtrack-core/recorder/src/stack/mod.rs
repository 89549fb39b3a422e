//! Stacks as a program records them: raw addresses, and the list of its loaded binaries (`modules`, Linux). Whoever reads
//! the recording, then or elsewhere, names them.

pub mod capture;
pub mod intern;
#[cfg(target_os = "linux")]
pub mod modules;
pub mod own_stack;
