//! The hook between a program and the CUDA driver. Programs find the driver's functions in three ways (linked, by
//! `dlsym`, by `cuGetProcAddress`), and each way returns a wrapper for about thirty of them: `entry` is the hook's
//! `dlsym`, `table` the names and wrappers, `wrap` the code of the wrappers, `watch` their reports to the recorder.
#![allow(unsafe_code)]

mod driver;
mod driver_reading;
mod entry;
mod table;
mod watch;
mod wrap;

pub(super) use driver_reading::{no_more, on_this_thread};
pub(super) use entry::{is_in_place, is_of_another_copy, next_symbol, owner_of_dlsym};
pub(super) use watch::unknown_frees;
