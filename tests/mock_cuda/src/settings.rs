//! The settings in the environment, read once. An invalid value ends the program: a test that misspells a setting must not
//! pass.

use std::fs::File;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, OnceLock};

use crate::status::Status;

/// The environment, parsed.
pub(crate) struct Settings {
    /// `MEMTRACK_MOCK_DEVICES`: the number of devices, 1 by default.
    pub devices: usize,
    /// `MEMTRACK_MOCK_TOTAL`: bytes of each device, 16 GiB by default.
    pub total: u64,
    /// `MEMTRACK_MOCK_POOLS`: 0 for a device without `cuMemAllocAsync`.
    pub pools: bool,
    /// `MEMTRACK_MOCK_POOL_CHUNK`: bytes by which a pool grows, 32 MiB by default.
    pub pool_chunk: u64,
    /// `MEMTRACK_MOCK_CONTEXT_BYTES`: bytes of the device that a context uses, 0 by default.
    pub context_bytes: u64,
    /// `MEMTRACK_MOCK_OTHER_BYTES`: bytes of each device that other processes use, 0 by default.
    pub other_bytes: u64,
    /// `MEMTRACK_MOCK_EVENT_QUERIES`: how many queries of a recorded event return "not ready", 0 by default.
    pub event_queries: u64,
    /// `MEMTRACK_MOCK_INIT_ERROR`: the status that `cuInit` returns.
    pub init_error: i32,
    /// `MEMTRACK_MOCK_DRIVER_VERSION`: 12080 for 12.8, the default.
    pub driver_version: i32,
    /// `MEMTRACK_MOCK_FAIL=NAME:CODE[:AFTER[:TIMES]]`: the function does nothing and returns the code, after `AFTER`
    /// successful calls, for `TIMES` calls or all.
    pub fail: Option<Failure>,
    /// `MEMTRACK_MOCK_NESTED`: 1 for a driver that allocates pitched memory with the `cuMemAlloc_v2` that `dlsym` finds.
    pub nested: bool,
    /// `MEMTRACK_MOCK_TRACE`: a file for one line per call.
    pub trace: Option<Mutex<File>>,
    /// `MEMTRACK_MOCK_SUMMARY`: a file for the counts at exit, one line of JSON per process; `-` is standard error.
    pub summary: Option<PathBuf>,
}

/// An injected failure.
pub(crate) struct Failure {
    pub name: String,
    pub status: Status,
    /// The calls of the function that fail.
    pub calls: std::ops::Range<u64>,
}

/// Returns the settings of this process.
pub(crate) fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| Settings {
        devices: number("DEVICES", 1),
        total: number("TOTAL", 16 << 30),
        pools: number("POOLS", 1u8) != 0,
        pool_chunk: number("POOL_CHUNK", 32u64 << 20).max(1),
        context_bytes: number("CONTEXT_BYTES", 0),
        other_bytes: number("OTHER_BYTES", 0),
        event_queries: number("EVENT_QUERIES", 0),
        init_error: number("INIT_ERROR", 0),
        driver_version: number("DRIVER_VERSION", 12_080),
        fail: text("FAIL").map(|value| injected(&value)),
        nested: number("NESTED", 0u8) != 0,
        trace: text("TRACE").map(|path| Mutex::new(open(&path))),
        summary: text("SUMMARY").map(PathBuf::from),
    })
}

fn text(name: &str) -> Option<String> {
    std::env::var(format!("MEMTRACK_MOCK_{name}")).ok().filter(|value| !value.is_empty())
}

fn number<T: FromStr>(name: &str, default: T) -> T {
    text(name).map_or(default, |value| parse(name, &value))
}

fn parse<T: FromStr>(name: &str, value: &str) -> T {
    value.parse().unwrap_or_else(|_| refuse(name, value))
}

fn injected(value: &str) -> Failure {
    let parts: Vec<&str> = value.split(':').collect();
    let [name, code, ref calls @ ..] = parts[..] else { refuse("FAIL", value) };
    let calls: Vec<u64> = calls.iter().map(|number| parse("FAIL", number)).collect();
    let calls = match calls[..] {
        [] => 0..u64::MAX,
        [after] => after..u64::MAX,
        [after, times] => after..after.saturating_add(times),
        _ => refuse("FAIL", value),
    };
    Failure { name: name.into(), status: Status(parse("FAIL", code)), calls }
}

fn open(path: &str) -> File {
    File::options().create(true).append(true).open(path).unwrap_or_else(|_| refuse("TRACE", path))
}

fn refuse(name: &str, value: &str) -> ! {
    eprintln!("mock CUDA driver: MEMTRACK_MOCK_{name}={value} cannot be used");
    std::process::exit(2);
}
