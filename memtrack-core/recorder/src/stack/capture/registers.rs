//! The start of a walk, given by the registers of a frame that exists during the whole walk. They are read before the
//! work may be moved to a separate stack.
#![allow(unsafe_code)]

/// The registers from which a walk starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registers {
    /// Instruction pointer.
    #[cfg(target_arch = "x86_64")]
    pub(super) ip: u64,
    /// Stack pointer.
    pub(super) sp: u64,
    /// The frame pointer, or whatever else `rbp` holds.
    #[cfg(target_arch = "x86_64")]
    pub(super) bp: u64,
}

impl Registers {
    /// Returns the registers of the calling function.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let (ip, sp, bp);
        // SAFETY: the instructions only read three registers, and change no memory and no flags.
        unsafe {
            std::arch::asm!(
                "lea {ip}, [rip]",
                "mov {sp}, rsp",
                "mov {bp}, rbp",
                ip = out(reg) ip,
                sp = out(reg) sp,
                bp = out(reg) bp,
                options(nomem, nostack, preserves_flags),
            );
        }
        Self { ip, sp, bp }
    }

    /// Returns only an approximate stack pointer, because stacks are captured in another way on other processors.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    pub(crate) fn here() -> Self {
        let here = 0_u8;
        Self { sp: (&raw const here).addr() as u64 }
    }

    /// Returns the stack pointer.
    #[inline(always)]
    pub(crate) fn stack_pointer(&self) -> u64 {
        self.sp
    }
}
