//! The library that `memtrack run --host` preloads before memtrack-preload: `malloc` and its siblings, each a jump to
//! the function in memtrack-preload that records the call. It is a separate library so that without `--host` there is
//! nothing between a program and its heap. Since it comes first in `LD_PRELOAD`, memtrack-preload finds the program's
//! allocator, or the C library's, as the next definition after itself.
//!
//! `mmap` and its siblings are here too, for the memory that the program maps itself.
//!
//! The C library's own names for the heap's functions (`__libc_malloc`) are here too, because programs and other libraries call
//! them, and so are the sized versions of `free` that C23 added. If nothing else in the process defines these versions,
//! memtrack-preload hides them from the program.
//!
//! **Why is `pthread_getattr_np` here?** That function allocates while it holds a lock that the recorder also needs to
//! find the end of a stack.
//!
//! **Why without the standard library?** It would map 300 KiB into every program just for these jumps, and it has
//! thread-local variables. Only a build with `panic = "abort"`, as the command's build script makes it, can do without the
//! standard library.
#![cfg(target_os = "linux")]
#![cfg_attr(panic = "abort", no_std)]
#![allow(unsafe_code)]

use core::ffi::c_void;

/// Required by the compiler. Nothing here panics.
#[cfg(panic = "abort")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

macro_rules! jumps {
    ($($name:ident to $target:ident;)*) => {
        unsafe extern "C" {
            // The loader binds these functions once it has loaded both libraries, before it runs any code.
            $(fn $target() -> *mut c_void;)*
        }

        $(
            /// Jumps to the function that records the call, for all code in the process.
            ///
            /// # Safety
            /// The same as for C's function of that name, which has the same arguments and result.
            #[cfg(target_arch = "x86_64")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "endbr64",
                    "jmp qword ptr [rip + {target}@GOTPCREL]",
                    target = sym $target,
                )
            }

            /// The same as on x86-64, but never run so far.
            ///
            /// # Safety
            /// The same as for C's function of that name, which has the same arguments and result.
            #[cfg(target_arch = "aarch64")]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
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
    free_sized to memtrack_heap_free_sized;
    free_aligned_sized to memtrack_heap_free_aligned_sized;
    __libc_malloc to memtrack_heap_libc_malloc;
    __libc_calloc to memtrack_heap_libc_calloc;
    __libc_realloc to memtrack_heap_libc_realloc;
    __libc_free to memtrack_heap_libc_free;
    __libc_memalign to memtrack_heap_libc_memalign;
    __libc_valloc to memtrack_heap_libc_valloc;
    __libc_pvalloc to memtrack_heap_libc_pvalloc;
    pthread_getattr_np to memtrack_heap_pthread_getattr_np;
    mmap to memtrack_heap_mmap;
    mmap64 to memtrack_heap_mmap64;
    munmap to memtrack_heap_munmap;
    mremap to memtrack_heap_mremap;
    mprotect to memtrack_heap_mprotect;
    madvise to memtrack_heap_madvise;
    brk to memtrack_heap_brk;
    sbrk to memtrack_heap_sbrk;
}

/// Does nothing. Its address identifies this library to memtrack-preload.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_heap_library() {}
