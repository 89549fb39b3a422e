//! The entry point of the hook: a `dlsym` that returns a wrapper for a hooked name. For any other name, it jumps to the
//! C library's `dlsym`, as if the hook were not there. It can be called before `main` and on any thread, so it takes no
//! lock, allocates nothing and uses no thread-local.

use super::absent;
use super::table;
use memtrack_recorder::stack::modules::binary_at;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The C library's `dlsym`; null until the first call.
static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The versions of `dlsym` in glibc, the newest first.
#[cfg(target_arch = "x86_64")]
const VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", c"GLIBC_2.2.5"];
#[cfg(target_arch = "aarch64")]
const VERSIONS: [&CStr; 2] = [c"GLIBC_2.34", c"GLIBC_2.17"];

/// A function that is called before each look-up of the process with the arguments of `dlsym`.
pub type LookupWatcher = fn(handle: *mut c_void, name: &CStr);

/// The watcher; null if there is none.
static WATCHER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Sets the function that is called before each look-up of the process. It may be called at any time, on any thread.
pub fn watch_lookups(watcher: LookupWatcher) {
    WATCHER.store(watcher as *mut (), Ordering::Release);
}

/// Calls the watcher.
#[cold]
fn notify(watcher: *mut (), handle: *mut c_void, name: &CStr) {
    // SAFETY: the only other value than null that is ever stored is a `LookupWatcher`.
    let watcher = unsafe { std::mem::transmute::<*mut (), LookupWatcher>(watcher) };
    watcher(handle, name);
}

/// A name that no library exports. For this name, the hook's `dlsym` returns an address in its own binary, which
/// distinguishes the copies of the hook in a process.
const IDENTITY_QUERY: &CStr = c"cuMemtrackHook";

/// The `dlsym` that all code in the process calls. Returns the result of [`find_wrapper`] unless it is null. Otherwise, it
/// continues in the C library's function with a tail jump, so that `RTLD_NEXT` still means the binaries after the caller's.
#[cfg(target_arch = "x86_64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "endbr64",
        "push rdi",
        "push rsi",
        // The stack is aligned to 16 bytes at a call.
        "sub rsp, 8",
        "call {find_wrapper}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jne 2f",
        "jmp qword ptr [rip + {real}]",
        // 1 means null: `ABSENT`.
        "2:",
        "cmp rax, 1",
        "jne 3f",
        "xor eax, eax",
        "3:",
        "ret",
        find_wrapper = sym find_wrapper,
        real = sym REAL,
    )
}

/// Like the `dlsym` for x86-64. It has been assembled, but never run so far.
#[cfg(target_arch = "aarch64")]
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        // A landing pad for indirect calls; a no-op on processors without them.
        "hint #34",
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {find_wrapper}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "cbz x16, 2f",
        // 1 means null: `ABSENT`.
        "cmp x16, #1",
        "csel x0, xzr, x16, eq",
        "ret",
        "2:",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        find_wrapper = sym find_wrapper,
        real = sym REAL,
    )
}

/// Returned by [`find_wrapper`] if `dlsym` must report that the name was not found. The error message is already set.
const ABSENT: *const c_void = std::ptr::without_provenance(1);

/// Returns the wrapper for a name, or [`ABSENT`], or null if the C library's `dlsym` must be called. [`REAL`] is set when
/// this function returns.
extern "C" fn find_wrapper(handle: *mut c_void, name: *const c_char) -> *const c_void {
    let real = real_dlsym();
    let watcher = WATCHER.load(Ordering::Acquire);
    if !watcher.is_null() && !name.is_null() {
        // SAFETY: callers of `dlsym` pass a C string.
        notify(watcher, handle, unsafe { CStr::from_ptr(name) });
    }
    // SAFETY: callers of `dlsym` pass a C string or null. The second byte is read only if the first is not the end.
    let begins_with =
        |start: &[u8; 2]| unsafe { *name == start[0] as c_char && *name.add(1) == start[1] as c_char };
    // The driver's names begin with `cu`, and the heap's names that `absent` hides with `fr`.
    if name.is_null() || !begins_with(b"cu") && !begins_with(b"fr") {
        return std::ptr::null();
    }
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) };
    if !absent::may_be_undefined(name.to_bytes()) {
        let is_identity_query = name == IDENTITY_QUERY;
        return if is_identity_query { find_wrapper as *const c_void } else { std::ptr::null() };
    }
    // SAFETY: the caller's own arguments. Here, `RTLD_NEXT` means the binaries after this one, and this one precedes
    // every driver.
    let found = unsafe { real(handle, name.as_ptr()) };
    // For the caller, `RTLD_NEXT` may mean memtrack's own function, which the lookup above does not search.
    let may_be_here = absent::is_here(name.to_bytes(), found) || found.is_null() && handle == libc::RTLD_NEXT;
    if may_be_here && absent::is_defined_only_here(name) {
        return ABSENT;
    }
    match table::find_by_symbol(name.to_bytes()) {
        Some(hooked) if !found.is_null() => table::wrap(hooked, found),
        // If the name was not found, the C library is called once more, to set its error message.
        _ => std::ptr::null(),
    }
}

/// Returns the C library's `dlsym`.
pub(super) fn real_dlsym() -> Dlsym {
    let mut real = REAL.load(Ordering::Relaxed);
    if real.is_null() {
        let find = |version: &&CStr| {
            // SAFETY: plain C strings; glibc's `dlvsym` may be called at any time.
            unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) }
        };
        real = VERSIONS.iter().map(find).find(|found| !found.is_null()).unwrap_or(std::ptr::null_mut());
        if real.is_null() {
            // Without it, no code in this process could look up a function.
            // SAFETY: writes a constant, and ends the process.
            unsafe {
                let text = "memtrack: this C library has no dlsym that memtrack knows\n";
                libc::write(2, text.as_ptr().cast(), text.len());
                libc::abort();
            }
        }
        REAL.store(real, Ordering::Relaxed);
    }
    // SAFETY: it is glibc's `dlsym`.
    unsafe { std::mem::transmute::<*mut c_void, Dlsym>(real) }
}

/// Looks up a name by a handle of the loader, as if the hook were not there.
pub(crate) fn look_up(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: a handle of the loader, or one of its pseudo-handles, and a C string.
    unsafe { real_dlsym()(handle, name.as_ptr()) }
}

/// Returns the next function with this name after this binary in the loader's search order; null if there is none.
pub fn next_symbol(name: &CStr) -> *mut c_void {
    look_up(libc::RTLD_NEXT, name)
}

/// Returns the loader's data on the binary that contains an address; the pointers in it are null if there is no such
/// binary.
pub(super) fn info_of(address: *const c_void) -> libc::Dl_info {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: all zeros are a `Dl_info`, which the loader fills; an unknown address is not an error.
    unsafe {
        libc::dladdr(address, info.as_mut_ptr());
        info.assume_init()
    }
}

/// Returns the load address of the binary that contains an address; null if there is no such binary.
///
/// **Why not only `dladdr`?** It searches all symbols of the binary: in the C library that takes 15 µs.
pub fn binary_of(address: *const c_void) -> *const c_void {
    match binary_at(address as u64) {
        Some(binary) => binary.start as *const c_void,
        None => info_of(address).dli_fbase,
    }
}

/// Returns the function with this name to which the executable, and therefore nearly all code in the process, is bound;
/// null if there is none.
pub fn process_symbol(name: &CStr) -> *mut c_void {
    static PROCESS: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut process = PROCESS.load(Ordering::Relaxed);
    if process.is_null() {
        // `RTLD_DEFAULT` is not sufficient: a library that is linked with `-Bsymbolic`, like the preload library, finds
        // its own functions first.
        // SAFETY: the executable's own handle, which stays open; nothing is loaded.
        process = unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_LAZY) };
        PROCESS.store(process, Ordering::Relaxed);
    }
    look_up(process, name)
}

/// Returns the process's `dlsym`; null if there is none.
fn process_dlsym() -> *mut c_void {
    process_symbol(c"dlsym")
}

/// Returns whether the process's `dlsym` is this one. If it is not, programs reach the driver without the hook.
pub(crate) fn is_in_place() -> bool {
    const UNKNOWN: u8 = 0;
    static IN_PLACE: AtomicU8 = AtomicU8::new(UNKNOWN);
    match IN_PLACE.load(Ordering::Relaxed) {
        UNKNOWN => {
            // Compare binaries, not functions: in a library, even this crate's name `dlsym` may resolve to another
            // binary's function.
            let first = binary_of(process_dlsym());
            let is_this_one = !first.is_null() && first == binary_of(find_wrapper as *const c_void);
            IN_PLACE.store(1 + u8::from(is_this_one), Ordering::Relaxed);
            is_this_one
        }
        known => known == 2,
    }
}

/// Returns whether the process's `dlsym` belongs to another copy of memtrack, such as one that the program links.
pub(crate) fn is_other_copy_in_place() -> bool {
    let first = process_dlsym();
    if first.is_null() {
        return false;
    }
    // SAFETY: every function of this name is called with these arguments by code in the process.
    let answer = unsafe {
        std::mem::transmute::<*mut c_void, Dlsym>(first)(libc::RTLD_DEFAULT, IDENTITY_QUERY.as_ptr())
    };
    !answer.is_null() && answer.cast_const() != find_wrapper as *const c_void
}

/// Returns the path of the binary whose `dlsym` the process uses.
pub(crate) fn owner_of_dlsym() -> String {
    let name = info_of(process_dlsym()).dli_fname;
    if name.is_null() {
        return "the program".to_owned();
    }
    // SAFETY: the loader's own string; the binary stays loaded while the process uses its `dlsym`.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
