//! A small HTTP server inside a program, and what it serves: the program's heap profile, its metrics, a page and a recording.
//! `memtrack view --serve` uses the same server.
//!
//! The modules:
//!
//! - `http`: the server. [`Server`] listens, `connection` reads a request and writes its response, each within a time
//!   limit, `hosts` checks the `Host` header, and `forked` closes the server's port in forked children.
//! - `endpoints` (feature `endpoints`): the routing table (`Endpoints`), and one module for each kind of response.
//!
//! **Why not hyper or axum?** The threads of the server must be outside the recording, must not receive the program's signals
//! and must not slow down the program, so a runtime that the program may also use is no help. There are a few requests a
//! minute, each for one small answer. Parsing the head is left to `httparse`.
//!
//! This package is part of `memtrack-core`, which re-exports the public API; depend on `memtrack-core` instead.

#[cfg(feature = "endpoints")]
mod endpoints;
mod http;

#[cfg(feature = "endpoints")]
pub use endpoints::{Endpoints, Monitoring, StartMonitoring};
pub use http::{Handler, Hosts, Load, Request, Response, Server};
