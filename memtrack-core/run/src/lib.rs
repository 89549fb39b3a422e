//! The program's side of `memtrack run`: the command puts its settings in the environment, and each process that inherits them
//! records into the command's shared memory. A process that never calls the driver does nothing but map the beginning of
//! that memory, unless the host's heap is recorded too.
//!
//! Two packages use this one. memtrack-cuda starts recording at the first driver call, in a program that links memtrack
//! as well as in one that memtrack-preload is loaded into. memtrack-preload reports the events of C's heap, and the
//! programs that are started.
//!
//! The modules:
//!
//! - `heap`: C's heap as a source of events.
//! - `census`: counts the programs that are not recorded; `limits`: starts them without the preload library.
//!
//! This package is part of `memtrack-core`, and has no API for programs.
#![cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(unsafe_code)]

mod census;
pub mod heap;
mod limits;

use memtrack_recorder::recorder::{Options, session, with_room};
use memtrack_recorder::signals::{CancellationBlocked, SignalsBlocked};
use memtrack_recorder::stack::modules::{binary_at, loaded_modules};
use memtrack_recorder::{environment, reentry, set_internal_code, shared_memory};
use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

pub use census::{Environment, Started};
pub use memtrack_model::run_protocol::*;

static IN_PRELOADED_LIBRARY: AtomicBool = AtomicBool::new(false);

/// Declares that this code is in the preload library, which is being loaded, and connects to the command. Returns whether
/// the process is connected.
pub fn on_library_load() -> bool {
    IN_PRELOADED_LIBRARY.store(true, Ordering::Relaxed);
    let is_connected = connect();
    if is_connected {
        census::prepare();
    }
    is_connected
}

/// Returns whether this code is in the preload library.
pub fn is_in_preloaded_library() -> bool {
    IN_PRELOADED_LIBRARY.load(Ordering::Relaxed)
}

/// Returns whether the address-space limit is too small for recording.
pub fn has_no_room() -> bool {
    environment::address_space_limit().is_some_and(|limit| limit < environment::ROOM_BYTES)
}

/// Returns whether the program's heap is to be recorded too.
pub fn wants_heap() -> bool {
    environment::variable(HOST).is_some()
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

/// Connects to the command's shared memory if the environment names it. Returns whether the process is connected.
pub fn connect() -> bool {
    let path = environment::variable(MEMORY).and_then(|path| CString::new(path.as_bytes()).ok());
    let Some(path) = path else { return false };
    if environment::has_address_space() {
        return shared_memory::connect(&path);
    }
    shared_memory::count_this_program(&path);
    false
}

/// Starts recording, in a process that is connected.
pub fn begin() {
    let _inside = reentry::enter();
    if !shared_memory::has_arena() {
        return;
    }
    let context = environment::text(STACKS).and_then(|stacks| stacks.parse().ok()).unwrap_or_default();
    let mut options = Options::new().context(context);
    if heap::is_without_sizes() || environment::text(HOST).as_deref() == Some(EXACT) {
        options = options.exact();
    } else if shared_memory::is_beyond_limit() {
        options = options.smallest_budget();
    }
    (options.under_run, options.host_heap) = (true, wants_heap());
    if is_in_preloaded_library() {
        hide_internal_frames();
    }
    let _signals_blocked = SignalsBlocked::now();
    // Only output files can make this fail, and there are none.
    let _ = session::start(&options);
}

/// Hides memtrack's own frames: in the preload library, which has no symbols, they carry no information.
fn hide_internal_frames() {
    let here = begin as *const () as u64;
    let listed = || {
        let modules = loaded_modules().into_iter().map(|module| module.start..module.end);
        modules.into_iter().find(|code| code.contains(&here))
    };
    if let Some(code) = binary_at(here).or_else(listed) {
        set_internal_code(code);
    }
}
