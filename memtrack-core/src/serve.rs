//! The program's memory over HTTP: heap profiles for `go tool pprof`, Pyroscope and Grafana Alloy, metrics for Prometheus, a
//! page for the browser, and the recording.
//!
//! ```
//! use memtrack_core::TrackingAllocator;
//!
//! #[global_allocator]
//! static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();
//!
//! fn main() -> std::io::Result<()> {
//!     memtrack_core::start_monitor();
//!     let server = memtrack_core::serve("127.0.0.1:0")?; // a service has a fixed port, such as 6060
//!     println!("go tool pprof http://{}/debug/pprof/heap", server.local_addr());
//!     // … the service …
//!     # use std::io::{Read, Write};
//!     # let kept = vec![1u8; 1 << 20];
//!     # let mut stream = std::net::TcpStream::connect(server.local_addr())?;
//!     # stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
//!     # let mut response = String::new();
//!     # stream.read_to_string(&mut response)?;
//!     # let live = response.lines().find_map(|line| line.strip_prefix("memtrack_live_bytes{device=\"host\"} "));
//!     # assert!(live.unwrap().parse::<u64>().unwrap() >= 1 << 20, "{response}");
//!     # drop(kept);
//!     server.stop();
//!     memtrack_core::stop();
//!     Ok(())
//! }
//! ```
//!
//! | path | content |
//! |---|---|
//! | `/debug/pprof/heap` | pprof, gzip: `inuse_space` (shown first), `inuse_objects`, `alloc_space`, `alloc_objects`; `?seconds=N` is the change in N seconds, at most 300 |
//! | `/debug/pprof/allocs` | the same, with `alloc_space` first |
//! | `/metrics` | OpenMetrics; a scrape takes no snapshot |
//! | `/` | the page of the memory now (feature `page`; otherwise a list of these paths) |
//! | `/rss` | where the resident memory is, as text ([`resident`](crate::resident())) |
//! | `/snapshot.memtrack` | the recording so far, for the command `memtrack` |
//!
//! In a profile, allocations whose stacks are not known any more are one sample without a stack, so that the totals are
//! exact. The profile's comments (`go tool pprof -comments`) contain the exact totals, and the errors of estimates.
//!
//! A program that has an HTTP server of its own can serve the same responses from it ([`respond`], [`Endpoints`]).
//!
//! # Who can read it
//! The server answers without a password: whoever can connect can read the names of the program's functions and how much
//! memory they hold, and can make it take a snapshot. Addresses such as `0.0.0.0:6060` open it to the network; do that only
//! where a firewall or a network policy admits only the scraper. Requests must name the server in their `Host` header: a
//! loopback name, the address that they were sent to, or a name added with [`ServeOptions::allow_host`]. This stops pages of
//! other sites in a browser (DNS rebinding), not other programs.
//!
//! # What it costs
//! A thread that waits, and while requests are answered a thread for each, at most 64. At most 16 requests for metrics and 4
//! for others are answered at a time; others receive the status 503. Clients that are slow to send or to read are cut off
//! after 10 or 20 seconds. The memory of the server counts as memtrack's, not as the program's.

use memtrack_recorder::reentry;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

pub use memtrack_serve::Response;

/// Serves the program's memory on `address`, such as `127.0.0.1:6060`, until the returned server is dropped. See the module
/// [`serve`](mod@crate::serve) for what is served, and to whom.
///
/// # Errors
/// Fails if the address is in use or not an address of this machine, or if the system has no thread left.
pub fn serve(address: &str) -> io::Result<Server> {
    ServeOptions::new().serve(address)
}

/// Returns the response to `GET path_and_query`, as in `/debug/pprof/heap?seconds=5`, for a program that serves it from its
/// own HTTP server. Other paths have the status 404.
///
/// ```
/// # memtrack_core::start_monitor();
/// // As a handler of axum: (StatusCode::from_u16(response.status)?, [(CONTENT_TYPE, response.content_type)], body)
/// let response = memtrack_core::serve::respond("/metrics");
/// assert_eq!(response.status, 200);
/// let body: Vec<u8> = response.into_body();
/// # assert!(body.ends_with(b"# EOF\n"));
/// # memtrack_core::stop();
/// ```
///
/// Except for `/metrics`, the call takes a snapshot, which may take a second in a large program, and with `seconds` it
/// waits that long: call it where a thread may block (`tokio::task::spawn_blocking`). The host is not checked.
pub fn respond(path_and_query: &str) -> Response<'static> {
    ServeOptions::new().endpoints().respond(path_and_query)
}

/// What is served, and to whom.
#[derive(Clone, Debug, Default)]
pub struct ServeOptions {
    hosts: Vec<String>,
    monitoring: Option<(crate::Options, Duration)>,
}

impl ServeOptions {
    /// Creates the default options: requests do not start monitoring, and name a loopback name or the server's address.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also answers requests that name this host, such as `metrics.example` (with any port) or `metrics.example:8443`. A
    /// reverse proxy that passes on the name that it was called by needs this.
    #[must_use]
    pub fn allow_host(mut self, name: &str) -> Self {
        self.hosts.push(name.to_owned());
        self
    }

    /// Starts monitoring with `options` when a request needs it (every one but `/metrics`), and stops it again when none has
    /// needed it for the time `idle`. Until then, recording costs nothing. What was allocated before is not known, so the
    /// first profile is nearly empty, and `?seconds=N` is what the next N seconds allocate.
    ///
    /// If the program itself is monitoring, its monitoring is used, and not stopped.
    #[must_use]
    pub fn start_on_request(mut self, options: crate::Options, idle: Duration) -> Self {
        self.monitoring = Some((options, idle));
        self
    }

    /// Serves on `address`; see [`serve`].
    ///
    /// # Errors
    /// Fails if the address is in use or not an address of this machine, or if the system has no thread left.
    pub fn serve(self, address: &str) -> io::Result<Server> {
        let _inside = reentry::enter();
        let mut hosts = memtrack_serve::Hosts::of_server();
        self.hosts.iter().for_each(|name| hosts.add(name));
        let endpoints = self.make_endpoints();
        Ok(Server { server: memtrack_serve::Server::start(address, hosts, endpoints)? })
    }

    /// Returns the responses, for a program that serves them from its own HTTP server. With
    /// [`start_on_request`](Self::start_on_request), keep them for as long as monitoring may stay on.
    pub fn endpoints(self) -> Endpoints {
        let _inside = reentry::enter();
        Endpoints { endpoints: self.make_endpoints() }
    }

    fn make_endpoints(&self) -> memtrack_serve::Endpoints {
        memtrack_serve::Endpoints::new(self.monitoring.as_ref().map(|(options, idle)| {
            memtrack_serve::Monitoring { options: options.clone(), idle: *idle, start: crate::monitor::begin }
        }))
    }
}

/// A running server. It stops when it is dropped, and then so does the monitoring that requests started.
///
/// A forked child has no server: its copy of the port is closed.
#[must_use = "the server stops when this is dropped"]
pub struct Server {
    server: memtrack_serve::Server,
}

impl Server {
    /// Returns the address that the server listens on. If it was started with port 0, this has the port that was chosen.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// Stops accepting requests and frees the port. Requests that are being answered continue on their threads.
    pub fn stop(self) {
        let Self { server } = self;
        server.stop();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.local_addr()).finish_non_exhaustive()
    }
}

/// The responses of a server, for a program that serves them itself. Dropping it stops the monitoring that requests
/// started.
#[derive(Debug)]
pub struct Endpoints {
    endpoints: memtrack_serve::Endpoints,
}

impl Endpoints {
    /// Returns the response to `GET path_and_query`; see [`respond`].
    pub fn respond(&self, path_and_query: &str) -> Response<'static> {
        let request = memtrack_serve::Request { path_and_query, accept: None };
        reentry::clone_for_program(|| self.endpoints.respond(request))
    }
}
