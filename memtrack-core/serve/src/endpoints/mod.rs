//! What a program serves about itself, by path. A path is a row of [`ENDPOINTS`]; `query` reads the parameters.
//!
//! - `profiles`: heap profiles in pprof's format; `metrics`: sums for Prometheus; `recording`: the recording so far, and
//!   the page of it.
//! - `monitoring` starts monitoring when a request needs it, and stops it when none has needed it for a while.

mod metrics;
mod monitoring;
mod profiles;
mod query;
mod recording;

use crate::http::{Handler, Load, Request, Response};
use memtrack_model::Snapshot;
use memtrack_recorder::events::{ForkCell, session};
use memtrack_recorder::reentry;
use monitoring::Monitor;
use query::Query;
use std::sync::Mutex;

pub use monitoring::{Monitoring, StartMonitoring};

/// A path, and what it serves.
struct Endpoint {
    path: &'static str,
    about: &'static str,
    load: Load,
    respond: fn(&Endpoints, &Query<'_>, Option<&str>) -> Response<'static>,
}

/// The routing table. What needs the recording calls [`Endpoints::with_snapshot`].
const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        path: "/",
        about: "the memory now, as a page for the browser",
        load: Load::Heavy,
        respond: |endpoints, _, _| recording::page(endpoints),
    },
    Endpoint {
        path: "/metrics",
        about: "sums for Prometheus",
        load: Load::Light,
        respond: |_, _, accept| metrics::respond(accept),
    },
    Endpoint {
        path: "/debug/pprof/heap",
        about: "heap profile in pprof's format: in use now; ?seconds=N: the change in N seconds",
        load: Load::Heavy,
        respond: |endpoints, query, _| profiles::heap(endpoints, query),
    },
    Endpoint {
        path: "/debug/pprof/allocs",
        about: "the same profile, with allocations first",
        load: Load::Heavy,
        respond: |endpoints, query, _| profiles::allocs(endpoints, query),
    },
    Endpoint {
        path: "/rss",
        about: "where the resident memory is, as text",
        load: Load::Heavy,
        respond: |endpoints, _, _| recording::resident(endpoints),
    },
    Endpoint {
        path: "/snapshot.memtrack",
        about: "the recording so far, for the command memtrack",
        load: Load::Heavy,
        respond: |endpoints, _, _| recording::file(endpoints),
    },
];

/// Responses about the program.
#[derive(Debug)]
pub struct Endpoints {
    monitor: Monitor,
}

/// Locked while a snapshot is taken and used, so that there is one at a time.
static SNAPSHOT: ForkCell<Mutex<()>> = ForkCell::new(|| Mutex::new(()));

impl Endpoints {
    /// Creates the responses. Without `monitoring`, requests do not start it.
    pub fn new(monitoring: Option<Monitoring>) -> Self {
        let _inside = reentry::enter();
        Self { monitor: Monitor::new(monitoring) }
    }

    /// Returns the response to a `GET`. The caller must be inside memtrack, or the memory that this takes is
    /// recorded as the program's.
    pub fn respond(&self, request: Request<'_>) -> Response<'static> {
        let Request { path_and_query, accept } = request;
        let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
        let query = match Query::parse(query) {
            Ok(query) => query,
            Err(why) => return Response::refusal(400, &why),
        };
        match find(path) {
            Some(endpoint) => (endpoint.respond)(self, &query, accept),
            None => {
                Response::refusal(404, &format!("nothing is served at this path; there are:\n{}", list()))
            }
        }
    }

    /// Calls `respond` with a snapshot of what is recorded now. Starts monitoring if requests may start it; if nothing is
    /// being monitored, returns a response with the reason.
    fn with_snapshot(&self, respond: impl FnOnce(Snapshot) -> Response<'static>) -> Response<'static> {
        let _use = match self.monitor.begin_use() {
            Ok(in_use) => in_use,
            Err(refusal) => return refusal,
        };
        let _one_at_a_time = SNAPSHOT.lock();
        match session::snapshot() {
            Some(snapshot) => respond(snapshot),
            None => Response::refusal(
                503,
                "no snapshot can be taken: monitoring has just ended, or memory is short",
            ),
        }
    }
}

impl Handler for Endpoints {
    fn load(&self, request: Request<'_>) -> Load {
        let path = request.path_and_query.split('?').next().unwrap_or_default();
        find(path).map_or(Load::Light, |endpoint| endpoint.load)
    }

    fn respond(&self, request: Request<'_>) -> Response<'_> {
        Self::respond(self, request)
    }
}

fn find(path: &str) -> Option<&'static Endpoint> {
    ENDPOINTS.iter().find(|endpoint| endpoint.path == path)
}

/// Returns the list of all paths, a line each.
fn list() -> String {
    ENDPOINTS.iter().map(|endpoint| format!("{:20} {}\n", endpoint.path, endpoint.about)).collect()
}
