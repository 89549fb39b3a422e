//! The load: threads that send requests over one connection each, the next as soon as the last is answered.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// The number of connections.
const CONNECTIONS: u64 = 2;

/// The requests of a slice of time.
#[derive(Debug, Default)]
pub struct Slice {
    latencies_us: Vec<u32>,
    seconds: f64,
    /// The processor time of the service.
    pub processor_ns: u64,
}

impl Slice {
    pub fn requests(&self) -> usize {
        self.latencies_us.len()
    }

    pub fn ns_per_request(&self) -> f64 {
        self.processor_ns as f64 / self.requests() as f64
    }

    pub fn per_second(&self) -> f64 {
        (self.requests() as f64 / self.seconds).round()
    }

    /// Returns the latency that 99 % of the requests do not exceed, in microseconds.
    pub fn p99_us(&self) -> f64 {
        // Sorted by `load`.
        f64::from(self.latencies_us[(self.latencies_us.len() - 1) * 99 / 100])
    }
}

struct Connection {
    stream: BufReader<TcpStream>,
    body: Vec<u8>,
}

impl Connection {
    fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), body: Vec::new() })
    }

    /// Sends a request and returns the body of the response.
    fn request(&mut self, number: u64) -> io::Result<&[u8]> {
        let request = format!("GET /items/{number} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut length = None;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(text) = line.strip_prefix("content-length: ") {
                length = text.trim().parse().ok();
            }
        }
        let length = length.ok_or(io::ErrorKind::InvalidData)?;
        self.body.resize(length, 0);
        self.stream.read_exact(&mut self.body)?;
        Ok(&self.body)
    }
}

/// Sends requests over all connections for a time.
pub fn load(port: u16, time: Duration) -> io::Result<Slice> {
    let begun = Instant::now();
    let work = |seed: u64| -> io::Result<Vec<u32>> {
        let mut connection = Connection::open(port)?;
        let mut latencies = Vec::new();
        let mut number = seed << 20;
        while begun.elapsed() < time || latencies.is_empty() {
            number += 1;
            let sent = Instant::now();
            connection.request(number)?;
            latencies.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
        }
        Ok(latencies)
    };
    let parts: io::Result<Vec<Vec<u32>>> = thread::scope(|threads| {
        let workers: Vec<_> = (0..CONNECTIONS).map(|seed| threads.spawn(move || work(seed))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a client does not panic")).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let mut latencies_us = parts?.concat();
    latencies_us.sort_unstable();
    Ok(Slice { latencies_us, seconds, processor_ns: 0 })
}

/// Sends requests one after the other, and returns all answers.
pub fn send(port: u16, requests: u64) -> io::Result<String> {
    let mut connection = Connection::open(port)?;
    let mut answers = String::new();
    for number in 0..requests {
        answers += &String::from_utf8_lossy(connection.request(number)?);
    }
    Ok(answers)
}
