//! A small HTTP client for tests, which sends each request on a new connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A response.
#[derive(Debug)]
pub struct HttpResponse {
    /// The status.
    pub status: u16,
    /// The status line and the headers.
    pub head: String,
    /// The content.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// Returns the content as text.
    ///
    /// # Panics
    /// When it is no text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the content is text")
    }

    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns the value of a metric, as in `memtrack_live_bytes{device="host"}`, from the response of `/metrics`.
    ///
    /// # Panics
    /// When its value is no number.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let value = self.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        Some(value.parse().expect("the value of a metric is a number"))
    }
}

/// Sends `GET path` to a server, and names `localhost` as the host.
///
/// # Panics
/// When the server does not answer.
pub fn get(address: SocketAddr, path: &str) -> HttpResponse {
    send(address, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
}

/// Sends a request as it is.
///
/// # Panics
/// When the server does not answer.
pub fn send(address: SocketAddr, request: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.write_all(request.as_bytes()).expect("the server reads");
    read(stream)
}

/// Reads the response from a connection.
///
/// # Panics
/// When there is none.
pub fn read(mut stream: TcpStream) -> HttpResponse {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the server answers");
    let end = all.windows(4).position(|window| window == b"\r\n\r\n").expect("a response has a head") + 4;
    let body = all.split_off(end);
    let head = String::from_utf8(all).expect("a head is text");
    let status =
        head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a response has a status");
    HttpResponse { status, head, body }
}
