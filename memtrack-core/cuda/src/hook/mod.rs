//! The hook between a program and the CUDA driver. Programs find the driver's functions in three ways (linked, by
//! `dlsym`, by `cuGetProcAddress`), and on each they are handed our wrapper for about thirty of them: `entry` is our
//! `dlsym`, `table` the names and wrappers, `wrap` what a wrapper does, `watch` what it tells the recorder.
#![allow(unsafe_code)]

mod driver;
mod driver_reading;
mod entry;
mod table;
mod watch;
mod wrap;

pub(super) use driver_reading::{no_more, on_this_thread};
pub(super) use entry::{is_anothers, is_in_place, next_symbol, owner_of_dlsym};
pub(super) use watch::unknown_frees;
