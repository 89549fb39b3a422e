//! The hook between a program and the CUDA driver. Programs find the driver's functions in three ways (linked, by `dlsym`,
//! by `cuGetProcAddress`), and each way returns a wrapper for about thirty of them. `entry` contains the hook's `dlsym`,
//! `table` the names and wrappers, `wrap` the code of the wrappers, and `watch` their reports to the recorder. `driver` and
//! `driver_reading` query the driver. `absent` hides the names from a process without the driver.
#![allow(unsafe_code)]

mod absent;
mod driver;
mod driver_reading;
mod entry;
mod table;
mod watch;
mod wrap;

pub(super) use crate::run::begin_if_requested;
pub(super) use absent::hide_absent_names;
pub(super) use driver_reading::{read_on_this_thread, stop_readings};
pub use entry::{LookupWatcher, binary_of, next_symbol, process_symbol, watch_lookups};
pub(super) use entry::{is_in_place, is_other_copy_in_place, look_up, owner_of_dlsym};
pub(super) use watch::unknown_frees;
