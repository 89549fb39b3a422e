//! Handles a process whose calls of the driver bypass the hook, because its executable exports a `dlsym` of its own.
//! Its CUDA memory is not recorded, and a warning is printed: once, and only if the process has loaded the driver.

use super::{OUTPUT, hook};
use memtrack_recorder::{environment, message};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// The warning, and whether it was printed; null if there is none. It is prepared when the library is loaded, because
/// the process may exit in a signal handler.
static WARNING: AtomicPtr<Warning> = AtomicPtr::new(std::ptr::null_mut());
/// The id of the process that loaded the library, which differs from those of its forked children.
static FIRST_PROCESS: AtomicU32 = AtomicU32::new(0);

struct Warning {
    /// In a page that forked children share, so that they do not repeat the warning.
    was_printed: &'static AtomicBool,
    /// The text after the process id.
    text: String,
}

/// Prepares the warning when the preload library is loaded.
pub(super) fn prepare() {
    if hook::is_in_place() || environment::variable(OUTPUT).is_none() {
        return;
    }
    // SAFETY: a new page of zeros that is never unmapped; an `AtomicBool` fits into it, and false is zero.
    let was_printed = unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let page = libc::mmap(std::ptr::null_mut(), size_of::<AtomicBool>(), access, kind, -1, 0);
        if page == libc::MAP_FAILED {
            return;
        }
        &*page.cast::<AtomicBool>()
    };
    let owner = hook::owner_of_dlsym();
    let text = format!(
        " is recorded: {owner} exports a function `dlsym` of its own, so its calls of the CUDA driver go past memtrack's. \
         Link it so that it does not export that function (-rdynamic and --export-dynamic do), and run it again.\n"
    );
    WARNING.store(Box::into_raw(Box::new(Warning { was_printed, text })), Ordering::Release);
    FIRST_PROCESS.store(std::process::id(), Ordering::Relaxed);
}

/// Prints the warning before an `exec` or an immediate exit. A forked child, which may share its parent's memory,
/// prints nothing.
pub(super) fn warn_in_first_process() {
    if FIRST_PROCESS.load(Ordering::Relaxed) == std::process::id() {
        warn();
    }
}

/// Prints why no CUDA memory is recorded, if a recording was requested and there is a driver. May be called in a
/// signal handler.
pub(super) fn warn() {
    // SAFETY: null, or leaked above.
    let Some(warning) = (unsafe { WARNING.load(Ordering::Acquire).as_ref() }) else { return };
    if warning.was_printed.load(Ordering::Relaxed) || !driver_is_mapped() {
        return;
    }
    // The program's `dlsym` is not called when the library is loaded: it may need state that its constructors prepare.
    if hook::another_copy_is_in_place() || warning.was_printed.swap(true, Ordering::Relaxed) {
        return;
    }
    let mut digits = [0; 10];
    let process = decimal(std::process::id(), &mut digits);
    message::print_in_signal_handler(&[
        b"memtrack: no CUDA memory of process ",
        process,
        warning.text.as_bytes(),
    ]);
}

/// Writes a number in decimal to the end of `digits`; returns the written part.
fn decimal(mut number: u32, digits: &mut [u8; 10]) -> &[u8] {
    let mut first = digits.len();
    while number > 0 || first == digits.len() {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    &digits[first..]
}

/// Returns whether the process has loaded the driver's library, according to its mappings: the loader is not called,
/// because an interrupted thread may hold its lock.
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
            // The end of the buffer may contain the beginning of the name.
            kept = length.min(NAME.len() - 1);
            buffer.copy_within(length - kept..length, 0);
        }
        libc::close(maps);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn numbers_are_formatted_in_decimal() {
        let mut digits = [0; 10];
        for number in [0, 7, 10, 4_294_967_295] {
            assert_eq!(decimal(number, &mut digits), number.to_string().as_bytes());
        }
    }
}
