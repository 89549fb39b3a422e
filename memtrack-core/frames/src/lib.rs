//! One judgement about each function in a stack, for all reports: whose code it is ([`ownership`]), whether it only allocates or
//! forwards a call ([`trim`]), which operator it stands for ([`framework_operators`], [`attribution`]), and what PyTorch's
//! own functions say ([`torch_stacks`]).
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

pub mod attribution;
pub mod framework_operators;
pub mod language;
pub mod ownership;
#[doc(hidden)]
pub mod torch_stacks;
pub mod trim;
