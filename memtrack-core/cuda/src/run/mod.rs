//! The hook's part in `memtrack run`: the command puts its settings in the environment, and the first hooked call of
//! each process that inherits them starts recording, into the command's shared memory. A process that never calls the
//! driver does nothing but map the beginning of that memory.
//!
//! Not API: only the `memtrack` command and its preload library use it.
#![allow(unsafe_code)]

#[doc(hidden)]
pub mod census;
#[doc(hidden)]
pub mod heap;
mod limits;
#[doc(hidden)]
pub mod mapped;
mod unhooked;

use super::hook;
use memtrack_recorder::environment;
use memtrack_recorder::recorder::{
    Options, driver_readings, key_of_thread_end, session, set_internal_code, with_room,
};
use memtrack_recorder::signals::{CancellationBlocked, SignalsBlocked};
use memtrack_recorder::stack::modules::{binary_at, loaded_modules};
use memtrack_recorder::{reentry, shared_memory};
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

pub use super::hook::LookupWatcher;
pub use census::{Environment, Started};
pub use memtrack_model::run_protocol::*;

static REQUESTED: AtomicBool = AtomicBool::new(false);
static IN_PRELOADED_LIBRARY: AtomicBool = AtomicBool::new(false);

/// Prepares recording when the preload library is loaded.
///
/// If the host's heap is to be recorded, recording starts here, otherwise at the first hooked call.
pub fn on_library_load() {
    IN_PRELOADED_LIBRARY.store(true, Ordering::Relaxed);
    let _inside = reentry::enter();
    hook::hide_absent_names();
    if !connect() {
        // This happens if the command has ended, or if this program has other permissions or another root folder.
        REQUESTED.store(true, Ordering::Relaxed);
        return;
    }
    unhooked::prepare();
    census::prepare();
    if wants_heap() {
        key_of_thread_end();
        // Recording starts even if the hook is not in place, because heap calls do not pass through the hook.
        REQUESTED.store(true, Ordering::Relaxed);
        let _ = std::panic::catch_unwind(begin);
    }
}

/// Returns whether the address-space limit is too small for recording.
pub fn has_no_room() -> bool {
    environment::address_space_limit().is_some_and(|limit| limit < environment::ROOM_BYTES)
}

/// Returns whether the program's heap is to be recorded too.
pub fn wants_heap() -> bool {
    environment::variable(HOST).is_some()
}

/// Stops the driver readings that precede snapshots, and reports to the command if driver calls bypassed the hook. Called
/// when the process exits.
pub fn on_library_unload() {
    hook::stop_readings();
    with_room(unhooked::note_driver);
}

/// Reports to the command if driver calls bypassed the hook. Called before an `exec`, or an exit without handlers.
pub fn report_before_exit() {
    let _no_cancellation = CancellationBlocked::now();
    let _ = std::panic::catch_unwind(|| with_room(unhooked::note_driver));
}

/// Counts a program that is about to be started, or to replace this one, if it cannot be recorded. A program that `has_no_room`
/// counts too; it is [executed without the library](without_library).
///
/// # Safety
/// The arguments must be as the C library requires them: C strings, and a list of them that ends with null. Each may
/// be null.
pub unsafe fn count_if_unrecorded(program: Started, environment: Environment, has_no_room: bool) {
    let _no_cancellation = CancellationBlocked::now();
    // SAFETY: the caller guarantees the same.
    let count = || with_room(|| unsafe { census::count_unrecorded(program, environment, has_no_room) });
    let _ = std::panic::catch_unwind(count);
}

/// Executes a program without the preload library, by calling `execute` with an environment that does not contain the library.
/// Returns if `execute` fails, or without calling it if the environment does not contain the library or is too large.
///
/// # Safety
/// The environment must be as the C library requires it: null, or a list of C strings that ends with null.
pub unsafe fn without_library(environment: Environment, execute: impl FnOnce(*const *const c_char)) {
    // This may run in a child that shares this process's memory (`vfork`), so nothing that would have to be undone may
    // be held here.
    // SAFETY: the caller guarantees the same.
    unsafe { limits::without_library(environment, execute) };
}

/// Returns the next function with this name after the preload library in the loader's search order; null if there is
/// none.
pub fn next_symbol(name: &CStr) -> *mut c_void {
    hook::next_symbol(name)
}

/// Returns the function with this name to which the executable is bound; null if there is none.
pub fn process_symbol(name: &CStr) -> *mut c_void {
    hook::process_symbol(name)
}

/// Makes the process's `dlsym` call `watcher` before each look-up, with its arguments. The watcher may be called at any
/// time, on any thread.
pub fn watch_lookups(watcher: LookupWatcher) {
    hook::watch_lookups(watcher);
}

/// Looks up a name by a handle of the loader, as if the hook were not there.
pub fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    hook::look_up(handle, name)
}

/// Returns how often the program has closed a library.
pub fn closed_libraries() -> usize {
    memtrack_recorder::events::closed_libraries()
}

/// Returns the load address of the binary that contains an address; null if there is no such binary.
pub fn binary_of(address: *const c_void) -> *const c_void {
    hook::binary_of(address)
}

/// Starts recording if the environment requests it. Every hooked call calls this function, which costs one load after
/// the first call.
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
    let _inside = reentry::enter();
    // The preload library connected when it was loaded. A program that links memtrack connects here, unless the preload
    // library is there as well.
    let is_connected = IN_PRELOADED_LIBRARY.load(Ordering::Relaxed) || hook::is_in_place() && connect();
    if !is_connected {
        return;
    }
    if hook::is_in_place() { begin() } else { unhooked::note_driver() }
}

/// Makes the recorder take a reading of the driver before each snapshot.
fn attach_to_recorder() {
    driver_readings::set_reader(hook::read_on_this_thread);
}

/// Connects to the command's shared memory if the environment names it. Returns whether the process is connected.
fn connect() -> bool {
    let path = environment::variable(MEMORY).and_then(|path| CString::new(path.as_bytes()).ok());
    let Some(path) = path else { return false };
    if environment::has_address_space() {
        return shared_memory::connect(&path);
    }
    shared_memory::count_this_program(&path);
    false
}

/// Starts recording.
fn begin() {
    attach_to_recorder();
    let _inside = reentry::enter();
    if !shared_memory::has_arena() {
        return;
    }
    let context = environment::text(STACKS).and_then(|stacks| stacks.parse().ok()).unwrap_or_default();
    let mut options = Options::new().context(context);
    if heap::is_without_sizes() {
        options = options.exact();
    } else if shared_memory::is_beyond_limit() {
        options = options.smallest_budget();
    }
    (options.under_run, options.host_heap) = (true, wants_heap());
    if IN_PRELOADED_LIBRARY.load(Ordering::Relaxed) {
        hide_internal_frames();
    }
    let _signals_blocked = SignalsBlocked::now();
    // Only output files can make this fail, and there are none.
    let _ = session::start(&options);
}

/// Hides memtrack's own frames: in the preload library, which has no symbols, they carry no information.
fn hide_internal_frames() {
    let here = start_if_requested as *const () as u64;
    let listed = || {
        let modules = loaded_modules().into_iter().map(|module| module.start..module.end);
        modules.into_iter().find(|code| code.contains(&here))
    };
    if let Some(code) = binary_at(here).or_else(listed) {
        set_internal_code(code);
    }
}
