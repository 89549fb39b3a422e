//! The progress of a command that takes a while, for people at a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// The time after which progress is shown.
const DELAY: Duration = Duration::from_millis(700);

/// A progress bar on standard error, which is drawn a few times a second, and removed when this is dropped.
pub(crate) struct Progress {
    /// The bar's line, as indicatif formats it.
    template: &'static str,
    total: Option<u64>,
    start: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Returns whether standard error is a terminal, so that progress should be shown.
    pub(crate) fn is_watched() -> bool {
        std::io::stderr().is_terminal()
    }

    /// Creates a bar that ends at `total`, or a spinner if the total is unknown. It appears once it is shown after the delay.
    pub(crate) fn new(template: &'static str, total: Option<u64>) -> Self {
        Self { template, total, start: Instant::now(), bar: None }
    }

    /// Shows how much has been done.
    pub(crate) fn show(&mut self, done: u64) {
        if self.bar.is_none() && self.start.elapsed() < DELAY {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template(self.template);
            let bar = self.total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
