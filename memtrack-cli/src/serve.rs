//! `memtrack view --serve`: serves a page on the loopback address, for snapshots too large for one HTML file. The browser
//! requests each table when it is shown.
//!
//! Other programs on this machine, and pages of other sites in the same browser, can reach the port. Every path therefore starts
//! with a random token that only the printed address contains, and requests with any other `Host` are rejected, which prevents
//! DNS rebinding. The HTTP server is the one that programs contain (memtrack-core's feature `serve`).

use crate::error::CliError;
use memtrack_core::__http::{Handler, Hosts, Load, Request, Response, Server as HttpServer};
use memtrack_core::page::Page;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, TcpListener};

/// A server for one page.
pub(crate) struct Server {
    server: HttpServer,
    url: String,
}

/// The page, below a random path.
struct Served {
    /// 128 random bits in hexadecimal.
    token: String,
    page: Page,
    html: Vec<u8>,
}

impl Server {
    /// Serves the page on `port` of the loopback address, or on any free port if `port` is 0.
    ///
    /// # Errors
    /// Fails if the port cannot be opened, or if the system has no random numbers.
    pub(crate) fn new(page: Page, port: u16) -> Result<Self, CliError> {
        let failed = |error| CliError::Io(format!("cannot serve on 127.0.0.1:{port}: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let mut random = [0u8; 16];
        getrandom::fill(&mut random).map_err(|error| CliError::Io(format!("no random numbers: {error}")))?;
        let mut token = String::new();
        for byte in random {
            let _ = write!(token, "{byte:02x}");
        }
        let mut html = Vec::new();
        page.write_served(&mut html)?;
        let hosts = Hosts::only(["127.0.0.1", "localhost"].map(|name| format!("{name}:{port}")));
        let url = format!("http://127.0.0.1:{port}/{token}/");
        let server = HttpServer::on(listener, hosts, Served { token, page, html }).map_err(failed)?;
        Ok(Self { server, url })
    }

    /// Returns the address to open in a browser.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Answers requests until the process ends.
    ///
    /// # Errors
    /// Fails if no more connections can be accepted.
    pub(crate) fn run(self) -> Result<(), CliError> {
        self.server.wait().map_err(|error| CliError::Io(error.to_string()))
    }
}

impl Handler for Served {
    /// All responses are parts of a page that is in memory.
    fn load(&self, _: Request<'_>) -> Load {
        Load::Light
    }

    fn respond(&self, request: Request<'_>) -> Response<'_> {
        self.find(request.path_and_query).unwrap_or_else(|| Response::refusal(404, "there is no such page"))
    }
}

impl Served {
    fn find(&self, path: &str) -> Option<Response<'_>> {
        let inside = path.strip_prefix('/')?.strip_prefix(&*self.token)?.strip_prefix('/')?;
        if inside.is_empty() {
            return Some(Response::ok("text/html; charset=utf-8", &*self.html));
        }
        let number = inside.strip_prefix("section/")?.parse().ok()?;
        Some(Response::ok("application/octet-stream", self.page.section(number)?))
    }
}
