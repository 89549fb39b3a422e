//! Captures stacks that are not the thread's own, such as those of coroutines and other code that has switched stacks.
//! The end of such a stack is unknown, so the kernel copies the memory above the stack pointer and stops at unmapped
//! memory.
//!
//! **Why `process_vm_readv`?** It takes one to two microseconds. `backtrace`, which would otherwise be needed, takes
//! 4.5.
#![allow(unsafe_code)]

use super::Registers;
use super::unwind::ThreadUnwinder;

/// The maximum number of bytes that are copied from a foreign stack.
const MAX_BYTES: usize = 32 << 10;
const PAGE_BYTES: u64 = 4096;

/// Captures the stack that starts at `registers`, outermost frame first. The result is empty if the kernel does not
/// allow the copy. Takes a few microseconds.
#[cold]
pub(super) fn take<'a>(
    unwinder: &'a mut ThreadUnwinder,
    copy: &mut Vec<u64>,
    registers: &Registers,
) -> &'a [u64] {
    let sp = registers.sp & !7;
    copy.resize(MAX_BYTES / 8, 0);
    let copied_bytes = copy_from(sp, copy);
    let words = &copy[..copied_bytes / 8];
    unwinder.walk_once(registers, |at| {
        let offset = at.checked_sub(sp)?;
        (offset % 8 == 0).then(|| words.get(offset as usize / 8).copied()).flatten()
    })
}

/// Copies the mapped memory from `address` onwards, page by page, and returns the number of bytes copied.
pub(super) fn copy_from(address: u64, copy: &mut [u64]) -> usize {
    let room_bytes = size_of_val(copy);
    let first_page = (PAGE_BYTES - address % PAGE_BYTES) as usize;
    let mut remote =
        [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MAX_BYTES / PAGE_BYTES as usize + 1];
    let (mut at, mut left, mut count) = (address, room_bytes, 0);
    while left > 0 && count < remote.len() {
        let len = if count == 0 { first_page.min(left) } else { (PAGE_BYTES as usize).min(left) };
        remote[count] = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: len };
        (at, left, count) = (at + len as u64, left - len, count + 1);
    }
    let local = libc::iovec { iov_base: copy.as_mut_ptr().cast(), iov_len: room_bytes };
    // SAFETY: the kernel reads this process's memory where it is mapped and writes to `copy`, which is large enough.
    // Each page is copied completely or not at all, and the copy ends at the first page that cannot be read.
    let copied = unsafe {
        libc::process_vm_readv(libc::getpid(), &local, 1, remote.as_ptr(), count as libc::c_ulong, 0)
    };
    usize::try_from(copied).unwrap_or(0)
}
