//! The hook's part in `memtrack run`: the first hooked call of each process that inherits the command's settings starts
//! recording. What the process does besides is in memtrack-run.
//!
//! It also handles a process whose driver calls bypass the hook, because its executable exports its own `dlsym`. The CUDA
//! memory of such a process is not recorded, and the command reports this if the process has loaded the driver.
//!
//! Not API: only the preload library of the `memtrack` command uses it.
#![allow(unsafe_code)]

use super::hook;
use memtrack_recorder::recorder::{driver_readings, key_of_thread_end, with_room};
use memtrack_recorder::signals::CancellationBlocked;
use memtrack_recorder::{reentry, shared_memory};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

pub use super::hook::{LookupWatcher, binary_of, next_symbol, process_symbol, watch_lookups};

/// Whether the first hooked call has been made, or recording has started or cannot start.
static REQUESTED: AtomicBool = AtomicBool::new(false);
/// Whether driver calls bypass the hook of the preload library.
static IS_BYPASSED: AtomicBool = AtomicBool::new(false);

/// Prepares recording when the preload library is loaded.
///
/// If the host's heap is to be recorded, recording starts here, otherwise at the first hooked call.
pub fn on_library_load() {
    let _inside = reentry::enter();
    hook::hide_absent_names();
    if !memtrack_run::on_library_load() {
        // This happens if the command has ended, or if this program has other permissions or another root folder.
        REQUESTED.store(true, Ordering::Relaxed);
        return;
    }
    if !hook::is_in_place() {
        IS_BYPASSED.store(true, Ordering::Relaxed);
        shared_memory::note_bypass(&hook::owner_of_dlsym());
    }
    if memtrack_run::wants_heap() {
        key_of_thread_end();
        // Recording starts even if the hook is not in place, because heap calls do not pass through the hook.
        REQUESTED.store(true, Ordering::Relaxed);
        let _ = std::panic::catch_unwind(begin);
    }
}

/// Stops the driver readings that precede snapshots, and reports to the command if driver calls bypassed the hook. Called
/// when the process exits.
pub fn on_library_unload() {
    hook::stop_readings();
    with_room(note_bypassed_driver);
}

/// Reports to the command if driver calls bypassed the hook. Called before an `exec`, or an exit without handlers.
pub fn report_before_exit() {
    let _no_cancellation = CancellationBlocked::now();
    let _ = std::panic::catch_unwind(|| with_room(note_bypassed_driver));
}

/// Looks up a name by a handle of the loader, as if the hook were not there.
///
/// # Safety
/// The handle must be from `dlopen` and not be closed, or be a pseudo-handle.
pub unsafe fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    hook::look_up(handle, name)
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
    let is_connected =
        memtrack_run::is_in_preloaded_library() || hook::is_in_place() && memtrack_run::connect();
    if !is_connected {
        return;
    }
    if hook::is_in_place() { begin() } else { note_bypassed_driver() }
}

/// Makes the recorder take a reading of the driver before each snapshot.
fn attach_to_recorder() {
    driver_readings::set_reader(hook::read_on_this_thread);
}

/// Starts recording.
fn begin() {
    attach_to_recorder();
    memtrack_run::begin();
}

/// Reports to the command that the process has loaded the driver, if calls bypass the hook. May be called in a signal
/// handler.
fn note_bypassed_driver() {
    // `is_other_copy_in_place` calls the program's `dlsym`, which may need state that the program's constructors
    // prepare. It is therefore called here, and not already when the library is loaded.
    if IS_BYPASSED.load(Ordering::Relaxed) && driver_is_mapped() && !hook::is_other_copy_in_place() {
        shared_memory::note_bypassed_driver();
    }
}

/// Returns whether the process has loaded the driver's library, according to its memory mappings. The loader is not
/// called, because an interrupted thread may hold its lock.
fn driver_is_mapped() -> bool {
    const NAME: &[u8] = b"/libcuda.so";
    let mut buffer = [0_u8; 4096];
    // SAFETY: a C string; the bytes read go into the buffer, and the descriptor was opened here.
    unsafe {
        let maps = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if maps < 0 {
            return false;
        }
        let mut kept = 0;
        let mut found = false;
        while !found {
            let room = &mut buffer[kept..];
            let count = libc::read(maps, room.as_mut_ptr().cast(), room.len());
            let Some(count) = usize::try_from(count).ok().filter(|&count| count > 0) else { break };
            let length = kept + count;
            found = buffer[..length].windows(NAME.len()).any(|window| window == NAME);
            // The end of the buffer may contain the beginning of the name, so it is kept for the next read.
            kept = length.min(NAME.len() - 1);
            buffer.copy_within(length - kept..length, 0);
        }
        libc::close(maps);
        found
    }
}
