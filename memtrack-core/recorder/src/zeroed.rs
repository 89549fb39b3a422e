//! Tables that begin as zeros. They are mapped, not allocated: an allocator that reuses memory writes the zeros
//! itself, and then all of a table takes memory although a program uses only a few pages of it.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

/// A slice that began as zeros. Its values are not dropped.
pub(crate) struct Zeroed<T> {
    values: NonNull<[T]>,
    is_mapped: bool,
}

// SAFETY: it owns its values, as a box does.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: shared, it provides shared values, as a box does.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

impl<T> Zeroed<T> {
    /// Makes `count` values that are all zeros, whose memory the system provides page by page when they are used.
    /// Aborts the process if there is no memory, as collections do.
    ///
    /// # Panics
    /// Panics when they have no size, or do not fit into the address space.
    ///
    /// # Safety
    /// All zeros must be a `T`.
    pub(crate) unsafe fn new(count: usize) -> Self {
        // SAFETY: as the caller promises.
        unsafe { Self::try_new(count) }.unwrap_or_else(|| handle_alloc_error(Self::layout(count)))
    }

    /// As [`Self::new`]; `None` if there is no memory.
    ///
    /// # Panics
    /// As [`Self::new`].
    ///
    /// # Safety
    /// As [`Self::new`].
    pub(crate) unsafe fn try_new(count: usize) -> Option<Self> {
        let layout = Self::layout(count);
        assert!(layout.size() > 0, "a table has room");
        let mapped = map(layout);
        let is_mapped = mapped.is_some();
        // If no pages can be mapped, the allocator may have memory, or memtrack's reserve.
        // SAFETY: the size was checked.
        let first = mapped.or_else(|| NonNull::new(unsafe { alloc_zeroed(layout) }))?;
        Some(Self { values: NonNull::slice_from_raw_parts(first.cast(), count), is_mapped })
    }

    fn layout(count: usize) -> Layout {
        Layout::array::<T>(count).expect("a table fits into the address space")
    }
}

impl<T> Deref for Zeroed<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: made in `new` for so many values, all of them valid, as its caller promised; they live as long as
        // this.
        unsafe { self.values.as_ref() }
    }
}

impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.values.len());
        let first = self.values.cast::<u8>().as_ptr();
        if self.is_mapped {
            unmap(first, layout);
        } else {
            // SAFETY: from `alloc_zeroed` with this layout, and nothing refers to the values any more.
            unsafe { dealloc(first, layout) };
        }
    }
}

/// Maps pages of zeros for that layout; `None` if there are none, or if they might not be aligned enough.
#[cfg(unix)]
fn map(layout: Layout) -> Option<NonNull<u8>> {
    const LEAST_PAGE_BYTES: usize = 4096;
    if layout.align() > LEAST_PAGE_BYTES {
        return None;
    }
    let (flags, protection) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: fresh pages at an address of the kernel's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), layout.size(), protection, flags, -1, 0) };
    if start == libc::MAP_FAILED { None } else { NonNull::new(start.cast()) }
}

#[cfg(not(unix))]
fn map(_layout: Layout) -> Option<NonNull<u8>> {
    None
}

/// Unmaps the pages that [`map`] returned.
fn unmap(first: *mut u8, layout: Layout) {
    #[cfg(unix)]
    // SAFETY: `map` mapped so many bytes there, and nothing refers to the values any more.
    unsafe {
        libc::munmap(first.cast(), layout.size());
    }
    #[cfg(not(unix))]
    let _ = (first, layout);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_table_begins_as_zeros_and_is_freed_with_its_owner() {
        for _ in 0..100 {
            // SAFETY: all zeros is an atomic number.
            let table = unsafe { Zeroed::<AtomicU64>::new(100_000) };
            assert!(table.len() == 100_000 && table.iter().all(|value| value.load(Ordering::Relaxed) == 0));
            table.iter().for_each(|value| value.store(1, Ordering::Relaxed));
        }
    }

    #[test]
    fn a_table_larger_than_memory_is_none() {
        // SAFETY: all zeros is a number.
        assert!(unsafe { Zeroed::<u8>::try_new(1 << 60) }.is_none());
    }
}
