//! Mistakes in annotated functions are reported as if they were not annotated.

use memtrack_core::track_memory;

#[track_memory]
fn wrong_type() -> u8 {
    "text"
}

#[track_memory]
async fn wrong_async_type() -> u8 {
    "text"
}

#[track_memory]
async fn wrong_question() -> Option<u8> {
    Err(())?;
    None
}

#[track_memory]
fn unknown_name() {
    nothing();
}

fn main() {}
