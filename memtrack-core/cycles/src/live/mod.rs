//! The running program: what is registered, and scans of it.
//!
//! **For who builds on this** (the front, watchers):
//! - [`enable`] (or [`enable_with`]) when something begins to watch, [`disable`] when nothing does any more. Both are for the whole process
//!   and do not count who called them.
//! - [`register`] and [`register_dyn`] for values, [`Tracked`] for handles, [`declare_root`] for statics.
//! - [`root_ended`] at each end of a root scope, on its thread: handles whose root scope has not ended are not reported.
//! - [`find`] or [`Scan`] on whatever thread: it looks at the `Rc`s of that thread and at every `Arc`, and returns a
//!   [`Report`] whose [`Graph`](crate::Graph) goes to `Findings::of`. It is quick to say [`NotScanned::Off`] or
//!   [`NotScanned::Busy`] (another thread scans, or a destructor that a scan runs calls it): then try again later.
//! - `Node::allocated` is empty: who knows where device memory was allocated fills it in, by `Graph::memory`.
//! - `Node::serial` is a time in ticks of the recorder's clock, which together with the place (`Node::created`) tells a value from
//!   all others for ever.
//! - A cycle to which a weak pointer leads from outside, or that hangs from a cycle to which one leads, is not proved to be
//!   unreachable: `Node::weak_outside` has the pointers themselves, and [`crate::Findings`] follows the strong ones.
//!
//! A child of a fork registers and reports nothing until it calls [`enable`] itself. What it inherits is not in its registry,
//! but for the `Rc`s of the thread that forked.

mod entries;
mod handles;
mod registry;
mod roots;
mod scan;
mod switch;
#[cfg(test)]
mod tests;
mod weak;

pub use handles::{Tracked, root_ended};
pub use registry::{Register, RegisterDyn, register, register_dyn};
pub use roots::declare_root;
pub use scan::{NotScanned, Report, Scan, find};
pub(crate) use switch::is_on_here as is_enabled;
pub use switch::{RegisterOptions, disable, enable, enable_with};
