//! Separate stacks for work of memtrack that does not fit into the rest of a program thread's stack, so that threads with
//! stacks of 16 KiB and coroutines can record too. Only a few hundred bytes are used on the thread's own stack.
#![allow(unsafe_code)]

#[cfg(all(test, target_arch = "x86_64"))]
pub(crate) use switch::POOL_BYTES as MAX_BYTES;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) use switch::run;

/// The number of bytes of stack that a hook may need, which is enough to stream a chunk in a debug build, with a
/// margin. If less is left, the work runs on a separate stack.
pub(crate) const ROOM_BYTES: u64 = 128 << 10;

/// Runs `work` in place, because switching stacks is not implemented on this platform.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod switch {
    use std::ffi::c_void;
    use std::mem::ManuallyDrop;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering};

    /// The address space of one stack in bytes. Its pages take up memory only once they are touched.
    const STACK_BYTES: usize = 512 << 10;
    /// The size of the guard page in bytes. Overflowing into it causes a fault rather than corrupting memory.
    const GUARD_BYTES: usize = 4096;

    /// The stacks that are kept for reuse. A forked child loses the stacks that other threads were using.
    static POOL: [AtomicPtr<c_void>; POOL_STACKS] = [const { AtomicPtr::new(null_mut()) }; POOL_STACKS];
    const POOL_STACKS: usize = 16;
    /// The address space of the stacks in the pool, in bytes.
    #[cfg(all(test, target_arch = "x86_64"))]
    pub(crate) const POOL_BYTES: usize = POOL_STACKS * STACK_BYTES;

    /// Runs `work` on a separate stack, or on the thread's stack if no separate stack is available. This costs 10 ns more
    /// than a call if the pool has a stack, and two system calls otherwise.
    ///
    /// # Panics
    /// Panics if `work` does.
    #[cold]
    #[inline(never)]
    pub(crate) fn run<R>(work: impl FnOnce() -> R) -> R {
        let Some(stack) = acquire() else { return work() };
        let mut call = Call { work: ManuallyDrop::new(work), result: None };
        // SAFETY: only this call uses the stack, its top is aligned, and `call` outlives the switch.
        unsafe {
            let top = stack.cast::<u8>().add(STACK_BYTES);
            call_on((&raw mut call).cast(), entry_of(&call), top);
        }
        release(stack);
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

    /// Returns the function that runs a call on the other stack.
    fn entry_of<F: FnOnce() -> R, R>(_: &Call<F, R>) -> extern "C" fn(*mut c_void) {
        enter::<F, R>
    }

    extern "C" fn enter<F: FnOnce() -> R, R>(call: *mut c_void) {
        // SAFETY: `run` passes its own call, waits, and reads only the result afterwards. `work` is moved out only
        // once.
        let (call, work) = unsafe {
            let call = &mut *call.cast::<Call<F, R>>();
            let work = ManuallyDrop::take(&mut call.work);
            (call, work)
        };
        // A panic must not unwind out of this stack, because the caller's frame is on another stack.
        call.result = Some(catch_unwind(AssertUnwindSafe(work)));
    }

    /// Calls `function` with `argument` on the stack that ends at `top`. The frame pointer stays on the old stack and
    /// the unwind information refers to it, so that debuggers and panic backtraces can walk across the switch.
    ///
    /// # Safety
    /// `top` must be the end of a stack that nothing uses, aligned to 16 bytes, and `function` must not unwind.
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

    /// Does the same as the function for x86-64. Not tested yet.
    ///
    /// # Safety
    /// The same as for x86-64.
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

    fn acquire() -> Option<*mut c_void> {
        let pooled = POOL.iter().map(|slot| slot.swap(null_mut(), Ordering::Acquire));
        pooled.into_iter().find(|stack| !stack.is_null()).or_else(map)
    }

    fn map() -> Option<*mut c_void> {
        let (flags, protection) =
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: the calls map new pages at an address that the kernel chooses, and protect the lowest of them.
        unsafe {
            let stack = libc::mmap(null_mut(), STACK_BYTES, protection, flags, -1, 0);
            if stack == libc::MAP_FAILED {
                return None;
            }
            crate::internal_pages::mark(stack.addr(), STACK_BYTES);
            libc::mprotect(stack, GUARD_BYTES, libc::PROT_NONE);
            crate::internal_bytes::add_inherited(STACK_BYTES);
            Some(stack)
        }
    }

    fn release(stack: *mut c_void) {
        for slot in &POOL {
            if slot.compare_exchange(null_mut(), stack, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        crate::internal_bytes::subtract_inherited(STACK_BYTES);
        // SAFETY: the stack was mapped by `map` with this length and is no longer used.
        unsafe { libc::munmap(stack, STACK_BYTES) };
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn work_runs_on_another_stack_and_returns_its_result() {
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
        fn a_panic_continues_at_the_caller() {
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
