//! `memtrack view --serve`: serves a page on the loopback address, for snapshots too large for one HTML file. The browser
//! requests each table when it is shown.
//!
//! Other programs on this machine, and pages of other sites in the same browser, can reach the port. Every path therefore starts
//! with a random token that only the printed address contains, and requests with any other `Host` are rejected, which prevents
//! DNS rebinding.

use crate::error::CliError;
use memtrack_core::page::Page;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The maximum size of a request in bytes. Requests from browsers have one or two thousand.
const MAX_REQUEST_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 96;
/// The maximum number of requests to answer at a time. A browser makes six.
const MAX_CONCURRENT: usize = 32;
/// The time limit for receiving a request, and for sending a response.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A server for one page.
pub(crate) struct Server {
    listener: TcpListener,
    port: u16,
    /// 128 random bits in hexadecimal.
    token: String,
    page: Page,
    html: Vec<u8>,
    busy: AtomicUsize,
}

impl Server {
    /// Listens on `port` of the loopback address, or on any free port if `port` is 0.
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
        Ok(Self { listener, port, token, page, html, busy: AtomicUsize::new(0) })
    }

    /// Returns the address to open in a browser.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// Answers requests until the process ends.
    ///
    /// # Errors
    /// Fails if no more connections can be accepted.
    pub(crate) fn run(&self) -> Result<(), CliError> {
        std::thread::scope(|scope| {
            loop {
                let stream = match self.listener.accept() {
                    Ok((stream, _)) => stream,
                    // The client gave up, or a signal arrived.
                    Err(error)
                        if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) =>
                    {
                        continue;
                    }
                    Err(error) => break Err(CliError::Io(format!("cannot continue serving: {error}"))),
                };
                // Close the connection, because no browser makes this many requests at a time.
                if self.busy.fetch_add(1, Ordering::Relaxed) >= MAX_CONCURRENT {
                    self.busy.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let answer = move || {
                    // An error means that the client closed the connection, so it cannot be reported to the client.
                    let _ = self.answer_request(stream);
                    self.busy.fetch_sub(1, Ordering::Relaxed);
                };
                if std::thread::Builder::new().spawn_scoped(scope, answer).is_err() {
                    self.busy.fetch_sub(1, Ordering::Relaxed);
                }
            }
        })
    }

    /// Answers one request and closes the connection.
    fn answer_request(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut request = Vec::new();
        let mut buffer = [0u8; 4096];
        let answer = loop {
            let taken = match stream.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(taken) => taken,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            request.extend_from_slice(&buffer[..taken]);
            if let Some(answer) = self.respond(&request) {
                break answer;
            }
            if request.len() > MAX_REQUEST_BYTES {
                break Response::rejection("431 Request Header Fields Too Large");
            }
        };
        answer.write(&mut stream)
    }

    /// Returns the response to a request, or `None` while the request is incomplete.
    fn respond(&self, request: &[u8]) -> Option<Response<'_>> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(request) {
            Ok(httparse::Status::Partial) => return None,
            Ok(httparse::Status::Complete(_)) => {}
            Err(_) => return Some(Response::rejection("400 Bad Request")),
        }
        let hosts: Vec<&[u8]> = parsed
            .headers
            .iter()
            .filter(|header| header.name.eq_ignore_ascii_case("host"))
            .map(|header| header.value)
            .collect();
        let own = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", self.port));
        if !matches!(hosts[..], [host] if own.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(host))) {
            return Some(Response::rejection("421 Misdirected Request"));
        }
        let body = match parsed.method {
            Some("GET") => true,
            Some("HEAD") => false,
            _ => return Some(Response::rejection("405 Method Not Allowed")),
        };
        let found = parsed.path.and_then(|path| self.find_response(path));
        Some(found.map_or_else(|| Response::rejection("404 Not Found"), |answer| Response { body, ..answer }))
    }

    fn find_response(&self, path: &str) -> Option<Response<'_>> {
        let inside = path.strip_prefix('/')?.strip_prefix(&*self.token)?.strip_prefix('/')?;
        if inside.is_empty() {
            return Some(Response::of("text/html; charset=utf-8", &self.html));
        }
        let number = inside.strip_prefix("section/")?.parse().ok()?;
        Some(Response::of("application/octet-stream", self.page.section(number)?))
    }
}

struct Response<'a> {
    status: &'static str,
    kind: &'static str,
    content: &'a [u8],
    /// Whether to send the content and not only the headers.
    body: bool,
}

impl<'a> Response<'a> {
    fn of(kind: &'static str, content: &'a [u8]) -> Self {
        Self { status: "200 OK", kind, content, body: true }
    }

    fn rejection(status: &'static str) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", content: status.as_bytes(), body: true }
    }

    fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        write!(
            stream,
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
             X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n\r\n",
            self.status,
            self.kind,
            self.content.len()
        )?;
        if self.body {
            stream.write_all(self.content)?;
        }
        stream.flush()
    }
}
