//! The service: a small shop on axum. A request for an item renders it from its parts, so it makes some hundred allocations,
//! and every fourth one changes the cache.

use axum::Router;
use axum::extract::{Path, State};
use axum::routing::get;
use memtrack_core::{Options, start_monitor_with, stop};
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fmt::Write;
use std::io::Read;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;

/// The number of rendered items that are cached.
const CACHED: u64 = 4096;

/// The cache: rendered items by number.
type Cache = Arc<Mutex<HashMap<u64, String>>>;

/// Renders an item: a description of its parts, sorted by name.
fn render(number: u64) -> String {
    let mut parts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in 0..48 {
        let name = format!("part-{:02}", (number * 31 + part * 7) % 97);
        parts.entry(name).or_default().push(format!("{} pieces of {}", part + 1, number % 13));
    }
    let mut text = String::new();
    for (name, pieces) in parts {
        let _ = writeln!(text, "{name}: {}", pieces.join(", "));
    }
    text
}

async fn item(State(cache): State<Cache>, Path(number): Path<u64>) -> String {
    let text = render(number);
    if number % 4 == 0 {
        let mut cache = cache.lock().expect("no handler panics");
        cache.insert(number % CACHED, text.clone());
    }
    text
}

/// Serves on a free port of the loopback, which it prints, until stdin ends. `mode` is `without`, `idle`, `service` or
/// `default`: what memtrack does meanwhile. Recordings are streamed to `path`.
pub fn serve(mode: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let options = match mode {
        "service" => Some(Options::service().stream_to(path).max_bytes(64 << 20)),
        "default" => Some(Options::new().stream_to(path).max_bytes(64 << 20)),
        _ => None,
    };
    if let Some(options) = &options {
        start_monitor_with(options)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_io().build()?;
    let served = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?.port());
        let router = Router::new().route("/items/{number}", get(item)).with_state(Cache::default());
        let end_of_input = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        tokio::select! {
            served = axum::serve(listener, router).into_future() => served,
            _ = end_of_input => Ok(()),
        }
    });
    if options.is_some() {
        let bytes = memtrack_core::host::own_bytes();
        drop(stop());
        println!("own {bytes}");
    }
    Ok(served?)
}
