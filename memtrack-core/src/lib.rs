//! memtrack-core: record device and host memory with stacks and operator scopes.

pub mod analysis;
pub mod event;
pub mod pickle;
#[cfg(feature = "record")]
mod reentry;
pub mod scope;
pub mod snapshot;
pub mod stack;
mod switch;
pub mod tracker;

pub use memtrack_macros::track_memory;
#[doc(hidden)]
pub use scope::__private;
