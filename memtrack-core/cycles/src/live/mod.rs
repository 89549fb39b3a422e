//! The registry of the running program's values, and scans of the program.
//!
//! **For callers** (the facade and watchers):
//! - [`enable`] turns registration on when the first watch starts, and [`disable`] turns it off
//!   when the last watch has stopped. Both apply to the whole process. Calls are not counted: one call of [`disable`]
//!   undoes any number of calls of [`enable`].
//! - [`register`] and [`register_dyn`] are for values, [`Tracked`] is for handles, and [`declare_root`] is for statics.
//! - [`root_ended`] is called on the scope's thread whenever a root scope ends, because handles whose root scope has
//!   not ended are not reported.
//! - [`find`] and [`Scan`] may be used on any thread. They visit the `Rc`s of that thread and every `Arc`, and return a
//!   [`Report`] whose [`Graph`](crate::Graph) goes to `Findings::of`. They return at once with [`NotScanned::Off`], or
//!   with [`NotScanned::Busy`] if another thread is scanning or if they are called by a destructor that runs during a
//!   scan. The caller may try again later.
//! - `Node::allocated` is empty. A caller that knows where device memory was allocated fills it in, using
//!   `Graph::memory`.
//! - `Node::serial` is a time in ticks of the recorder's clock. Together with the place (`Node::created`), it
//!   identifies a value even after that value is gone.
//! - A cycle is not proved to be unreachable if a weak pointer from outside leads to it, or to a cycle from which it
//!   can be reached. `Node::weak_outside` counts the weak pointers to each value, and [`crate::Findings`] follows the
//!   strong pointers from there.
//!
//! A forked child registers and reports nothing until it calls [`enable`] itself. Its registry contains no inherited
//! values except the `Rc`s of the thread that forked.

mod handles;
mod registry;
mod roots;
mod scan;
mod switch;
#[cfg(test)]
mod tests;
mod weak;

pub use handles::{Tracked, root_ended};
pub use registry::{Register, RegisterDyn, disable, register, register_dyn};
pub use roots::declare_root;
pub use scan::{NotScanned, Report, Scan, find};
pub(crate) use switch::is_enabled_in_process as is_enabled;
pub use switch::{RegisterOptions, enable};
