//! Starts a program with the preload libraries, and records it.
//!
//! - `program`, `library`, `inherited`: the checks and preparations before the program starts
//! - `wait`: starts the program, waits for it as a shell does, and forwards signals
//! - `exec`: the command becomes the program, and another process waits for it
//! - `collector`: the process that writes the recordings, and the channel to it; `orphans`: the program of a command that was killed
//! - `reporter`: snapshots and reports while the program runs; `kept`: which snapshots stay
//! - `outcome`: the report at the end; `holds`: what held the memory; `mapped_by`: the allocators behind mapped memory

pub(crate) mod collector;
pub(crate) mod exec;
pub(crate) mod holds;
pub(crate) mod inherited;
mod kept;
pub(crate) mod library;
mod mapped_by;
mod orphans;
mod outcome;
pub(crate) mod program;
mod reporter;
pub(crate) mod wait;
