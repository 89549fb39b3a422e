//! One connection: reads a request, and writes its response. Both have time limits that no client can extend by being slow,
//! because they apply to the whole request and the whole response and not to each read and write.

use super::message::{Handler, Load, Request, Response};
use super::server::Shared;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// The maximum size of a request's head in bytes. Requests from browsers have one or two thousand.
const MAX_REQUEST_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 96;
/// The time limit for receiving a request.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// The time limit for sending a response, and the bytes for each of which it is one second longer.
const RESPONSE_TIME: Duration = Duration::from_secs(20);
const BYTES_PER_SECOND: usize = 1 << 20;
/// The time limit for the rest of what a client sends, and the maximum size of the rest. If a connection is closed while
/// there are unread bytes, the client receives an error instead of the response.
const REST_TIME: Duration = Duration::from_secs(1);
const MAX_REST_BYTES: usize = 256 << 10;

/// Answers the connection's request, and closes the connection.
pub(super) fn answer<H: Handler>(shared: &Shared<H>, mut stream: TcpStream) {
    // An error means that the client has closed the connection, or is too slow, so it cannot be reported to the client.
    let _ = read_and_answer(shared, &mut stream);
    close(&mut stream);
}

/// Sends the response for a busy server to a client whose request has not been read, without waiting.
pub(super) fn refuse_at_once(mut stream: TcpStream) {
    let refuse = |stream: &mut TcpStream| {
        stream.set_nonblocking(true)?;
        let mut ignored = [0; 4096];
        let _ = stream.read(&mut ignored);
        let response = Response::busy();
        // A new connection has room for these few bytes.
        let _ = stream.write(&[response.head().as_bytes(), &response.body].concat())?;
        stream.shutdown(Shutdown::Both)
    };
    let _: io::Result<()> = refuse(&mut stream);
}

fn read_and_answer<H: Handler>(shared: &Shared<H>, stream: &mut TcpStream) -> io::Result<()> {
    let deadline = Instant::now() + REQUEST_TIME;
    let mut request = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        let read = match read_before(stream, &mut buffer, deadline) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if is_timeout(&error) => {
                return write(stream, &Response::refusal(408, "the request took too long"), true);
            }
            Err(error) => return Err(error),
        };
        request.extend_from_slice(&buffer[..read]);
        if respond(shared, stream, &request)? {
            return Ok(());
        }
        if request.len() > MAX_REQUEST_BYTES {
            return write(stream, &Response::refusal(431, "the request's headers are too large"), true);
        }
    }
}

/// Answers the request; returns false if it is incomplete.
fn respond<H: Handler>(shared: &Shared<H>, stream: &mut TcpStream, request: &[u8]) -> io::Result<bool> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Partial) => return Ok(false),
        Ok(httparse::Status::Complete(_)) => {}
        Err(error) => {
            write(stream, &Response::refusal(400, &format!("this is no HTTP request: {error}")), true)?;
            return Ok(true);
        }
    }
    let mut hosts = parsed.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    let (host, second) = (hosts.next().map(|header| header.value), hosts.next());
    let local = stream.local_addr()?;
    let is_allowed = second.is_none() && host.is_some_and(|host| shared.hosts.allows(host, local));
    let accept = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case("accept"));
    let accept = accept.and_then(|header| std::str::from_utf8(header.value).ok());
    let (with_body, path) = (parsed.method != Some("HEAD"), parsed.path.unwrap_or_default());
    let refusal = if !is_allowed {
        Response::refusal(421, "this server does not answer for the host that the request names")
    } else if !matches!(parsed.method, Some("GET" | "HEAD")) {
        Response::refusal(405, "only GET and HEAD are answered")
    } else {
        let request = Request { path_and_query: path, accept };
        // Held until the response has been sent: a slow client of large responses must not make the server keep many.
        let permits = match shared.handler.load(request) {
            Load::Light => &shared.light,
            Load::Heavy => &shared.heavy,
        };
        if let Some(_permit) = permits.take() {
            let respond = AssertUnwindSafe(|| shared.handler.respond(request));
            let response = catch_unwind(respond).unwrap_or_else(|_| {
                Response::refusal(500, "this response could not be made: a bug in memtrack")
            });
            write(stream, &response, with_body)?;
            return Ok(true);
        }
        Response::busy()
    };
    write(stream, &refusal, with_body)?;
    Ok(true)
}

fn write(stream: &mut TcpStream, response: &Response<'_>, with_body: bool) -> io::Result<()> {
    let body = if with_body { &*response.body } else { &[] };
    let more_seconds = (body.len() / BYTES_PER_SECOND) as u64;
    let deadline = Instant::now() + RESPONSE_TIME + Duration::from_secs(more_seconds);
    write_before(stream, response.head().as_bytes(), deadline)?;
    write_before(stream, body, deadline)
}

/// Ends the connection in both directions, also for copies of it in forked children, after the client has received the
/// response.
fn close(stream: &mut TcpStream) {
    let deadline = Instant::now() + REST_TIME;
    let mut rest = 0;
    if stream.shutdown(Shutdown::Write).is_ok() {
        let mut ignored = [0; 4096];
        while rest < MAX_REST_BYTES {
            match read_before(stream, &mut ignored, deadline) {
                Ok(0) | Err(_) => break,
                Ok(read) => rest += read,
            }
        }
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn read_before(stream: &mut TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
    loop {
        stream.set_read_timeout(Some(time_until(deadline)?))?;
        match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn write_before(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_until(deadline)?))?;
        // The standard library sends with MSG_NOSIGNAL, so a closed connection raises no signal.
        match stream.write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the time until the deadline, which is not 0, because a timeout of 0 would be none.
fn time_until(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left.max(Duration::from_micros(1))) }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}
