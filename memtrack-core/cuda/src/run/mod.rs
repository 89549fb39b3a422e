//! The hook's part in `memtrack run`: the command puts its settings in the environment, and the first hooked call of
//! each process that inherits them starts recording. A process that never calls the driver does nothing at all.
//!
//! Not API: only the `memtrack` command and its preload library use it.
#![allow(unsafe_code)]

#[doc(hidden)]
pub mod census;
mod dumps;
#[doc(hidden)]
pub mod heap;
mod kept;
mod unhooked;

use super::hook;
use memtrack_recorder::environment;
use memtrack_recorder::recorder::report_hook::{self, SYMBOL_TIME};
use memtrack_recorder::recorder::{Options, driver_readings, exit, session, set_internal_code, with_room};
use memtrack_recorder::signals::{CancellationBlocked, SignalsBlocked};
use memtrack_recorder::stack::modules::loaded_modules;
use memtrack_recorder::{message, reentry};
use memtrack_report::analysis::holds::for_the_log;
use std::ffi::{CStr, OsStr, OsString, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub use census::{Environment, Started};
pub use memtrack_model::run_protocol::*;

static REQUESTED: AtomicBool = AtomicBool::new(false);
static ENDS_WITH_LIBRARY: AtomicBool = AtomicBool::new(false);

/// Begins when the preload library was loaded: it will call [`library_ends`] when the process exits, later than
/// handlers of `atexit` would run, so that frees in the program's own handlers are recorded too.
///
/// If the host's heap is requested, every program is recorded from here on, otherwise from its first hooked call.
pub fn library_begins() {
    ENDS_WITH_LIBRARY.store(true, Ordering::Relaxed);
    message::remember_destination();
    exit::set_handled_elsewhere();
    unhooked::prepare();
    census::prepare();
    if wants_heap() {
        // Also without the hook: heap calls do not pass through it.
        REQUESTED.store(true, Ordering::Relaxed);
        let _ = std::panic::catch_unwind(begin);
    }
}

/// Returns whether the program's heap is to be recorded too.
pub fn wants_heap() -> bool {
    environment::variable(HOST).is_some()
}

/// Writes the recording when the process, and the preload library with it, exits.
pub fn library_ends() {
    // A panic must not cross into C; its message has been printed by then.
    let _no_cancellation = CancellationBlocked::now();
    let _ = std::panic::catch_unwind(|| {
        with_room(dumps::at_exit);
        exit::write_at_exit();
        with_room(unhooked::warn);
    });
}

/// Writes the recording so far before an `exec`, or an exit without handlers.
pub fn before_the_end() {
    let _no_cancellation = CancellationBlocked::now();
    let _ = std::panic::catch_unwind(|| {
        exit::flush();
        with_room(unhooked::warn_in_the_first);
    });
}

/// Checks a program that is about to be started, or to replace this one: one that cannot be recorded is counted.
///
/// # Safety
/// As for the C library, which gets the same arguments: C strings, and a list of them that ends with null. Each may
/// be null.
pub unsafe fn before_a_start(program: Started, environment: Environment) {
    let _no_cancellation = CancellationBlocked::now();
    // SAFETY: the caller's promise.
    let count = || with_room(|| unsafe { census::starts(program, environment) });
    let _ = std::panic::catch_unwind(count);
}

/// Returns the function of this name after the preload library's own; null if there is none.
pub fn next_symbol(name: &CStr) -> *mut c_void {
    hook::next_symbol(name)
}

/// Returns whether [`library_ends`] will be called.
pub(crate) fn ends_with_library() -> bool {
    ENDS_WITH_LIBRARY.load(Ordering::Relaxed)
}

/// Starts recording if the environment requests it. Called by every hooked call; all but the first are a load.
#[inline(always)]
pub(crate) fn begin_if_requested() {
    if !REQUESTED.load(Ordering::Relaxed) {
        start_if_requested();
    }
}

#[cold]
fn start_if_requested() {
    join_the_recorder();
    if REQUESTED.swap(true, Ordering::Relaxed) {
        return;
    }
    if hook::is_in_place() { begin() } else { unhooked::warn() }
}

/// Snapshots of the recorder read the driver's figures first.
fn join_the_recorder() {
    driver_readings::set_reader(hook::on_this_thread);
}

/// Starts recording if the environment requests it.
fn begin() {
    join_the_recorder();
    let _inside = reentry::enter();
    let Some(requested) = environment::variable(OUTPUT) else { return };
    let is_the_program = is_the_program();
    if !is_the_program && !census::may_begin() {
        return;
    }
    let Some(output) = free_name(Path::new(&requested), is_the_program) else { return };
    let max_entries = number(MAX_ENTRIES).unwrap_or(1 << 20);
    let context = environment::text(STACKS).and_then(|stacks| stacks.parse().ok()).unwrap_or_default();
    let options = Options::new().context(context).max_entries(max_entries).stream_to(&output);
    let options = number(MAX_BYTES).map_or(options.clone(), |max_bytes| options.max_bytes(max_bytes));
    let mut options = options;
    (options.is_of_run, options.host_heap) = (true, wants_heap());
    if ends_with_library() {
        hide_internal_frames();
    }
    options.report_on_oom = true;
    report_hook::set_formatter(|snapshot, context| {
        for_the_log(snapshot, context.refused.copied(), context.since, SYMBOL_TIME)
    });
    let _signals_blocked = SignalsBlocked::now();
    match session::start(&options) {
        Ok(_) => dumps::begin(&output, &environment::text(SNAPSHOT_ON).unwrap_or_default()),
        Err(error) => message::print(format_args!("nothing is recorded: {error}")),
    }
}

/// In the preload library, which has no symbols, frames of memtrack's own carry no information.
fn hide_internal_frames() {
    let here = start_if_requested as *const () as u64;
    if let Some(own) = loaded_modules().into_iter().find(|module| (module.start..module.end).contains(&here))
    {
        set_internal_code(own.start..own.end);
    }
}

/// Returns whether this process is the one that the command started, and not one of its children.
fn is_the_program() -> bool {
    number(COMMAND) == Some(u64::from(std::os::unix::process::parent_id()))
}

/// Returns a name that no other process of the run has taken, nor this one before an `exec`.
fn free_name(requested: &Path, is_the_program: bool) -> Option<PathBuf> {
    let with = |suffixes: &[u32]| {
        let mut name: OsString = requested.into();
        for suffix in suffixes {
            name.push(OsStr::new(&format!(".{suffix}")));
        }
        PathBuf::from(name)
    };
    let pid = std::process::id();
    let first = is_the_program.then(|| with(&[]));
    let others = std::iter::once(with(&[pid])).chain((1..1000).map(|count| with(&[pid, count])));
    first.into_iter().chain(others).find(|name| {
        let mut options = std::fs::File::options();
        // Only the owner may write it, regardless of the program's umask.
        std::os::unix::fs::OpenOptionsExt::mode(options.read(true).write(true).create_new(true), 0o644);
        let made = options.open(name);
        // The session reports a file that cannot be created for another reason.
        made.is_ok_and(|_| true) || !name.exists()
    })
}

fn number(name: &str) -> Option<u64> {
    environment::text(name)?.parse().ok()
}
