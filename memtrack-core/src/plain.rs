//! The monitor in builds without reports. It only starts and stops, and records no series of operators.

use memtrack_model::Snapshot;
use memtrack_recorder::message;
use memtrack_recorder::recorder::Options;
use memtrack_recorder::recorder::{generation, session};
use std::io;

/// A participant in a recording session.
#[derive(Debug)]
pub(crate) struct Monitor {
    running: bool,
}

impl Monitor {
    pub(crate) fn new() -> Self {
        Self { running: false }
    }

    /// Creates a monitor that can stop the session that a forked child inherited. In any other process, the monitor is
    /// not running.
    pub(crate) fn inherited() -> Self {
        Self { running: generation() > 0 }
    }

    pub(crate) fn start_monitor_with(&mut self, options: &Options) -> io::Result<()> {
        self.running = crate::monitor::begin(options)?;
        if self.running {
            crate::monitor::warn_without_source();
        }
        Ok(())
    }

    pub(crate) fn stop_session(&mut self) -> Option<(Snapshot, io::Result<()>)> {
        std::mem::take(&mut self.running).then(session::stop)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        if let Some((_, Err(error))) = self.stop_session() {
            message::print(format_args!("the recording could not be written: {error}"));
        }
    }
}
