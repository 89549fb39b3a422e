//! Starting and stopping: the three lines a program needs.

use crate::recorder::{Options, session};
use crate::snapshot::Snapshot;
use std::io;

/// Starts recording with the default options.
pub fn start_monitor() {
    let _ = session::start(&Options::default());
}

/// Starts with options.
pub fn start_monitor_with(options: &Options) -> io::Result<()> {
    session::start(options)
}

/// Stops.
pub fn stop() -> Snapshot {
    session::stop().0
}
