//! What recording costs a service: throughput and latency of an axum service under load, without memtrack, with memtrack
//! idle, and recording.
//!
//! `service_load [--seconds S] [--slice-ms MS]` starts the same service once for each mode and sends requests to one after the
//! other, a slice of time each, for S seconds (120) altogether. All services run during all of the time, and each slice is
//! compared with the slice of `without` in the same round, so a machine that gets slower or busier affects all modes alike.
//! Prints a table of ratios. `--short` sends a few requests to each mode, checks the answers, and judges no time.

mod client;
mod service;

use client::Slice;
use memtrack_core::TrackingAllocator;
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();

/// The modes. All are compared with the first one.
const MODES: [(&str, &str); 4] = [
    ("without", "without memtrack"),
    ("idle", "`TrackingAllocator`, nothing recording"),
    ("service", "`Options::service()`, streaming"),
    ("default", "default options, streaming"),
];

/// A running service.
struct Service {
    process: Child,
    output: BufReader<ChildStdout>,
    port: u16,
    slices: Vec<Slice>,
}

impl Service {
    fn start(mode: &str, folder: &Path) -> Result<Self, Box<dyn Error>> {
        let program = std::env::current_exe()?;
        let mut command = match mode {
            "without" => Command::new(program.with_file_name("service_load_plain")),
            _ => Command::new(&program),
        };
        command.args(["serve", mode]).arg(folder.join(format!("{mode}.memtrack")));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut output = BufReader::new(process.stdout.take().ok_or("stdout is piped")?);
        let mut line = String::new();
        output.read_line(&mut line)?;
        Ok(Self { process, output, port: line.trim().parse()?, slices: Vec::new() })
    }

    /// Returns the processor time of the service's threads so far, in nanoseconds. No thread ends before the service does.
    fn processor_ns(&self) -> Result<u64, Box<dyn Error>> {
        let mut sum = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.process.id()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            sum += text.split(' ').next().ok_or("a schedstat has numbers")?.parse::<u64>()?;
        }
        Ok(sum)
    }

    /// Ends the service. Returns the bytes that memtrack held in it, if it recorded.
    fn end(mut self) -> Result<Option<u64>, Box<dyn Error>> {
        drop(self.process.stdin.take());
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if !self.process.wait()?.success() {
            return Err("a service failed".into());
        }
        Ok(line.trim().strip_prefix("own ").and_then(|bytes| bytes.parse().ok()))
    }
}

/// The median of some ratios, and the range of the middle half.
fn spread(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[((ratios.len() - 1) as f64 * share).round() as usize];
    format!("{:.3} × ({:.3} to {:.3})", at(0.5), at(0.25), at(0.75))
}

fn run(total: Duration, slice: Duration) -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("memtrack-service-load-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let mut services = Vec::new();
    for (mode, _) in MODES {
        services.push(Service::start(mode, &folder)?);
    }
    // Until the services have their threads, caches and connections.
    for service in &services {
        client::load(service.port, slice)?;
    }
    let begun = Instant::now();
    let mut round = 0;
    while begun.elapsed() < total || round == 0 {
        // Each round in another order.
        for place in 0..services.len() {
            let service = &mut services[(round + place) % MODES.len()];
            let before = service.processor_ns()?;
            let mut slice = client::load(service.port, slice)?;
            slice.processor_ns = service.processor_ns()? - before;
            service.slices.push(slice);
        }
        round += 1;
    }
    println!(
        "{round} rounds of {slice:?}, {} requests a second without memtrack\n",
        services[0].slices[0].per_second()
    );
    println!("| | requests per second | p99 | processor time per request | memtrack's own memory |");
    println!("|---|---:|---:|---:|---:|");
    let baseline = std::mem::take(&mut services[0].slices);
    for ((_, name), service) in MODES.into_iter().zip(services).skip(1) {
        let slices = &service.slices;
        let ratios = |of: fn(&Slice) -> f64| {
            spread(slices.iter().zip(&baseline).map(|(a, b)| of(a) / of(b)).collect())
        };
        let [rate, p99, time] = [Slice::per_second, Slice::p99_us, Slice::ns_per_request].map(ratios);
        let own = service
            .end()?
            .map_or(String::new(), |bytes| format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64));
        println!("| {name} | {rate} | {p99} | {time} | {own} |");
    }
    fs::remove_dir_all(folder)?;
    Ok(())
}

/// Sends a few requests to each mode.
fn check() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("memtrack-service-check-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    for (mode, _) in MODES {
        let service = Service::start(mode, &folder)?;
        let answers = client::send(service.port, 200)?;
        if answers != client::send(service.port, 200)? || !answers.contains("part-31: ") {
            return Err(format!("{mode}: the answers are wrong").into());
        }
        let own = service.end()?;
        if own.is_some() != ["service", "default"].contains(&mode) {
            return Err(format!("{mode}: the own memory is {own:?}").into());
        }
        if mode == "service" && own.is_some_and(|bytes| bytes > 64 << 20) {
            return Err(format!("{mode}: memtrack holds {own:?} bytes").into());
        }
        println!(
            "{mode}: 400 requests answered, memtrack's own memory: {}",
            own.map_or("none".into(), |own| format!("{own} bytes"))
        );
    }
    fs::remove_dir_all(folder)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, mode, path] = &arguments[..]
        && serve == "serve"
    {
        return service::serve(mode, path);
    }
    let (mut total, mut slice) = (Duration::from_secs(120), Duration::from_millis(250));
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || rest.next().and_then(|text| text.parse::<u64>().ok()).ok_or("expected a number");
        match argument.as_str() {
            "--short" => return check(),
            "--seconds" => total = Duration::from_secs(number()?),
            "--slice-ms" => slice = Duration::from_millis(number()?.max(1)),
            _ => return Err("usage: service_load [--seconds S] [--slice-ms MS] | --short".into()),
        }
    }
    run(total, slice)
}
