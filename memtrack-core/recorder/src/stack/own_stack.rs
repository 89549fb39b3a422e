//! Stacks of memtrack's own, for work that does not fit into what the program's thread has left: threads with stacks of
//! 16 KiB and coroutines record too. What stays on the thread's own stack is a few hundred bytes.
#![allow(unsafe_code)]

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
pub(crate) use switch::KEPT_BYTES as MOST_BYTES;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use switch::run;

/// What a hook may need of a stack, in bytes: a chunk that is streamed, in a debug build, with room to spare. Where less is
/// left, the work is done on a stack of memtrack's own.
pub(crate) const ROOM_BYTES: u64 = 128 << 10;

/// Runs `work` here: on this platform nobody knows how to change stacks.
#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod switch {
    use std::ffi::c_void;
    use std::mem::ManuallyDrop;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering};

    /// Address space of one stack; its pages cost something only once they were used.
    const STACK_BYTES: usize = 512 << 10;
    /// The lowest page cannot be touched: running out of this stack, too, is a fault and not a damage.
    const GUARD_BYTES: usize = 4096;

    /// Stacks that are kept for the next time. In the child of a fork those that other threads had taken stay behind.
    static KEPT: [AtomicPtr<c_void>; KEPT_STACKS] = [const { AtomicPtr::new(null_mut()) }; KEPT_STACKS];
    const KEPT_STACKS: usize = 16;
    /// Address space of those.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(crate) const KEPT_BYTES: usize = KEPT_STACKS * STACK_BYTES;

    /// Runs `work` on a stack of memtrack's own; on the thread's where none can be had. 10 ns more than a call when one is
    /// kept, else two system calls.
    ///
    /// # Panics
    /// As `work` does.
    #[cold]
    #[inline(never)]
    pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
        let Some(stack) = take() else { return work() };
        let mut call = Call { work: ManuallyDrop::new(work), result: None };
        // SAFETY: the stack is this call's alone, its top is aligned, and `call` outlives the switch.
        unsafe {
            let top = stack.cast::<u8>().add(STACK_BYTES);
            call_on((&raw mut call).cast(), entry_of(&call), top);
        }
        give_back(stack);
        match call.result {
            Some(Ok(result)) => result,
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("`enter` leaves a result"),
        }
    }

    struct Call<F, R> {
        work: ManuallyDrop<F>,
        result: Option<std::thread::Result<R>>,
    }

    /// How the other side takes this call over.
    fn entry_of<F: FnOnce() -> R, R>(_: &Call<F, R>) -> extern "C" fn(*mut c_void) {
        enter::<F, R>
    }

    extern "C" fn enter<F: FnOnce() -> R, R>(call: *mut c_void) {
        // SAFETY: `run` passes its own call, waits, and looks only at the result afterwards; the work is taken once.
        let (call, work) = unsafe {
            let call = &mut *call.cast::<Call<F, R>>();
            let work = ManuallyDrop::take(&mut call.work);
            (call, work)
        };
        // There is nothing to unwind into on this side.
        call.result = Some(catch_unwind(AssertUnwindSafe(work)));
    }

    /// Calls `function` with `argument` on the stack that ends at `top`. The frame pointer stays on the old stack and the
    /// unwinder is told to go by it, so that debuggers and the backtraces of panics see through the switch.
    ///
    /// # Safety
    /// `top` must be the end of a stack that nothing uses, aligned to 16 bytes; `function` must not unwind.
    #[cfg(target_arch = "x86_64")]
    #[unsafe(naked)]
    unsafe extern "C" fn call_on(argument: *mut c_void, function: extern "C" fn(*mut c_void), top: *mut u8) {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "endbr64",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "mov rsp, rdx",
            "call rsi",
            "mov rsp, rbp",
            "pop rbp",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_endproc",
        )
    }

    /// As on x86-64. Never run so far.
    ///
    /// # Safety
    /// As on x86-64.
    #[cfg(target_arch = "aarch64")]
    #[unsafe(naked)]
    unsafe extern "C" fn call_on(argument: *mut c_void, function: extern "C" fn(*mut c_void), top: *mut u8) {
        std::arch::naked_asm!(
            ".cfi_startproc",
            "hint #34",
            "stp x29, x30, [sp, #-16]!",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset w29, -16",
            ".cfi_offset w30, -8",
            "mov x29, sp",
            ".cfi_def_cfa_register w29",
            "mov sp, x2",
            "blr x1",
            "mov sp, x29",
            ".cfi_def_cfa_register sp",
            "ldp x29, x30, [sp], #16",
            "ret",
            ".cfi_endproc",
        )
    }

    fn take() -> Option<*mut c_void> {
        let kept = KEPT.iter().map(|slot| slot.swap(null_mut(), Ordering::Acquire));
        kept.into_iter().find(|stack| !stack.is_null()).or_else(map)
    }

    fn map() -> Option<*mut c_void> {
        let (flags, protection) =
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: fresh pages wherever the kernel likes, of which the lowest is then closed.
        unsafe {
            let stack = libc::mmap(null_mut(), STACK_BYTES, protection, flags, -1, 0);
            if stack == libc::MAP_FAILED {
                return None;
            }
            libc::mprotect(stack, GUARD_BYTES, libc::PROT_NONE);
            crate::own::keep(STACK_BYTES);
            Some(stack)
        }
    }

    fn give_back(stack: *mut c_void) {
        for slot in &KEPT {
            if slot.compare_exchange(null_mut(), stack, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        crate::own::let_go(STACK_BYTES);
        // SAFETY: mapped by `map` with this length, and used by nobody any more.
        unsafe { libc::munmap(stack, STACK_BYTES) };
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn work_runs_elsewhere_and_its_result_comes_back() {
            let here = 0_u8;
            let text = String::from("moved in");
            let (there, text) = run(move || {
                let there = 0_u8;
                ((&raw const there).addr(), text + " and out")
            });
            assert!(there.abs_diff((&raw const here).addr()) > 1 << 16, "another stack");
            assert_eq!(text, "moved in and out");
        }

        #[test]
        fn a_panic_goes_on_at_the_caller() {
            let caught = catch_unwind(|| run(|| panic!("on the other stack")));
            assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "on the other stack");
        }

        #[test]
        fn stacks_are_used_by_one_thread_at_a_time() {
            let work = || {
                for depth in 0..200_u64 {
                    let sum =
                        run(|| (0..depth).map(|number| run(|| std::hint::black_box(number))).sum::<u64>());
                    assert_eq!(sum, depth * depth.saturating_sub(1) / 2);
                }
            };
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(work);
                }
            });
        }
    }
}
