//! Items that are not functions.

use memtrack_core::track_memory;

#[track_memory]
struct Net;

#[track_memory]
enum Layer {}

#[track_memory]
pub(crate) trait Forward {
    fn forward(&self);
}

#[track_memory]
mod layers {}

#[track_memory]
const WIDTH: usize = 8;

#[track_memory]
static DEPTH: usize = 8;

#[track_memory]
type Alias = Net;

fn main() {}
