//! The `memtrack` command.
fn main() {}
