//! A process whose calls of the driver go past the hook, because its executable exports a `dlsym` of its own. Its CUDA
//! memory is not recorded, and it is told so: once, and only where it has the driver.

use super::{OUTPUT, hook};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// Whether it was said; null where the hook is in place. Forked children share it, so that they do not all repeat it.
static SAID: AtomicPtr<AtomicBool> = AtomicPtr::new(std::ptr::null_mut());
/// The process in which the library began, and not its forked children.
static BEGAN_IN: AtomicU32 = AtomicU32::new(0);

/// The preload library was loaded.
pub(super) fn prepare() {
    if hook::is_in_place() {
        return;
    }
    // SAFETY: a fresh page, all zeros, that stays; an `AtomicBool` fits into it, and false is zero.
    unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let page = libc::mmap(std::ptr::null_mut(), size_of::<AtomicBool>(), access, kind, -1, 0);
        if page != libc::MAP_FAILED {
            SAID.store(page.cast(), Ordering::Relaxed);
        }
    }
    BEGAN_IN.store(std::process::id(), Ordering::Relaxed);
}

/// The process becomes another program, or ends at once. In a forked child, which may share its parent's memory, nothing
/// is said.
pub(super) fn warn_in_the_first() {
    if BEGAN_IN.load(Ordering::Relaxed) == std::process::id() {
        warn();
    }
}

/// Says why no CUDA memory is recorded, if a recording was asked for and there is a driver.
pub(super) fn warn() {
    // SAFETY: null, or the page above.
    let Some(said) = (unsafe { SAID.load(Ordering::Relaxed).as_ref() }) else { return };
    if !hook::driver_is_loaded() || std::env::var_os(OUTPUT).is_none() || hook::is_anothers() {
        return;
    }
    if !said.swap(true, Ordering::Relaxed) {
        let (process, owner) = (std::process::id(), hook::owner_of_dlsym());
        crate::message::say(format_args!(
            "no CUDA memory of process {process} is recorded: {owner} exports a function `dlsym` of its own, so its \
             calls of the CUDA driver go past memtrack's. Link it so that it does not export that function (-rdynamic \
             and --export-dynamic do), and run it again."
        ));
    }
}
