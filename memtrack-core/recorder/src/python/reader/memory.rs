//! Reads of the interpreter's memory: direct ones, and ones by the kernel, which fail where nothing is mapped.
#![allow(unsafe_code)]

use std::ffi::c_void;

/// A way of reading memory. All reads return `None` if the address cannot be right.
pub(super) trait Memory: Copy {
    /// Reads eight bytes.
    fn word(self, address: u64) -> Option<u64>;
    /// Reads four bytes.
    fn half(self, address: u64) -> Option<u32>;
    /// Reads a byte.
    fn byte(self, address: u64) -> Option<u8>;
    /// Copies the memory at `address` to `bytes`. Returns false if the address cannot be right; then `bytes` may have
    /// changed.
    fn copy(self, address: u64, bytes: &mut [u8]) -> bool;
}

/// The size of a page, the first of which is never mapped.
const PAGE_BYTES: u64 = 4096;

/// Direct reads of the frames of the calling thread, and of the code that they run, which exist while the thread is in a
/// hook.
#[derive(Clone, Copy)]
pub(super) struct Trusted(());

impl Trusted {
    /// Returns a reader for structures whose layout was verified.
    ///
    /// # Safety
    /// The addresses that are read must lie in structures of the interpreter that exist during the reads, or be below
    /// a page or misaligned.
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

#[inline(always)]
fn is_plausible(address: u64, align: u64) -> bool {
    address >= PAGE_BYTES && address & (align - 1) == 0
}

impl Memory for Trusted {
    #[inline(always)]
    fn word(self, address: u64) -> Option<u64> {
        // SAFETY: `new` requires that the address is readable, and it is aligned.
        is_plausible(address, 8).then(|| unsafe { (address as *const u64).read_volatile() })
    }

    #[inline(always)]
    fn half(self, address: u64) -> Option<u32> {
        // SAFETY: as above.
        is_plausible(address, 4).then(|| unsafe { (address as *const u32).read_volatile() })
    }

    #[inline(always)]
    fn byte(self, address: u64) -> Option<u8> {
        // SAFETY: as above.
        is_plausible(address, 1).then(|| unsafe { (address as *const u8).read_volatile() })
    }

    #[inline]
    fn copy(self, address: u64, bytes: &mut [u8]) -> bool {
        if is_plausible(address, 1) {
            // SAFETY: as above; `bytes` is memory of memtrack's own.
            unsafe { std::ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), bytes.len()) };
        }
        is_plausible(address, 1)
    }
}

/// Reads by the kernel. Each takes about a third of a microsecond.
#[derive(Clone, Copy)]
pub(super) struct Checked;

impl Memory for Checked {
    fn word(self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.copy(address, &mut bytes).then_some(u64::from_ne_bytes(bytes))
    }

    fn half(self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.copy(address, &mut bytes).then_some(u32::from_ne_bytes(bytes))
    }

    fn byte(self, address: u64) -> Option<u8> {
        let mut bytes = [0; 1];
        self.copy(address, &mut bytes).then_some(bytes[0])
    }

    fn copy(self, address: u64, bytes: &mut [u8]) -> bool {
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: bytes.len() };
        // SAFETY: the kernel reads this process's memory where it is mapped, and writes to `bytes`.
        let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        copied == bytes.len() as isize
    }
}

/// Reads consecutive bytes in pieces, so that a decoder can stop early.
pub(super) struct Bytes<M> {
    memory: M,
    address: u64,
    left: usize,
    piece: [u8; 512],
    at: usize,
    len: usize,
}

impl<M: Memory> Bytes<M> {
    /// Returns a reader of `len` bytes from `address` on.
    pub(super) fn new(memory: M, address: u64, len: usize) -> Self {
        Self { memory, address, left: len, piece: [0; 512], at: 0, len: 0 }
    }
}

impl<M: Memory> Iterator for Bytes<M> {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        if self.at == self.len {
            self.len = self.left.min(self.piece.len());
            self.at = 0;
            if self.len == 0 || !self.memory.copy(self.address, &mut self.piece[..self.len]) {
                (self.len, self.left) = (0, 0);
                return None;
            }
            self.address += self.len as u64;
            self.left -= self.len;
        }
        self.at += 1;
        Some(self.piece[self.at - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmapped_memory_is_reported_and_mapped_memory_is_read() {
        let words = [7_u64, 8];
        let address = words.as_ptr() as u64;
        assert_eq!(
            (Checked.word(address + 8), Checked.word(16), Checked.byte(u64::MAX)),
            (Some(8), None, None)
        );
        // SAFETY: the array exists, and the other addresses are below a page or misaligned.
        let trusted = unsafe { Trusted::new() };
        assert_eq!(
            (trusted.word(address), trusted.word(8), trusted.word(address + 1)),
            (Some(7), None, None)
        );
    }

    #[test]
    fn bytes_are_read_across_pieces_and_end_at_unmapped_memory() {
        let text: Vec<u8> = (0..1500).map(|number| (number % 251) as u8).collect();
        assert_eq!(Bytes::new(Checked, text.as_ptr() as u64, text.len()).collect::<Vec<_>>(), text);
        assert_eq!(Bytes::new(Checked, 64, 100).next(), None);
    }
}
