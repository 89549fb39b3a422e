//! Functions for statistics, history and snapshots, which PyTorch's pluggable allocator interface lacks. They are
//! meant to be called through `ctypes`.

use crate::{to_device_id, with_allocator};
use memtrack_core::allocator::{Backend, HistoryOptions};
use std::convert::Infallible;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Starts recording every event with its stack, keeping the newest `max_entries` events per device (all of them if
/// negative); 0 stops recording. Returns 0, or 1 if there is no allocator.
#[unsafe(no_mangle)]
pub extern "C" fn memtrack_record_memory_history(max_entries: i64) -> c_int {
    let options = HistoryOptions::new().max_entries(usize::try_from(max_entries).unwrap_or(usize::MAX));
    let recorded = with_allocator("record_memory_history", |allocator| {
        allocator.record_memory_history((max_entries != 0).then_some(&options));
        Ok::<(), Infallible>(())
    });
    c_int::from(recorded.is_none())
}

/// Writes a snapshot to a file with the suffix `.pickle`, which pytorch.org/memory_viz can also open, `.json` or
/// `.memtrack`. Returns 0, or 1 on failure, in which case the reason is printed on standard error.
///
/// # Safety
/// `path` must point to a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_dump_snapshot(path: *const c_char) -> c_int {
    // SAFETY: guaranteed by the caller.
    let path = unsafe { CStr::from_ptr(path) };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    c_int::from(with_allocator("dump_snapshot", |allocator| allocator.dump_snapshot(path)).is_none())
}

/// Writes `torch.cuda.memory_stats` for a device as JSON, followed by a zero byte, into `buffer`, truncated to
/// `size` bytes. Returns the length of the whole text including the zero byte, or 0 if there are no statistics.
///
/// # Safety
/// `buffer` must have room for `size` bytes, or `size` must be 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memtrack_memory_stats(ordinal: c_int, buffer: *mut c_char, size: usize) -> usize {
    let Some(stats) =
        with_allocator("memory_stats", |allocator| allocator.memory_stats(to_device_id(ordinal)))
    else {
        return 0;
    };
    let mut text = serde_json::to_vec(&stats).unwrap_or_default();
    text.push(0);
    if size > 0 {
        let part = text.len().min(size);
        // SAFETY: the caller's buffer has room for `size` bytes, and `part` exceeds neither `size` nor the length of
        // the text.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), part);
            buffer.add(part - 1).write(0);
        }
    }
    text.len()
}
