//! Scopes, in a program whose heap is tracked.

mod bounds;
mod follows;
mod nesting;
mod off;
mod sums;

use memtrack_core::TrackingAllocator;

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();
