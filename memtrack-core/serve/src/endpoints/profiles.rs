//! `/debug/pprof/heap` and `/debug/pprof/allocs`, with the parameters of Go's handlers: the profile of the memory in use now
//! and of all allocations, or, with `seconds`, how both change meanwhile.

use super::Endpoints;
use super::query::Query;
use crate::http::Response;
use memtrack_exports::heap::{self, Earlier, FirstValue};
use memtrack_model::Snapshot;
use memtrack_symbols::Symbolizer;
use std::time::Duration;

pub(super) fn heap(endpoints: &Endpoints, query: &Query<'_>) -> Response<'static> {
    profile(endpoints, query, FirstValue::InUse)
}

pub(super) fn allocs(endpoints: &Endpoints, query: &Query<'_>) -> Response<'static> {
    profile(endpoints, query, FirstValue::Allocated)
}

fn profile(endpoints: &Endpoints, query: &Query<'_>, first: FirstValue) -> Response<'static> {
    if query.debug.is_some() {
        let why = "only debug=0 is served, the compressed format: open it with `go tool pprof` or pprof.me";
        return Response::refusal(400, why);
    }
    let Some(seconds) = query.seconds else {
        return endpoints.with_snapshot(|now| written(&now, None, first));
    };
    // In use also during the pause, so that monitoring does not end.
    let _use = match endpoints.monitor.begin_use() {
        Ok(in_use) => in_use,
        Err(refusal) => return refusal,
    };
    let mut earlier = None;
    let begun = endpoints.with_snapshot(|snapshot| {
        earlier = Some(Earlier::of(&snapshot));
        Response::ok("", Vec::new())
    });
    let Some(earlier) = earlier else { return begun };
    std::thread::sleep(Duration::from_secs(seconds));
    endpoints.with_snapshot(|now| written(&now, Some(&earlier), first))
}

fn written(now: &Snapshot, since: Option<&Earlier>, first: FirstValue) -> Response<'static> {
    let mut body = Vec::new();
    match heap::write(now, &mut Symbolizer::of(now), since, first, &mut body) {
        Ok(()) => Response::ok("application/octet-stream", body),
        Err(error) => Response::refusal(409, &error.to_string()),
    }
}
