//! The calls that end a program without its exit handlers: it becomes another one, or stops at once. What was recorded
//! goes to the file before; then the C library's function is jumped to, with everything as the caller left it, since
//! some of these take any number of arguments. Those that start a program besides are here too: what cannot be recorded
//! is counted.

use memtrack_cuda::run::{self, Environment, Started};
use std::ffi::{CStr, c_char, c_int};
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
                use super::{AtomicPtr, Word, find};

                static REAL: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

                pub(super) fn prepare() {
                    find(&REAL, $symbol);
                }

                /// With what the caller has in the registers of arguments, whether it is one or not.
                extern "C" fn before(a: Word, b: Word, c: Word, d: Word, e: Word, f: Word) {
                    prepare();
                    super::$act(&[a, b, c, d, e, f]);
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

/// What a register of arguments holds.
type Word = *const ();
type Words = [Word; 6];

unsafe extern "C" {
    /// The process's own environment, which is that of a program started without another one.
    static environ: *const *const c_char;
}

fn own_environment() -> Environment {
    // SAFETY: the C library's variable, read as its own functions do: who changes it meanwhile breaks their rules.
    Some(unsafe { environ })
}

fn ends(_: &Words) {
    run::before_the_end();
}

/// The process becomes another program.
fn becomes(program: Started, environment: Environment) {
    // SAFETY: what the caller gives the C library.
    unsafe { run::before_a_start(program, environment) };
    run::before_the_end();
}

fn becomes_path(&[path, ..]: &Words) {
    becomes(Started::Path(path.cast()), own_environment());
}

fn becomes_path_with(&[path, _, environment, ..]: &Words) {
    becomes(Started::Path(path.cast()), Some(environment.cast()));
}

/// The environment is somewhere behind the program's arguments.
fn becomes_path_with_last(&[path, ..]: &Words) {
    becomes(Started::Path(path.cast()), None);
}

fn becomes_name(&[name, ..]: &Words) {
    becomes(Started::Name(name.cast()), own_environment());
}

fn becomes_name_with(&[name, _, environment, ..]: &Words) {
    becomes(Started::Name(name.cast()), Some(environment.cast()));
}

fn becomes_open_with(&[file, _, environment, ..]: &Words) {
    // The register's lower half.
    becomes(Started::Open(file.addr() as c_int), Some(environment.cast()));
}

fn starts_path_with(&[_, path, .., environment]: &Words) {
    // SAFETY: as above.
    unsafe { run::before_a_start(Started::Path(path.cast()), Some(environment.cast())) };
}

fn starts_name_with(&[_, name, .., environment]: &Words) {
    // SAFETY: as above.
    unsafe { run::before_a_start(Started::Name(name.cast()), Some(environment.cast())) };
}

ends! {
    execve ends_execve c"execve" becomes_path_with;
    execv ends_execv c"execv" becomes_path;
    execvp ends_execvp c"execvp" becomes_name;
    execvpe ends_execvpe c"execvpe" becomes_name_with;
    execl ends_execl c"execl" becomes_path;
    execlp ends_execlp c"execlp" becomes_name;
    execle ends_execle c"execle" becomes_path_with_last;
    fexecve ends_fexecve c"fexecve" becomes_open_with;
    posix_spawn ends_posix_spawn c"posix_spawn" starts_path_with;
    posix_spawnp ends_posix_spawnp c"posix_spawnp" starts_name_with;
    _exit ends_exit c"_exit" ends;
    _Exit ends_exit_of_c c"_Exit" ends;
}
