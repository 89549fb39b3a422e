//! The checks of this package with mimalloc as the inner allocator.

use memtrack_core::TrackingAllocator;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: TrackingAllocator<MiMalloc> = TrackingAllocator::new(MiMalloc);

fn main() {
    allocators::check_all();
}
