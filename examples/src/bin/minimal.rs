//! The minimal use of memtrack: install the allocator, start, stop, print.

use memtrack_core::{By, TrackingAllocator, start_monitor, stop, track_memory};

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();

#[track_memory]
fn squares(count: u64) -> Vec<u64> {
    (0..count).map(|number| number * number).collect()
}

fn main() {
    start_monitor();
    let squares = squares(1_000_000);
    println!("{}", stop().top(By::Operator, 10));
    drop(squares);
}
