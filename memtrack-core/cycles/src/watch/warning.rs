//! The warning about new cycles, which consists of a message on stderr and a page.

use super::report::write_page;
use super::watchers::Observation;
use crate::words;
use memtrack_recorder::{environment, message, reentry};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The options for a watch, such as the scan interval and the folder for pages.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    folder: Option<PathBuf>,
    interval: Duration,
    pages: u32,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl WatchOptions {
    /// Returns the default options. At most twenty pages are written to the folder for temporary files (always `/tmp`
    /// in a program with elevated privileges, such as a setuid program), and shared values are scanned every ten
    /// seconds.
    pub const fn new() -> Self {
        Self { folder: None, interval: Duration::from_secs(10), pages: 20 }
    }

    /// Sets the folder for pages, which must exist.
    #[must_use]
    pub fn folder(self, folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), ..self }
    }

    /// Sets the interval between scans of shared values. With [`Duration::MAX`], they are scanned only when root scopes
    /// end. The shortest interval of any watcher applies.
    #[must_use]
    pub const fn shared_every(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sets the maximum number of pages. Further cycles are reported only on stderr.
    #[must_use]
    pub const fn pages(mut self, pages: u32) -> Self {
        self.pages = pages;
        self
    }

    pub(super) fn shared_interval(&self) -> Option<Duration> {
        (self.interval != Duration::MAX).then_some(self.interval)
    }
}

/// The maximum number of kinds that a message names.
const MAX_KINDS_NAMED: usize = 8;

/// A writer of pages and of the messages about them.
pub(super) struct WarningWriter {
    options: WatchOptions,
    written: AtomicU32,
}

impl WarningWriter {
    pub(super) fn new(options: WatchOptions) -> Self {
        Self { options, written: AtomicU32::new(0) }
    }

    /// Prints a message about the new cycles, and writes a page about them unless there are already enough pages.
    pub(super) fn warn(&self, observed: &Observation<'_>) {
        let _inside = reentry::enter();
        let (graph, findings) = (&observed.report.graph, observed.findings);
        let number = self.written.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let page = (number <= self.options.pages).then(|| self.write_page(observed, number));
        let mut text = String::new();
        for (at, &place) in observed.new.iter().enumerate().take(MAX_KINDS_NAMED) {
            if at > 0 {
                text += "\n  and ";
            }
            text += &words::warning(graph, &findings.cycles[place]);
        }
        if observed.new.len() > MAX_KINDS_NAMED {
            let more = observed.new.len() - MAX_KINDS_NAMED;
            text += &format!("\n  and cycles of {more} more kinds");
        }
        match page {
            Some(Ok(path)) => message::print(format_args!("{text}\n  see {}", path.display())),
            Some(Err(error)) => message::print(format_args!("{text}\n  no page about it: {error}")),
            None => message::print(text),
        }
    }

    /// Writes a page about all findings, and returns its path.
    fn write_page(&self, observed: &Observation<'_>, number: u32) -> io::Result<PathBuf> {
        let name = format!("memtrack-cycles-{}-{number}.html", std::process::id());
        let path = self.options.folder.clone().unwrap_or_else(environment::temporary_folder).join(name);
        let path = std::path::absolute(path)?;
        write_page(&observed.report.graph, observed.findings, &path)?;
        Ok(path)
    }
}
