//! memtrack-core: record device and host memory with stacks and operator scopes.

pub mod event;
#[cfg(feature = "record")]
mod reentry;
pub mod scope;
pub mod snapshot;
mod switch;

pub use memtrack_macros::track_memory;
#[doc(hidden)]
pub use scope::__private;
