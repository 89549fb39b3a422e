//! The HTTP server: HTTP/1.1 `GET` and `HEAD`, one request for each connection.

mod connection;
mod forked;
mod hosts;
mod message;
mod permits;
mod server;

pub use hosts::Hosts;
pub use message::{Handler, Load, Request, Response};
pub use server::Server;
