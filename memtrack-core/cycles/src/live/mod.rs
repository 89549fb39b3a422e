//! The registry of the running program, and scans of it.
//!
//! **For the callers** (the facade, watchers):
//! - [`enable`] (or [`enable_with`]) turns registration on when the first watch begins, [`disable`] turns
//!   it off when the last watch has ended. Both apply to the whole process and do not count their callers.
//! - [`register`] and [`register_dyn`] are for values, [`Tracked`] for handles, [`declare_root`] for statics.
//! - [`root_ended`] is called whenever a root scope ends, on the scope's thread: handles whose root scope has not
//!   ended are not reported.
//! - [`find`] or [`Scan`] may be called on any thread: it visits the `Rc`s of that thread and every `Arc`,
//!   and returns a [`Report`] whose [`Graph`](crate::Graph) goes to `Findings::of`. It returns at once with
//!   [`NotScanned::Off`] or [`NotScanned::Busy`] (another thread is scanning, or a destructor that runs during a scan
//!   calls it): the caller may try again later.
//! - `Node::allocated` is empty: a caller that knows where device memory was allocated fills it in, by
//!   `Graph::memory`.
//! - `Node::serial` is a time in ticks of the recorder's clock, which together with the place
//!   (`Node::created`) identifies a value even after it is gone.
//! - A cycle is not proved to be unreachable if a weak pointer from outside leads to it, or to a cycle from which it can
//!   be reached: `Node::weak_outside` counts the weak pointers to each value, and [`crate::Findings`] follows the strong
//!   pointers from there.
//!
//! A child of a fork registers and reports nothing until it calls [`enable`] itself. Its registry does not
//! contain inherited values, except for the `Rc`s of the thread that forked.

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
pub(crate) use switch::is_on_in_this_process as is_enabled;
pub use switch::{RegisterOptions, disable, enable, enable_with};
