//! Requests, responses, and the trait that turns the ones into the others.

use std::borrow::Cow;

/// A request whose method and host have been checked.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The path and the query, as in `/debug/pprof/heap?seconds=5`.
    pub path_and_query: &'a str,
    /// The value of the header `Accept`: the types of content that the client prefers.
    pub accept: Option<&'a str>,
}

/// What a request costs to answer, which determines how many requests of its kind are answered at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Little time and memory.
    Light,
    /// A snapshot, or a large response.
    Heavy,
}

/// The source of a server's responses.
pub trait Handler: Send + Sync + 'static {
    /// Returns what the request costs to answer.
    fn load(&self, request: Request<'_>) -> Load;

    /// Returns the response. It is called on one of the server's threads, several at a time. If it panics, the client
    /// receives the status 500.
    fn respond(&self, request: Request<'_>) -> Response<'_>;
}

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response<'a> {
    /// The status, such as 200.
    pub status: u16,
    /// The value of the header `Content-Type`.
    pub content_type: &'static str,
    /// The content.
    pub body: Cow<'a, [u8]>,
    /// For the status 503, the seconds after which the client may try again; the value of the header `Retry-After`.
    pub retry_after_seconds: Option<u32>,
}

impl<'a> Response<'a> {
    /// Creates a successful response.
    pub fn ok(content_type: &'static str, body: impl Into<Cow<'a, [u8]>>) -> Self {
        Self { status: 200, content_type, body: body.into(), retry_after_seconds: None }
    }

    /// Creates a response that explains in a line of text why there is no other.
    pub fn refusal(status: u16, why: &str) -> Self {
        let body = Cow::Owned(format!("{why}\n").into_bytes());
        Self { status, content_type: "text/plain; charset=utf-8", body, retry_after_seconds: None }
    }

    /// Creates the response for a client that should try again.
    pub(crate) fn busy() -> Self {
        let refusal = Self::refusal(503, "too many requests are being answered: try again in a second");
        Self { retry_after_seconds: Some(1), ..refusal }
    }

    /// Returns the content.
    pub fn into_body(self) -> Vec<u8> {
        self.body.into_owned()
    }

    /// Returns the status line and the headers.
    pub(super) fn head(&self) -> String {
        let retry =
            self.retry_after_seconds.map_or(String::new(), |after| format!("Retry-After: {after}\r\n"));
        format!(
            "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{retry}Connection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\n\r\n",
            self.status,
            reason(self.status),
            self.content_type,
            self.body.len()
        )
    }
}

/// Returns the reason phrase of a status.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        409 => "Conflict",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "",
    }
}
