//! Stacks: from return addresses to names. A program records raw addresses and the list of its loaded binaries
//! (`modules`, feature `record`, Linux); whoever reads the recording, then or elsewhere, turns them into functions
//! and lines with [`symbols`], and never with a binary that is not the recorded one ([`build_id`]).

pub mod build_id;
mod locate;
#[cfg(all(feature = "record", target_os = "linux"))]
pub mod modules;
pub mod names;
mod qualify;
pub mod symbols;

#[cfg(feature = "record")]
pub(crate) mod capture;
#[cfg(feature = "record")]
pub(crate) mod intern;
#[cfg(feature = "record")]
pub(crate) mod own_stack;
