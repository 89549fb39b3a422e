//! The work of `cuda_plain heap` on C's heap, for the tests of `memtrack run --host`.

use std::ffi::c_void;
use std::ptr::{null_mut, write_bytes};

unsafe extern "C" {
    fn valloc(size: usize) -> *mut c_void;
    fn pvalloc(size: usize) -> *mut c_void;
    fn reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
}

/// One million bytes. Large blocks have different multiples of this size, so that tests can identify a block by its size.
const MILLION: usize = 1_000_000;

#[inline(never)]
fn every_function(keep: &mut Vec<usize>) {
    // SAFETY: C's functions with their declared types; blocks are written within their sizes and freed once.
    unsafe {
        let mut aligned = null_mut();
        assert_eq!(libc::posix_memalign(&mut aligned, 4096, 4 * MILLION), 0);
        let grown = libc::realloc(libc::malloc(MILLION / 2), 3 * MILLION);
        let shrunk = libc::realloc(libc::malloc(20 * MILLION), MILLION / 10);
        let blocks = [
            (libc::malloc(MILLION), MILLION),
            (libc::calloc(1000, 2000), 2 * MILLION),
            (grown, 3 * MILLION),
            (aligned, 4 * MILLION),
            (libc::aligned_alloc(64, 5 * MILLION), 5 * MILLION),
            (libc::memalign(128, 6 * MILLION), 6 * MILLION),
            (valloc(7 * MILLION), 7 * MILLION),
            (reallocarray(null_mut(), 1000, 8000), 8 * MILLION),
            (pvalloc(9 * MILLION), 9 * MILLION),
            (shrunk, MILLION / 10),
        ];
        for (block, size) in blocks {
            assert!(!block.is_null());
            write_bytes(block.cast::<u8>(), 7, size);
            keep.push(block.addr());
        }
        assert_eq!(*blocks[1].0.cast::<u8>(), 7);
        // These blocks are freed at once, in ways that a recorder easily misses: none of them may be recorded as live.
        libc::free(libc::malloc(11 * MILLION));
        libc::free(libc::calloc(12, MILLION));
        assert!(libc::realloc(libc::malloc(13 * MILLION), 0).is_null());
        libc::free(libc::realloc(null_mut(), 14 * MILLION));
        libc::free(null_mut());
        // A failed request changes nothing.
        let kept = libc::malloc(MILLION);
        assert!(libc::realloc(kept, usize::MAX / 4).is_null() && libc::malloc(usize::MAX / 4).is_null());
        assert!(libc::calloc(usize::MAX, 2).is_null());
        libc::free(kept);
        *libc::__errno_location() = 42;
        libc::free(libc::malloc(15 * MILLION));
        assert_eq!(*libc::__errno_location(), 42, "`free` does not change errno");
    }
}

/// Allocates small blocks, most of which another thread frees.
fn many_threads() {
    let threads = (0..4).map(|seed| {
        std::thread::spawn(move || {
            let block = |size: usize| vec![seed; size % 700 + 1];
            (0..50_000).map(block).filter(|block| block.len() % 3 == 0).collect::<Vec<_>>()
        })
    });
    let threads: Vec<_> = threads.collect();
    let kept: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("it ends")).collect();
    drop(kept);
}

/// Allocates and frees blocks that are too large to be sampled: 800,000 events.
#[inline(never)]
pub fn burst() {
    for _ in 0..400_000 {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(100_000)));
    }
}

/// Does everything that `cuda_plain heap` does with the heap. The large blocks of `every_function` stay live.
pub fn work() {
    let mut keep = Vec::new();
    every_function(&mut keep);
    many_threads();
    std::hint::black_box(&keep);
    // Allocations by C libraries are recorded too.
    // SAFETY: a C string.
    let copy = unsafe { libc::strdup(c"a word".as_ptr()) };
    std::hint::black_box(copy);
}
