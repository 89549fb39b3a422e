//! Functions that cannot be tracked.

use memtrack_core::track_memory;

#[track_memory]
const fn constant() {}

trait Layer {
    #[track_memory(module)]
    fn forward(&self);
}

struct Net;

#[track_memory(module)]
impl Net {
    const fn width() -> usize {
        8
    }

    #[track_memory(modul)]
    fn forward(&self) {}
}

fn main() {}
