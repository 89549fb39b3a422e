//! The recording so far: as a file for the command `memtrack`, as a page for the browser, and as the table of the resident
//! memory.

use super::Endpoints;
use crate::http::Response;
use memtrack_recorder::events::read_pages;
use memtrack_report::resident;
use memtrack_report::top::TopOptions;
use memtrack_symbols::Symbolizer;

/// The number of lines of code that pin pages in `/rss`.
const PINNING_LINES: usize = 20;

pub(super) fn file(endpoints: &Endpoints) -> Response<'static> {
    endpoints.with_snapshot(|snapshot| match memtrack_file::write(&snapshot, Vec::new()) {
        Ok(file) => Response::ok("application/octet-stream", file),
        Err(error) => Response::refusal(500, &format!("the recording cannot be written: {error}")),
    })
}

#[cfg(feature = "page")]
pub(super) fn page(endpoints: &Endpoints) -> Response<'static> {
    use std::path::Path;

    endpoints.with_snapshot(|snapshot| {
        let program = Path::new(&snapshot.meta.program).file_name().unwrap_or_default().to_string_lossy();
        let mut page = Vec::new();
        match memtrack_page::Page::of_running(&snapshot, &program).write(&mut page) {
            Ok(()) => Response::ok("text/html; charset=utf-8", page),
            Err(error) => Response::refusal(500, &format!("the page cannot be written: {error}")),
        }
    })
}

/// Returns the list of what is served.
#[cfg(not(feature = "page"))]
pub(super) fn page(_: &Endpoints) -> Response<'static> {
    let text = format!("{}\nThe page needs memtrack-core's feature `page`.\n", super::list());
    Response::ok("text/plain; charset=utf-8", text.into_bytes())
}

/// Returns the table of the resident memory. Its rows add up to what the kernel counts.
pub(super) fn resident(endpoints: &Endpoints) -> Response<'static> {
    // The pages are read first, because the snapshot's tables take memory.
    let pages = read_pages();
    endpoints.with_snapshot(|mut snapshot| {
        snapshot.resident = pages.into_iter().collect();
        let options = TopOptions::new().limit(PINNING_LINES);
        match resident::resident(&snapshot, &mut Symbolizer::of(&snapshot), &options, false) {
            Some(report) => Response::ok("text/plain; charset=utf-8", format!("{report}\n").into_bytes()),
            None => Response::refusal(
                503,
                "unknown: the heap is not monitored, or the process cannot read its own pages",
            ),
        }
    })
}
