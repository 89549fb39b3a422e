//! The calls that end a program without its exit handlers: `exec` functions and immediate exits. Each wrapper first
//! makes this program's last reports to the command. It then jumps to the C library's function with all registers and
//! the stack as the caller left them, because some of these functions are variadic. Functions that start another
//! program are wrapped here too, so that programs that cannot be recorded are counted.

use memtrack_cuda::run::{next_symbol, report_before_exit};
use memtrack_run::Environment;
use memtrack_run::Started::{self, Name, Open, Path};
use std::ffi::{CStr, c_char, c_int};
use std::ptr::null;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Looks up the C library's function, unless it is known already.
fn look_up(real: &AtomicPtr<()>, name: &CStr) {
    if real.load(Ordering::Relaxed).is_null() {
        real.store(next_symbol(name).cast(), Ordering::Relaxed);
    }
}

macro_rules! wrappers {
    ($($name:ident $module:ident $symbol:literal $act:expr;)*) => {
        $(
            mod $module {
                #[allow(unused_imports, reason = "each wrapper uses some of these")]
                use super::{
                    AtomicPtr, Open, Path, Name, Register, current_environment, exec, look_up, null,
                    report_before_exit, spawn,
                };

                /// The C library's function.
                pub(super) static REAL: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

                pub(super) fn prepare() {
                    look_up(&REAL, $symbol);
                }

                /// Receives the contents of the argument registers, whether or not the function has that many arguments.
                extern "C" fn before_call(a: Register, b: Register, c: Register, d: Register, e: Register, f: Register) {
                    prepare();
                    if !crate::tls::is_set_up() {
                        return;
                    }
                    let act: fn([Register; 6]) = $act;
                    act([a, b, c, d, e, f]);
                }

                #[cfg(target_arch = "x86_64")]
                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name() {
                    std::arch::naked_asm!(
                        "endbr64",
                        // Seven words are pushed, so that the stack is aligned to 16 bytes at the call. `al` is the number of
                        // vector registers passed to a variadic function.
                        "push rdi",
                        "push rsi",
                        "push rdx",
                        "push rcx",
                        "push r8",
                        "push r9",
                        "push rax",
                        "call {before_call}",
                        "pop rax",
                        "pop r9",
                        "pop r8",
                        "pop rcx",
                        "pop rdx",
                        "pop rsi",
                        "pop rdi",
                        "jmp qword ptr [rip + {real}]",
                        before_call = sym before_call,
                        real = sym REAL,
                    )
                }

                /// The same as on x86-64. Assembled, but never run so far.
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
                        "bl {before_call}",
                        "ldp x6, x7, [sp, #64]",
                        "ldp x4, x5, [sp, #48]",
                        "ldp x2, x3, [sp, #32]",
                        "ldp x0, x1, [sp, #16]",
                        "ldp x29, x30, [sp], #80",
                        "adrp x16, {real}",
                        "ldr x16, [x16, :lo12:{real}]",
                        "br x16",
                        before_call = sym before_call,
                        real = sym REAL,
                    )
                }
            }
        )*

        /// Looks up all these functions in advance, because most calls are made in the child of a fork, where `dlsym`
        /// is not allowed.
        pub(super) fn prepare() {
            $($module::prepare();)*
        }
    };
}

/// The contents of an argument register.
type Register = *const ();

unsafe extern "C" {
    /// The process's environment, which a started program inherits unless the caller passes another.
    static environ: *const *const c_char;
}

fn current_environment() -> Environment {
    // SAFETY: the C library's variable, read as the C library reads it. Changing `environ` at the same time would be
    // undefined behavior for the C library too.
    Some(unsafe { environ })
}

/// Counts the program that `exec` is about to run if it cannot be recorded, and makes this program's last reports. If the
/// new program has no room for the library, executes it without the library.
fn exec(program: Started, arguments: Register, environment: Environment) {
    let has_no_room = !arguments.is_null() && memtrack_run::has_no_room();
    // SAFETY: the arguments that the caller passed for the C library.
    unsafe { memtrack_run::count_if_unrecorded(program, environment, has_no_room) };
    report_before_exit();
    if has_no_room {
        // SAFETY: as above. If the execution fails, the C library's function is called next, and fails too.
        unsafe {
            memtrack_run::without_library(environment, |environment| execute(program, arguments, environment))
        };
    }
}

/// Executes a program. Returns only if this fails.
///
/// # Safety
/// The arguments must be as the C library requires them.
unsafe fn execute(program: Started, arguments: Register, environment: *const *const c_char) {
    type Execvpe = unsafe extern "C" fn(*const c_char, Register, *const *const c_char) -> c_int;
    // SAFETY: the caller guarantees the arguments. These are the calls that the C library's functions make; the C library still
    // searches for a name itself.
    unsafe {
        match program {
            Path(path) => {
                libc::syscall(libc::SYS_execve, path, arguments, environment);
            }
            Open(file) => {
                let flags = libc::AT_EMPTY_PATH;
                libc::syscall(libc::SYS_execveat, file, c"".as_ptr(), arguments, environment, flags);
            }
            Name(name) => {
                let real = ends_execvpe::REAL.load(Ordering::Relaxed);
                if !real.is_null() {
                    std::mem::transmute::<*mut (), Execvpe>(real)(name, arguments, environment);
                }
            }
        }
    }
}

/// Counts the program that is about to be spawned if it cannot be recorded.
fn spawn(program: Started, environment: Register) {
    // SAFETY: the arguments that the caller passed for the C library.
    unsafe { memtrack_run::count_if_unrecorded(program, Some(environment.cast()), false) };
}

wrappers! {
    execve ends_execve c"execve"
        |[path, arguments, environment, ..]| exec(Path(path.cast()), arguments, Some(environment.cast()));
    execv ends_execv c"execv"
        |[path, arguments, ..]| exec(Path(path.cast()), arguments, current_environment());
    execvp ends_execvp c"execvp"
        |[name, arguments, ..]| exec(Name(name.cast()), arguments, current_environment());
    execvpe ends_execvpe c"execvpe"
        |[name, arguments, environment, ..]| exec(Name(name.cast()), arguments, Some(environment.cast()));
    // These three are variadic. The environment of the third follows the variadic arguments, so it is unknown here.
    execl ends_execl c"execl" |[path, ..]| exec(Path(path.cast()), null(), current_environment());
    execlp ends_execlp c"execlp" |[name, ..]| exec(Name(name.cast()), null(), current_environment());
    execle ends_execle c"execle" |[path, ..]| exec(Path(path.cast()), null(), None);
    // The descriptor is the lower half of the register.
    fexecve ends_fexecve c"fexecve"
        |[file, arguments, environment, ..]| exec(Open(file.addr() as i32), arguments, Some(environment.cast()));
    posix_spawn ends_posix_spawn c"posix_spawn" |[_, path, .., environment]| spawn(Path(path.cast()), environment);
    posix_spawnp ends_posix_spawnp c"posix_spawnp"
        |[_, name, .., environment]| spawn(Name(name.cast()), environment);
    _exit ends_exit c"_exit" |_| report_before_exit();
    _Exit ends_exit_of_c c"_Exit" |_| report_before_exit();
}
