//! Access to the library's thread-local variables without the loader. To find them, the loader may call the program's
//! `malloc` (whenever a library with thread-locals was loaded since the thread's last access), and recording that
//! allocation needs these variables, so the thread would deadlock or recurse endlessly. Variables in the static block are
//! at the same distance from every thread's thread pointer, and the loader stores that distance when it loads the library.
//!
//! On x86-64, where compilers always emit a call to the loader in libraries, the linker redirects that call here
//! (`--wrap=__tls_get_addr`). On aarch64, the loader itself replaces the call with the distance.
//!
//! **Why a variable in assembly?** A reference to it in the TLS model `initial-exec`, which cannot be selected on stable
//! compilers, makes the loader put all of the library's variables into the static block. The loader does this anyway for a
//! library that is loaded with the program, except in a program with an auditor (`LD_AUDIT`).

use std::arch::{asm, global_asm};

/// The argument that compilers pass: the number of a binary, and an offset among the binary's variables.
#[repr(C)]
pub(super) struct TlsIndex {
    binary: usize,
    offset: usize,
}

global_asm!(
    ".pushsection .tbss.memtrack_tls_anchor, \"awT\", @nobits",
    ".globl memtrack_tls_anchor",
    ".hidden memtrack_tls_anchor",
    ".type memtrack_tls_anchor, @object",
    ".size memtrack_tls_anchor, 1",
    "memtrack_tls_anchor:",
    ".zero 1",
    ".popsection",
);

/// Returns whether the thread has the C library's thread-local storage. A child that `clone` started with other storage
/// (`CLONE_SETTLS`) does not, so access to a variable would crash it. Chromium's sandbox starts such a child, with zeroed
/// storage.
#[inline(always)]
pub(super) fn is_set_up() -> bool {
    let (pointer, own_address): (usize, usize);
    // SAFETY: the first and the third word at a thread pointer, which the C library sets to that pointer. Compilers read further
    // words there in every function that they protect.
    unsafe {
        asm!(
            "mov {}, fs:0",
            "mov {}, fs:16",
            out(reg) pointer,
            out(reg) own_address,
            options(nostack, preserves_flags, readonly, pure),
        );
    }
    own_address != 0 && own_address == pointer
}

/// Returns the address of one of this library's thread-local variables. The linker redirects the library's calls of
/// `__tls_get_addr` to this function.
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap___tls_get_addr(index: *const TlsIndex) -> *mut u8 {
    let variables: usize;
    // SAFETY: the word at a thread pointer is that pointer itself. The loader stored the variable's distance from that pointer
    // when it relocated this library, before any code of the library ran. The linker knows the variable's offset among the
    // library's variables.
    unsafe {
        asm!(
            "mov {variables}, fs:0",
            "add {variables}, qword ptr [rip + memtrack_tls_anchor@GOTTPOFF]",
            "lea {offset}, [memtrack_tls_anchor@DTPOFF]",
            "sub {variables}, {offset}",
            variables = out(reg) variables,
            offset = out(reg) _,
            options(nostack, readonly, pure),
        );
    }
    // SAFETY: the compiler passes a static.
    let offset = unsafe { (*index).offset };
    std::ptr::with_exposed_provenance_mut(variables.wrapping_add(offset))
}
