//! The library that `memtrack run --host` preloads before the other one: `malloc` and its siblings, each a jump to the
//! function of the other library that records it. It is a library of its own so that without `--host` nothing stands
//! between a program and its heap. As the first in the list it leaves the others, and the C library, to be found as the
//! other library's next.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)]

use std::ffi::c_void;

macro_rules! jumps {
    ($($name:ident to $target:ident;)*) => {
        unsafe extern "C" {
            // The loader binds them when it has loaded both libraries, before it runs anything.
            $(fn $target() -> *mut c_void;)*
        }

        $(
            /// For everyone in the process: a jump to the function that records it.
            ///
            /// # Safety
            /// As C's function of that name, which has its arguments and result.
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
