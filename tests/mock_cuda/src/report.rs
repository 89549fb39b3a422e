//! Access to the counts for tests: functions that a program finds with `dlsym`, and a line of JSON at exit.

use std::ffi::c_char;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::counters::Count;
use crate::machine::{Machine, machine};
use crate::proc_address::STUBS;
use crate::settings::settings;

/// Live streams.
pub(crate) static STREAMS: AtomicI64 = AtomicI64::new(0);
/// Live events.
pub(crate) static EVENTS: AtomicI64 = AtomicI64::new(0);
/// Kernels launched.
pub(crate) static LAUNCHES: AtomicI64 = AtomicI64::new(0);

/// Returns the counts of a device. `device`: a device's number, -1 for all devices together, -2 for the host.
fn counts_of(machine: &Machine, device: i32, kind: i32) -> Option<Count> {
    match device {
        -2 => machine.host().counters.count(kind),
        -1 => (0..machine.devices() as i32).try_fold(Count::default(), |sum, device| {
            let count = counts_of(machine, device, kind)?;
            Some(Count {
                allocations: sum.allocations + count.allocations,
                frees: sum.frees + count.frees,
                live_bytes: sum.live_bytes + count.live_bytes,
                peak_bytes: sum.peak_bytes + count.peak_bytes,
            })
        }),
        _ => machine.device(device).ok()?.counters.count(kind),
    }
}

/// Returns one count. `device`: a device's number, -1 all, -2 the host. `kind`: 0 `cuMemAlloc`, 1 pitched, 2 managed,
/// 3 pooled, 4 arrays, 5 `cuMemCreate`, 6 pinned, 7 registered, 8 opened by IPC, -1 all but the last. `what`:
/// 0 allocations, 1 frees, 2 live bytes, 3 peak of live bytes, 4 live blocks. Returns -1 if there is no such device, kind or
/// count; before `cuInit`, every count is 0.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_mock_count(device: i32, kind: i32, what: i32) -> i64 {
    let Ok(machine) = machine() else { return 0 };
    let Some(count) = counts_of(machine, device, kind) else { return -1 };
    match what {
        0 => count.allocations,
        1 => count.frees,
        2 => count.live_bytes,
        3 => count.peak_bytes,
        4 => count.allocations - count.frees,
        _ => -1,
    }
}

/// Returns the live bytes of a device; `device` as in [`memtrack_mock_count`].
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_mock_live_bytes(device: i32) -> i64 {
    memtrack_mock_count(device, -1, 2)
}

/// Returns the live blocks of a device.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_mock_live_blocks(device: i32) -> i64 {
    memtrack_mock_count(device, -1, 4)
}

/// Returns the number of live streams (0), live events (1) or kernel launches (2).
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_mock_objects(what: i32) -> i64 {
    match what {
        0 => STREAMS.load(Ordering::Relaxed),
        1 => EVENTS.load(Ordering::Relaxed),
        2 => LAUNCHES.load(Ordering::Relaxed),
        _ => -1,
    }
}

/// Returns the entry points that the mock knows only by name, separated by spaces.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_mock_stubs() -> *const c_char {
    STUBS.as_ptr()
}

/// Registers the summary to be written when the process exits.
pub(crate) fn at_exit() {
    extern "C" fn summary() {
        let Ok(machine) = machine() else { return };
        let text = summary_line(machine);
        // An error here can no longer be reported; the test notices that its summary is missing.
        let _ = match &settings().summary {
            Some(path) if path.as_os_str() == "-" => std::io::stderr().write_all(text.as_bytes()),
            Some(path) => std::fs::File::options()
                .create(true)
                .append(true)
                .open(path)
                .and_then(|mut file| file.write_all(text.as_bytes())),
            None => Ok(()),
        };
    }
    if settings().summary.is_some() {
        // SAFETY: registers a function that exists as long as the library.
        unsafe { libc::atexit(summary) };
    }
}

fn summary_line(machine: &Machine) -> String {
    let mut text = format!("{{\"pid\":{},\"devices\":[", std::process::id());
    for device in 0..machine.devices() as i32 {
        let comma = if device == 0 { "" } else { "," };
        push_count(&mut text, comma, counts_of(machine, device, -1));
    }
    push_count(&mut text, "],\"host\":", counts_of(machine, -2, -1));
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        ",\"streams\":{},\"events\":{},\"launches\":{}}}",
        memtrack_mock_objects(0),
        memtrack_mock_objects(1),
        memtrack_mock_objects(2)
    );
    text
}

fn push_count(text: &mut String, before: &str, count: Option<Count>) {
    let count = count.unwrap_or_default();
    let _ = write!(
        text,
        "{before}{{\"allocations\":{},\"frees\":{},\"live_bytes\":{},\"peak_bytes\":{}}}",
        count.allocations, count.frees, count.live_bytes, count.peak_bytes
    );
}
