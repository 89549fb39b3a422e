//! memtrack-core: record device and host memory with stacks and operator scopes.

pub mod event;
pub mod pickle;
pub mod snapshot;
mod switch;
pub mod tracker;
