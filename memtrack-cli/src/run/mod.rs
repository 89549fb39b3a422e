//! Starting a program with the preload library, and waiting for its end.

pub(crate) mod census;
pub(crate) mod holds;
pub(crate) mod inherited;
pub(crate) mod library;
pub(crate) mod program;
pub(crate) mod wait;
