//! The recording so far: as a file for the command `memtrack`, and as a page for the browser.

use super::Endpoints;
use crate::http::Response;

pub(super) fn file(endpoints: &Endpoints) -> Response<'static> {
    endpoints.with_snapshot(|snapshot| match memtrack_file::write(snapshot, Vec::new()) {
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
        match memtrack_page::Page::of_running(snapshot, &program).write(&mut page) {
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
