//! The library that `memtrack run --host` preloads before the other one: `malloc` and its siblings, each a jump to
//! the function of the other library that records it. It is a separate library so that without `--host` there is
//! nothing between a program and its heap. Since it is the first in the list, the other library finds the next
//! allocator, or the C library's, as the one after itself.
//!
//! **Why is `pthread_getattr_np` here?** It allocates under a lock that the recorder needs to find out where a stack
//! ends.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

use std::ffi::c_void;

macro_rules! jumps {
    ($($name:ident to $target:ident;)*) => {
        unsafe extern "C" {
            // The loader binds them when it has loaded both libraries, before it runs any code.
            $(fn $target() -> *mut c_void;)*
        }

        $(
            /// Jumps to the function that records the call, for all code in the process.
            ///
            /// # Safety
            /// As C's function of that name, with its arguments and result.
            #[cfg(target_arch = "x86_64")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
                    "endbr64",
                    "jmp qword ptr [rip + {target}@GOTPCREL]",
                    target = sym $target,
                )
            }

            /// As on x86-64. Never run so far.
            ///
            /// # Safety
            /// As on x86-64.
            #[cfg(target_arch = "aarch64")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
                    "hint #34",
                    "adrp x16, :got:{target}",
                    "ldr x16, [x16, :got_lo12:{target}]",
                    "br x16",
                    target = sym $target,
                )
            }
        )*
    };
}

jumps! {
    malloc to memtrack_heap_malloc;
    calloc to memtrack_heap_calloc;
    realloc to memtrack_heap_realloc;
    free to memtrack_heap_free;
    posix_memalign to memtrack_heap_posix_memalign;
    aligned_alloc to memtrack_heap_aligned_alloc;
    memalign to memtrack_heap_memalign;
    valloc to memtrack_heap_valloc;
    pvalloc to memtrack_heap_pvalloc;
    pthread_getattr_np to memtrack_heap_pthread_getattr_np;
}
