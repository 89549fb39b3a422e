//! The checks of this package with jemalloc as the inner allocator.

use memtrack_core::TrackingAllocator;
use tikv_jemallocator::Jemalloc;

#[global_allocator]
static ALLOCATOR: TrackingAllocator<Jemalloc> = TrackingAllocator::new(Jemalloc);

fn main() {
    allocators::check_all();
}
