//! The `#[track_memory]` attribute. Use it through `memtrack_core::track_memory`.
