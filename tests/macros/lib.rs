//! The examples in the documentation of `#[track_memory]`, run as tests.

#[cfg(doctest)]
#[doc = include_str!("../../memtrack-macros/src/track_memory.md")]
struct Examples;

#[cfg(doctest)]
#[doc = include_str!("../../memtrack-macros/src/limits.md")]
struct ExamplesOfLimits;
