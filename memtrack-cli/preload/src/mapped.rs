//! Memory that the program maps itself, for `memtrack run --host`: the functions that `mmap` and its siblings in
//! memtrack-preload-heap jump to. Each makes the call that the program wants, and notifies the recorder.
//!
//! The library's own calls of these functions go directly to the system (`__wrap_mmap` and others, to which the linker
//! redirects them), because they are not the program's.

use crate::heap::is_on;
use crate::next_function::{NextFunction, next_functions};
use memtrack_recorder::{errno, mapped};
use std::ffi::{c_int, c_long, c_void};

type Address = *mut c_void;

next_functions! {
    MMAP = c"mmap"(Address, usize, c_int, c_int, c_int, i64) -> Address;
    MUNMAP = c"munmap"(Address, usize) -> c_int;
    MREMAP = c"mremap"(Address, usize, usize, c_int, ...) -> Address;
    MPROTECT = c"mprotect"(Address, usize, c_int) -> c_int;
    MADVISE = c"madvise"(Address, usize, c_int) -> c_int;
    BRK = c"brk"(Address) -> c_int;
    SBRK = c"sbrk"(isize) -> Address;
}

/// Looks up all functions, while the process has one thread.
pub(super) fn prepare() {
    look_up_all();
}

/// Calls `record` with a closure that makes the program's call, which is `real`. That call finds the program's `errno`, and
/// the program finds the `errno` that it left. Returns its result; -1 stands for an error.
fn with_errno(
    real: impl FnOnce() -> u64,
    record: impl FnOnce(&mut dyn FnMut() -> Result<u64, i32>) -> Result<u64, i32>,
) -> u64 {
    let before = errno::get();
    let mut after = before;
    let mut real = Some(real);
    let mut call = || {
        errno::set(before);
        // The recorder makes the call exactly once.
        let result = real.take().map_or(u64::MAX, |real| real());
        after = errno::get();
        if result == u64::MAX { Err(after) } else { Ok(result) }
    };
    let result = record(&mut call);
    errno::set(after);
    result.unwrap_or(u64::MAX)
}

/// Returns the result of a function that returns 0 or -1 as a number for [`with_errno`].
fn widen(result: c_int) -> u64 {
    i64::from(result) as u64
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_mmap(
    address: Address,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> Address {
    // SAFETY: the caller's arguments, for the function of that name or the system call.
    let real =
        || unsafe { MMAP.get().unwrap_or(__wrap_mmap)(address, bytes, protection, flags, file, offset) };
    if !is_on() {
        return real();
    }
    let request =
        mapped::Request { address: address.addr() as u64, bytes: bytes as u64, protection, flags, file };
    let result = with_errno(|| real().expose_provenance() as u64, |call| mapped::map(request, call));
    std::ptr::with_exposed_provenance_mut(result as usize)
}

/// The same function, because offsets have 64 bits.
#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_mmap64(
    address: Address,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> Address {
    // SAFETY: the caller's arguments.
    unsafe { memtrack_heap_mmap(address, bytes, protection, flags, file, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_munmap(address: Address, bytes: usize) -> c_int {
    // SAFETY: the caller's arguments, for the function of that name or the system call.
    let real = || unsafe { MUNMAP.get().unwrap_or(__wrap_munmap)(address, bytes) };
    if !is_on() {
        return real();
    }
    let (address, bytes) = (address.addr() as u64, bytes as u64);
    with_errno(|| widen(real()), |call| mapped::unmap(address, bytes, call)) as c_int
}

/// The last argument is present only with some flags. Where it is absent, its value is arbitrary, and nothing reads it.
#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_mremap(
    address: Address,
    old_bytes: usize,
    new_bytes: usize,
    flags: c_int,
    new_address: Address,
) -> Address {
    // SAFETY: the caller's arguments, for the function of that name or the system call.
    let real = || unsafe {
        match MREMAP.get() {
            Some(real) => real(address, old_bytes, new_bytes, flags, new_address),
            None => __wrap_mremap(address, old_bytes, new_bytes, flags, new_address),
        }
    };
    if !is_on() {
        return real();
    }
    let (old, old_bytes, new_bytes) = (address.addr() as u64, old_bytes as u64, new_bytes as u64);
    let target = (flags & libc::MREMAP_FIXED != 0).then_some(new_address.addr() as u64);
    let result = with_errno(
        || real().expose_provenance() as u64,
        |call| mapped::remap(old, old_bytes, new_bytes, mapped::Remap { flags, target }, call),
    );
    std::ptr::with_exposed_provenance_mut(result as usize)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_mprotect(address: Address, bytes: usize, protection: c_int) -> c_int {
    // SAFETY: the caller's arguments, for the function of that name or the system call.
    let result = unsafe { MPROTECT.get().unwrap_or(__wrap_mprotect)(address, bytes, protection) };
    if result == 0 && is_on() {
        errno::preserving(|| mapped::protected(address.addr() as u64, bytes as u64, protection));
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_madvise(address: Address, bytes: usize, advice: c_int) -> c_int {
    // SAFETY: the caller's arguments, for the function of that name or the system call.
    let result = unsafe { MADVISE.get().unwrap_or(__wrap_madvise)(address, bytes, advice) };
    if result == 0 && is_on() {
        errno::preserving(|| mapped::advised(address.addr() as u64, bytes as u64, advice));
    }
    result
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_sbrk(change: isize) -> Address {
    let Some(real) = SBRK.get() else {
        errno::set(libc::ENOMEM);
        return libc::MAP_FAILED;
    };
    // SAFETY: the function of that name, and the caller's argument.
    let before = unsafe { real(change) };
    if change != 0 && before != libc::MAP_FAILED && is_on() {
        let old = before.addr() as u64;
        errno::preserving(|| mapped::moved_break(old, old.wrapping_add_signed(change as i64)));
    }
    before
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memtrack_heap_brk(new: Address) -> c_int {
    let Some(real) = BRK.get() else {
        errno::set(libc::ENOMEM);
        return -1;
    };
    // SAFETY: `sbrk(0)` only returns the present end of the data segment; `brk` gets the caller's argument.
    let (old, result) = unsafe {
        let old = SBRK.get().map_or(libc::MAP_FAILED, |sbrk| sbrk(0));
        (old, real(new))
    };
    if result == 0 && old != libc::MAP_FAILED && is_on() {
        errno::preserving(|| mapped::moved_break(old.addr() as u64, new.addr() as u64));
    }
    result
}

/// Makes a system call whose result is an address.
///
/// # Safety
/// The same as for the system call.
unsafe fn system_call(number: c_long, arguments: [usize; 6]) -> Address {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller guarantees the arguments.
    std::ptr::with_exposed_provenance_mut(unsafe { libc::syscall(number, a, b, c, d, e, f) } as usize)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_mmap(
    address: Address,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> Address {
    let arguments = [
        address.expose_provenance(),
        bytes,
        protection as usize,
        flags as usize,
        file as usize,
        offset as usize,
    ];
    // SAFETY: the caller's arguments.
    unsafe { system_call(libc::SYS_mmap, arguments) }
}

/// The same function, because offsets have 64 bits.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_mmap64(
    address: Address,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> Address {
    // SAFETY: the caller's arguments.
    unsafe { __wrap_mmap(address, bytes, protection, flags, file, offset) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_munmap(address: Address, bytes: usize) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { system_call(libc::SYS_munmap, [address.expose_provenance(), bytes, 0, 0, 0, 0]) }.addr() as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_mremap(
    address: Address,
    old_bytes: usize,
    new_bytes: usize,
    flags: c_int,
    new_address: Address,
) -> Address {
    let arguments = [
        address.expose_provenance(),
        old_bytes,
        new_bytes,
        flags as usize,
        new_address.expose_provenance(),
        0,
    ];
    // SAFETY: the caller's arguments.
    unsafe { system_call(libc::SYS_mremap, arguments) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_mprotect(address: Address, bytes: usize, protection: c_int) -> c_int {
    let arguments = [address.expose_provenance(), bytes, protection as usize, 0, 0, 0];
    // SAFETY: the caller's arguments.
    unsafe { system_call(libc::SYS_mprotect, arguments) }.addr() as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap_madvise(address: Address, bytes: usize, advice: c_int) -> c_int {
    let arguments = [address.expose_provenance(), bytes, advice as usize, 0, 0, 0];
    // SAFETY: the caller's arguments.
    unsafe { system_call(libc::SYS_madvise, arguments) }.addr() as c_int
}
