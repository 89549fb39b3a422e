//! The warning: a line on stderr, and a page that stays.

use super::Observed;
use super::report::write_page;
use crate::words;
use memtrack_recorder::{environment, message, reentry};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What is watched, and where pages about it go.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    folder: Option<PathBuf>,
    every: Duration,
    pages: u32,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl WatchOptions {
    /// Pages in the folder for temporary files (`/tmp` in a program with more rights than its caller, whatever the environment
    /// says), twenty at most; what threads share is looked at every ten seconds.
    pub const fn new() -> Self {
        Self { folder: None, every: Duration::from_secs(10), pages: 20 }
    }

    /// Where pages are written. The folder must exist.
    #[must_use]
    pub fn folder(self, folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()), ..self }
    }

    /// How often what threads share is looked at; [`Duration::MAX`] only at the ends of root scopes. The shortest time that
    /// anybody who watches asks for holds.
    #[must_use]
    pub const fn shared_every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Most pages that are written; further cycles are only reported on stderr.
    #[must_use]
    pub const fn pages(mut self, pages: u32) -> Self {
        self.pages = pages;
        self
    }

    pub(super) fn every(&self) -> Option<Duration> {
        (self.every != Duration::MAX).then_some(self.every)
    }
}

/// Most kinds that a message names.
const MOST_SAID: usize = 8;

/// Writes pages and says so.
pub(super) struct Pages {
    options: WatchOptions,
    written: AtomicU32,
}

impl Pages {
    pub(super) fn new(options: WatchOptions) -> Self {
        Self { options, written: AtomicU32::new(0) }
    }

    /// Says what is new, in a message.
    pub(super) fn warn(&self, observed: &Observed<'_>) {
        let _inside = reentry::enter();
        let (graph, findings) = (&observed.report.graph, observed.findings);
        let number = self.written.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let page = (number <= self.options.pages).then(|| self.write(observed, number));
        let mut said = String::new();
        for (at, &place) in observed.new.iter().enumerate().take(MOST_SAID) {
            if at > 0 {
                said += "\n  and ";
            }
            said += &words::warning(graph, &findings.cycles[place]);
        }
        if observed.new.len() > MOST_SAID {
            let more = observed.new.len() - MOST_SAID;
            said += &format!("\n  and cycles of {more} more kinds");
        }
        match page {
            Some(Ok(path)) => message::print(format_args!("{said}\n  see {}", path.display())),
            Some(Err(error)) => message::print(format_args!("{said}\n  no page about it: {error}")),
            None => message::print(said),
        }
    }

    /// A page about all that was found; its path.
    fn write(&self, observed: &Observed<'_>, number: u32) -> io::Result<PathBuf> {
        let name = format!("memtrack-cycles-{}-{number}.html", std::process::id());
        let path = self.options.folder.clone().unwrap_or_else(environment::temporary_folder).join(name);
        let path = std::path::absolute(path)?;
        write_page(&observed.report.graph, observed.findings, &path)?;
        Ok(path)
    }
}
