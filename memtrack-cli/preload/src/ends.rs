//! The calls that end a program without its exit handlers: it becomes another one, or stops at once. What was recorded
//! goes to the file before; then the C library's function is jumped to, with everything as the caller left it, since
//! some of these take any number of arguments.

use memtrack_core::cuda::run;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Looks the C library's function up, unless that was done.
fn find(real: &AtomicPtr<()>, name: &CStr) {
    if real.load(Ordering::Relaxed).is_null() {
        real.store(run::next_symbol(name).cast(), Ordering::Relaxed);
    }
}

macro_rules! ends {
    ($($name:ident $room:ident $symbol:literal;)*) => {
        $(
            mod $room {
                use super::{AtomicPtr, find, run};

                static REAL: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

                pub(super) fn prepare() {
                    find(&REAL, $symbol);
                }

                extern "C" fn before() {
                    prepare();
                    run::before_the_end();
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

ends! {
    execve ends_execve c"execve";
    execv ends_execv c"execv";
    execvp ends_execvp c"execvp";
    execvpe ends_execvpe c"execvpe";
    execl ends_execl c"execl";
    execlp ends_execlp c"execlp";
    execle ends_execle c"execle";
    fexecve ends_fexecve c"fexecve";
    _exit ends_exit c"_exit";
    _Exit ends_exit_of_c c"_Exit";
}
