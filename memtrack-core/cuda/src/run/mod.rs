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
use memtrack_report::analysis::holds::log_text;
use std::ffi::{CStr, OsStr, OsString, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub use census::{Environment, Started};
pub use memtrack_model::run_protocol::*;

static REQUESTED: AtomicBool = AtomicBool::new(false);
static ENDS_WITH_LIBRARY: AtomicBool = AtomicBool::new(false);

/// Prepares recording when the preload library is loaded. The library will call [`on_library_unload`] when the process
/// exits, after the handlers of `atexit`, so that frees in the program's own handlers are recorded too.
///
/// If the host's heap is to be recorded, recording starts here, otherwise at the first hooked call.
pub fn on_library_load() {
    ENDS_WITH_LIBRARY.store(true, Ordering::Relaxed);
    message::remember_destination();
    exit::set_handled_elsewhere();
    unhooked::prepare();
    census::prepare();
    if wants_heap() {
        // Also where the hook is not in place: heap calls do not pass through it.
        REQUESTED.store(true, Ordering::Relaxed);
        let _ = std::panic::catch_unwind(begin);
    }
}

/// Returns whether the program's heap is to be recorded too.
pub fn wants_heap() -> bool {
    environment::variable(HOST).is_some()
}

/// Writes the recording when the preload library is unloaded because the process exits.
pub fn on_library_unload() {
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
        with_room(unhooked::warn_in_first_process);
    });
}

/// Counts a program that is about to be started, or to replace this one, if it cannot be recorded.
///
/// # Safety
/// The arguments must be as the C library requires them: C strings, and a list of them that ends with null. Each may
/// be null.
pub unsafe fn before_a_start(program: Started, environment: Environment) {
    let _no_cancellation = CancellationBlocked::now();
    // SAFETY: the caller guarantees the same.
    let count = || with_room(|| unsafe { census::count_unrecorded(program, environment) });
    let _ = std::panic::catch_unwind(count);
}

/// Returns the next function of that name after the preload library in the loader's search order; null if there is none.
pub fn next_symbol(name: &CStr) -> *mut c_void {
    hook::next_symbol(name)
}

/// Returns whether [`on_library_unload`] will be called.
pub(crate) fn ends_with_library() -> bool {
    ENDS_WITH_LIBRARY.load(Ordering::Relaxed)
}

/// Starts recording if the environment requests it. Every hooked call calls this; after the first it costs one load.
#[inline(always)]
pub(crate) fn begin_if_requested() {
    if !REQUESTED.load(Ordering::Relaxed) {
        start_if_requested();
    }
}

#[cold]
fn start_if_requested() {
    attach_to_recorder();
    if REQUESTED.swap(true, Ordering::Relaxed) {
        return;
    }
    if hook::is_in_place() { begin() } else { unhooked::warn() }
}

/// Makes the recorder take a reading of the driver before each snapshot.
fn attach_to_recorder() {
    driver_readings::set_reader(hook::read_on_this_thread);
}

/// Starts recording if the environment requests it.
fn begin() {
    attach_to_recorder();
    let _inside = reentry::enter();
    let Some(requested) = environment::variable(OUTPUT) else { return };
    let is_first = is_started_by_command();
    if !is_first && !census::may_begin() {
        return;
    }
    let Some(output) = reserve_name(Path::new(&requested), is_first) else { return };
    let max_entries = number(MAX_ENTRIES).unwrap_or(1 << 20);
    let context = environment::text(STACKS).and_then(|stacks| stacks.parse().ok()).unwrap_or_default();
    let options = Options::new().context(context).max_entries(max_entries).stream_to(&output);
    let options = number(MAX_BYTES).map_or(options.clone(), |max_bytes| options.max_bytes(max_bytes));
    let mut options = options;
    (options.under_run, options.host_heap) = (true, wants_heap());
    if ends_with_library() {
        hide_internal_frames();
    }
    options.report_on_oom = true;
    report_hook::set_formatter(|snapshot, context| {
        log_text(snapshot, context.refused.copied(), context.since, SYMBOL_TIME)
    });
    let _signals_blocked = SignalsBlocked::now();
    match session::start(&options) {
        Ok(_) => dumps::begin(&output, &environment::text(SNAPSHOT_ON).unwrap_or_default()),
        Err(error) => message::print(format_args!("nothing is recorded: {error}")),
    }
}

/// Hides memtrack's own frames: in the preload library, which has no symbols, they carry no information.
fn hide_internal_frames() {
    let here = start_if_requested as *const () as u64;
    if let Some(own) = loaded_modules().into_iter().find(|module| (module.start..module.end).contains(&here))
    {
        set_internal_code(own.start..own.end);
    }
}

/// Returns whether this is the process that the command started, and not a child of that process.
fn is_started_by_command() -> bool {
    number(COMMAND_PID) == Some(u64::from(std::os::unix::process::parent_id()))
}

/// Creates the file of the recording under a name that neither another process of the run uses, nor this process before
/// an `exec`. Returns the name.
fn reserve_name(requested: &Path, is_first: bool) -> Option<PathBuf> {
    let with_suffixes = |suffixes: &[u32]| {
        let mut name: OsString = requested.into();
        for suffix in suffixes {
            name.push(OsStr::new(&format!(".{suffix}")));
        }
        PathBuf::from(name)
    };
    let pid = std::process::id();
    let plain = is_first.then(|| with_suffixes(&[]));
    let numbered = (1..1000).map(|count| with_suffixes(&[pid, count]));
    let others = std::iter::once(with_suffixes(&[pid])).chain(numbered);
    plain.into_iter().chain(others).find(|name| {
        let mut options = std::fs::File::options();
        // Only the owner may write the file, regardless of the program's umask.
        std::os::unix::fs::OpenOptionsExt::mode(options.read(true).write(true).create_new(true), 0o644);
        let created = options.open(name);
        // The session reports a file that cannot be created for another reason.
        created.is_ok_and(|_| true) || !name.exists()
    })
}

fn number(name: &str) -> Option<u64> {
    environment::text(name)?.parse().ok()
}
