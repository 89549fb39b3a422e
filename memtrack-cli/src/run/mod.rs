//! Starts a program with the preload libraries, and waits until it ends.

pub(crate) mod census;
pub(crate) mod holds;
pub(crate) mod inherited;
pub(crate) mod library;
pub(crate) mod program;
pub(crate) mod wait;
