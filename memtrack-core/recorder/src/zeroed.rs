//! Tables that begin as zeros. They are mapped, not allocated: an allocator that reuses memory must write the zeros, and
//! the whole table would then take up memory although a program uses only a few of its pages.
#![allow(unsafe_code)]

use crate::internal_blocks;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;

/// A slice that is initialized with zeros. Its values are not dropped.
pub(crate) struct Zeroed<T> {
    values: NonNull<[T]>,
    is_mapped: bool,
}

// SAFETY: the slice owns its values, as a box does.
unsafe impl<T: Send> Send for Zeroed<T> {}
// SAFETY: a shared slice provides only shared access to its values, as a box does.
unsafe impl<T: Sync> Sync for Zeroed<T> {}

impl<T> Zeroed<T> {
    /// Creates `count` values that are all zeros; their pages take memory only when they are used. Aborts the process
    /// if there is no memory, as Rust's collections do.
    ///
    /// # Panics
    /// Panics when the values have no size, or do not fit into the address space.
    ///
    /// # Safety
    /// All zeros must be a valid `T`.
    pub(crate) unsafe fn new(count: usize) -> Self {
        // SAFETY: the caller guarantees that all zeros are a valid `T`.
        unsafe { Self::try_new(count) }.unwrap_or_else(|| handle_alloc_error(Self::layout(count)))
    }

    /// Does the same as [`Self::new`], but returns `None` if there is no memory.
    ///
    /// # Panics
    /// As for [`Self::new`].
    ///
    /// # Safety
    /// As for [`Self::new`].
    pub(crate) unsafe fn try_new(count: usize) -> Option<Self> {
        let layout = Self::layout(count);
        assert!(layout.size() > 0, "a table has room");
        let mapped = map(layout);
        let is_mapped = mapped.is_some();
        // If no pages can be mapped, the allocator may still have memory, or memtrack's reserve.
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
        // SAFETY: the memory was created in `try_new` for this many values, and its caller guaranteed that they are
        // valid; it exists as long as `self`.
        unsafe { self.values.as_ref() }
    }
}

impl<T> Drop for Zeroed<T> {
    fn drop(&mut self) {
        let layout = Self::layout(self.values.len());
        let first = self.values.cast::<u8>().as_ptr();
        if self.is_mapped {
            // SAFETY: `map` mapped this many bytes there, and there are no more references to the values.
            unsafe { unmap_pages(self.values.cast(), layout.size()) };
        } else {
            // SAFETY: the memory is from `alloc_zeroed` with this layout, and there are no more references to the
            // values.
            unsafe { dealloc(first, layout) };
        }
    }
}

/// Maps pages of zeros for a layout; `None` if none are available, or if they might not be sufficiently aligned.
fn map(layout: Layout) -> Option<NonNull<u8>> {
    const MIN_PAGE_BYTES: usize = 4096;
    if layout.align() > MIN_PAGE_BYTES { None } else { map_pages(layout.size()) }
}

/// Maps new pages of zeros at an address that the kernel chooses; `None` if none are available.
pub(crate) fn map_pages(bytes: usize) -> Option<NonNull<u8>> {
    let (flags, protection) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the call changes no memory that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    crate::internal_pages::mark(start.addr(), bytes);
    internal_blocks::add(start.expose_provenance() as u64, bytes as u64);
    NonNull::new(start.cast())
}

/// Unmaps pages.
///
/// # Safety
/// The pages must be from [`map_pages`] with this size, and there must be no references to them.
pub(crate) unsafe fn unmap_pages(start: NonNull<u8>, bytes: usize) {
    internal_blocks::remove(start.as_ptr().addr() as u64, bytes as u64);
    // SAFETY: the caller guarantees that the pages were mapped with this size and are not used.
    unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_table_begins_as_zeros_and_is_freed_with_its_owner() {
        for _ in 0..100 {
            // SAFETY: zero is a valid atomic integer.
            let table = unsafe { Zeroed::<AtomicU64>::new(100_000) };
            assert!(table.len() == 100_000 && table.iter().all(|value| value.load(Ordering::Relaxed) == 0));
            table.iter().for_each(|value| value.store(1, Ordering::Relaxed));
        }
    }

    #[test]
    fn a_table_larger_than_memory_is_none() {
        // SAFETY: zero is a valid integer.
        assert!(unsafe { Zeroed::<u8>::try_new(1 << 60) }.is_none());
    }
}
