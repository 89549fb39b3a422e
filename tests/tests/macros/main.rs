//! `#[track_memory]`, expanded and refused.

mod errors;
pub mod safe;
mod unsafe_functions;
