//! The server: one thread that accepts connections, and a bounded number of threads that answer them.

use super::connection::{answer, refuse_at_once};
use super::forked;
use super::hosts::Hosts;
use super::message::Handler;
use super::permits::Permits;
use memtrack_recorder::events::generation;
use memtrack_recorder::{background, reentry};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The maximum number of connections at a time, each of which has a thread. A client that sends or reads slowly holds one
/// of them, and no other resource, until its time is over.
const MAX_CONNECTIONS: usize = 64;
/// The maximum numbers of requests at a time that cost little, and much.
const MAX_LIGHT: usize = 16;
const MAX_HEAVY: usize = 4;
/// The pause after a failure to accept a connection, such as when the process has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// A running server. Dropping it stops it.
pub struct Server {
    address: SocketAddr,
    running: Arc<Running>,
    /// The generation of the process that the threads belong to.
    generation: u32,
}

/// What the server's threads share.
pub(super) struct Shared<H> {
    pub(super) handler: H,
    pub(super) hosts: Hosts,
    pub(super) light: Permits,
    pub(super) heavy: Permits,
    connections: Permits,
}

/// The state of the thread that accepts connections.
struct Running {
    listener: Mutex<Option<Arc<TcpListener>>>,
    is_stopping: AtomicBool,
    end: Mutex<Option<io::Result<()>>>,
    has_ended: Condvar,
}

impl Server {
    /// Listens on `address`, as in `127.0.0.1:6060` or `[::1]:6060`, or on any free port if its port is 0.
    ///
    /// # Errors
    /// Fails if the address cannot be resolved or is in use, or if the system has no thread left. The error contains the
    /// address.
    pub fn start<H: Handler>(address: &str, hosts: Hosts, handler: H) -> io::Result<Self> {
        let _inside = reentry::enter();
        Self::on(listen(address)?, hosts, handler).map_err(|error| describe(address, &error))
    }

    /// Serves on a listening socket.
    ///
    /// # Errors
    /// Fails if the system has no thread left.
    pub fn on<H: Handler>(listener: TcpListener, hosts: Hosts, handler: H) -> io::Result<Self> {
        let _inside = reentry::enter();
        let listener = Arc::new(listener);
        let bound = listener.local_addr()?;
        forked::add(&listener);
        let running = Arc::new(Running {
            listener: Mutex::new(Some(Arc::clone(&listener))),
            is_stopping: AtomicBool::new(false),
            end: Mutex::new(None),
            has_ended: Condvar::new(),
        });
        let (light, heavy) = (Permits::new(MAX_LIGHT), Permits::new(MAX_HEAVY));
        let shared =
            Arc::new(Shared { handler, hosts, light, heavy, connections: Permits::new(MAX_CONNECTIONS) });
        let of_thread = Arc::clone(&running);
        let started = background::spawn(c"memtrack-serve", move || {
            let result = accept_all(&listener, &shared, &of_thread.is_stopping);
            drop(listener);
            of_thread.close();
            *lock(&of_thread.end) = Some(result);
            of_thread.has_ended.notify_all();
        });
        if let Err(error) = started {
            running.close();
            return Err(error);
        }
        Ok(Self { address: bound, running, generation: generation() })
    }

    /// Returns the address that the server listens on, with its port.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections and frees the port. Requests that are being answered continue.
    ///
    /// In a forked child, which has no server, it does nothing.
    pub fn stop(self) {}

    /// Waits until the server ends, which it does only after a failure.
    ///
    /// # Errors
    /// Fails if no more connections can be accepted.
    pub fn wait(self) -> io::Result<()> {
        self.running.wait()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _inside = reentry::enter();
        if self.generation != generation() {
            return;
        }
        self.running.is_stopping.store(true, Ordering::Release);
        if let Some(listener) = &*lock(&self.running.listener) {
            // Wakes the thread in `accept`.
            let _ = rustix::net::shutdown(listener, rustix::net::Shutdown::Both);
        }
        let _ = self.running.wait();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Running {
    /// Waits until the thread has ended and the port is free.
    fn wait(&self) -> io::Result<()> {
        let mut end = lock(&self.end);
        loop {
            if let Some(result) = end.take() {
                *end = Some(Ok(()));
                return result;
            }
            end = self.has_ended.wait(end).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        if let Some(listener) = lock(&self.listener).take() {
            forked::remove(&listener);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(address: &str) -> io::Result<TcpListener> {
    let addresses: Vec<SocketAddr> = address
        .to_socket_addrs()
        .map_err(|error| {
            let help = "write it as 127.0.0.1:6060 or localhost:6060";
            io::Error::new(error.kind(), format!("{address:?} is no address to serve on ({error}): {help}"))
        })?
        .collect();
    TcpListener::bind(&*addresses).map_err(|error| describe(address, &error))
}

fn describe(address: &str, error: &io::Error) -> io::Error {
    let help = match error.kind() {
        ErrorKind::AddrInUse => "; another server listens there, and port 0 is any free port",
        ErrorKind::AddrNotAvailable => "; this machine does not have the address",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot serve on {address}: {error}{help}"))
}

/// Accepts connections until the server stops, and starts a thread for each.
fn accept_all<H: Handler>(
    listener: &TcpListener,
    shared: &Arc<Shared<H>>,
    is_stopping: &AtomicBool,
) -> io::Result<()> {
    while !is_stopping.load(Ordering::Acquire) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(_) if is_stopping.load(Ordering::Acquire) => return Ok(()),
            // The program has closed the descriptor, or it is no longer the server's.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EBADF | libc::EINVAL | libc::ENOTSOCK)) =>
            {
                return Err(io::Error::new(error.kind(), format!("cannot continue serving: {error}")));
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {
                continue;
            }
            Err(_) => {
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        let of_thread = Arc::clone(shared);
        // The thread takes its own permit, so that it need not borrow from this thread.
        let Some(permit) = shared.connections.take() else {
            refuse_at_once(stream);
            continue;
        };
        std::mem::forget(permit);
        // If there is no thread, the connection is closed.
        let started = background::spawn(c"memtrack-answer", move || {
            let _permit = of_thread.connections.taken();
            answer(&of_thread, stream);
        });
        if started.is_err() {
            drop(shared.connections.taken());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Load, Request, Response};
    use std::io::{Read, Write};
    use std::net::TcpStream;

    /// Panics, or returns 64 MiB, by path.
    struct Extreme;

    const LARGE: usize = 64 << 20;

    impl Handler for Extreme {
        fn load(&self, _: Request<'_>) -> Load {
            Load::Heavy
        }

        fn respond(&self, request: Request<'_>) -> Response<'_> {
            match request.path_and_query {
                "/large" => Response::ok("text/plain", vec![b'x'; LARGE]),
                "/small" => Response::ok("text/plain", &b"small"[..]),
                path => panic!("{path}"),
            }
        }
    }

    fn request(server: &Server, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(server.local_addr()).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream
    }

    fn response(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn start() -> Server {
        Server::start("localhost:0", Hosts::of_server(), Extreme).unwrap()
    }

    #[test]
    fn a_panic_is_status_500_and_the_server_goes_on() {
        let server = start();
        for _ in 0..2 * MAX_HEAVY {
            assert!(
                response(request(&server, "/panic")).starts_with("HTTP/1.1 500 Internal Server Error\r\n")
            );
        }
        assert!(response(request(&server, "/small")).ends_with("\r\n\r\nsmall"));
    }

    #[test]
    fn clients_that_do_not_read_hold_few_responses() {
        let server = start();
        // Each holds a permit, because so many bytes do not fit into the socket's buffers.
        let slow: Vec<TcpStream> = (0..MAX_HEAVY)
            .map(|_| {
                let mut stream = request(&server, "/large");
                stream.read_exact(&mut [0; 1]).unwrap();
                stream
            })
            .collect();
        let refusal = response(request(&server, "/small"));
        assert!(
            refusal.starts_with("HTTP/1.1 503 ") && refusal.contains("\r\nRetry-After: 1\r\n"),
            "{refusal}"
        );
        // When one of them reads, there is room again.
        let mut slow = slow.into_iter();
        assert!(response(slow.next().unwrap()).len() > LARGE);
        while response(request(&server, "/small")).starts_with("HTTP/1.1 503") {
            std::thread::yield_now();
        }
    }

    #[test]
    fn stopping_does_not_wait_for_responses() {
        let server = start();
        let mut stream = request(&server, "/large");
        stream.read_exact(&mut [0; 1]).unwrap();
        let address = server.local_addr();
        server.stop();
        assert!(TcpStream::connect(address).is_err());
        assert!(response(stream).len() >= LARGE);
    }
}
