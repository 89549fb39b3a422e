//! Scopes and `#[track_memory]`, in a program whose heap is tracked.

mod bounds;
mod figures;
mod follows;
mod leaks;
mod limits;
// Public, so that the lint `missing_docs`, which this module denies, applies to it.
pub mod macros_safe;
mod macros_unsafe;
mod nesting;
mod off;
mod peaks;
mod refusals;
mod sums;
mod tasks;
mod tensors;
mod verbs;
mod watches;

use memtrack_core::TrackingAllocator;

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();
