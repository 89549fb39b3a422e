//! The calls that end a program without its exit handlers: it becomes another one, or stops at once. What was recorded
//! goes to the file before; then the C library's function is jumped to, with everything as the caller left it, since
//! some of these take any number of arguments. Those that start a program besides are here too: what cannot be recorded
//! is counted.

use memtrack_cuda::run;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Looks the C library's function up, unless that was done.
fn find(real: &AtomicPtr<()>, name: &CStr) {
    if real.load(Ordering::Relaxed).is_null() {
        real.store(run::next_symbol(name).cast(), Ordering::Relaxed);
    }
}

macro_rules! ends {
    ($($name:ident $room:ident $symbol:literal $act:ident;)*) => {
        $(
            mod $room {
                use super::{AtomicPtr, c_char, find};

                static REAL: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

                pub(super) fn prepare() {
                    find(&REAL, $symbol);
                }

                /// With the first two of the caller's arguments.
                extern "C" fn before(first: *const c_char, second: *const c_char) {
                    prepare();
                    super::$act(first, second);
                }

                #[cfg(target_arch = "x86_64")]
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name() {
                    std::arch::naked_asm!(
                        "endbr64",
                        // Seven words, so that the stack is aligned to 16 bytes at the call. `al` counts the vector
                        // registers that a function with any number of arguments was given.
                        "push rdi",
                        "push rsi",
                        "push rdx",
                        "push rcx",
                        "push r8",
                        "push r9",
                        "push rax",
                        "call {before}",
                        "pop rax",
                        "pop r9",
                        "pop r8",
                        "pop rcx",
                        "pop rdx",
                        "pop rsi",
                        "pop rdi",
                        "jmp qword ptr [rip + {real}]",
                        before = sym before,
                        real = sym REAL,
                    )
                }

                /// As on x86-64. Assembled, but never run so far.
                #[cfg(target_arch = "aarch64")]
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name() {
                    std::arch::naked_asm!(
                        "hint #34",
                        "stp x29, x30, [sp, #-80]!",
                        "mov x29, sp",
                        "stp x0, x1, [sp, #16]",
                        "stp x2, x3, [sp, #32]",
                        "stp x4, x5, [sp, #48]",
                        "stp x6, x7, [sp, #64]",
                        "bl {before}",
                        "ldp x6, x7, [sp, #64]",
                        "ldp x4, x5, [sp, #48]",
                        "ldp x2, x3, [sp, #32]",
                        "ldp x0, x1, [sp, #16]",
                        "ldp x29, x30, [sp], #80",
                        "adrp x16, {real}",
                        "ldr x16, [x16, :lo12:{real}]",
                        "br x16",
                        before = sym before,
                        real = sym REAL,
                    )
                }
            }
        )*

        /// Looks all of them up: in the child of a fork, where they are mostly called, that is not allowed.
        pub(super) fn prepare() {
            $($room::prepare();)*
        }
    };
}

fn ends(_: *const c_char, _: *const c_char) {
    run::before_the_end();
}

fn becomes(program: *const c_char, _: *const c_char) {
    // SAFETY: what the caller gives the C library.
    unsafe { run::before_a_start(program, false) };
    run::before_the_end();
}

fn becomes_searched(program: *const c_char, _: *const c_char) {
    // SAFETY: as above.
    unsafe { run::before_a_start(program, true) };
    run::before_the_end();
}

fn starts(_: *const c_char, program: *const c_char) {
    // SAFETY: as above.
    unsafe { run::before_a_start(program, false) };
}

fn starts_searched(_: *const c_char, program: *const c_char) {
    // SAFETY: as above.
    unsafe { run::before_a_start(program, true) };
}

ends! {
    execve ends_execve c"execve" becomes;
    execv ends_execv c"execv" becomes;
    execvp ends_execvp c"execvp" becomes_searched;
    execvpe ends_execvpe c"execvpe" becomes_searched;
    execl ends_execl c"execl" becomes;
    execlp ends_execlp c"execlp" becomes_searched;
    execle ends_execle c"execle" becomes;
    fexecve ends_fexecve c"fexecve" ends;
    posix_spawn ends_posix_spawn c"posix_spawn" starts;
    posix_spawnp ends_posix_spawnp c"posix_spawnp" starts_searched;
    _exit ends_exit c"_exit" ends;
    _Exit ends_exit_of_c c"_Exit" ends;
}
