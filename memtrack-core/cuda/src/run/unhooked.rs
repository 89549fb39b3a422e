//! Handles a process whose driver calls bypass the hook, because its executable exports its own `dlsym`. The CUDA
//! memory of such a process is not recorded, and the command reports this if the process has loaded the driver.

use super::hook;
use memtrack_recorder::shared_memory;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether driver calls bypass the hook of the preload library.
static IS_BYPASSED: AtomicBool = AtomicBool::new(false);

/// Reports to the command, when the library is loaded, that calls will bypass the hook, and why.
pub(super) fn prepare() {
    if !hook::is_in_place() {
        IS_BYPASSED.store(true, Ordering::Relaxed);
        shared_memory::note_bypass(&hook::owner_of_dlsym());
    }
}

/// Reports to the command that the process has loaded the driver, if calls bypass the hook. May be called in a signal
/// handler.
pub(super) fn note_driver() {
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
