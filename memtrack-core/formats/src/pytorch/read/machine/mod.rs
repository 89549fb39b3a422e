//! The readers of bytes: the pickle machine and the JSON reader, along with the cells that they produce and
//! the limits on their cost.

pub(super) mod cell;
pub(super) mod core;
pub(super) mod heap;
pub(super) mod json;
pub(super) mod memo;
pub(super) mod operands;
pub(super) mod rare;
pub(super) mod watch;
