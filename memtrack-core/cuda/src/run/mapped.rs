//! Mapped memory as a source of events, for the preload library of `memtrack run --host`.

pub use memtrack_recorder::mapped::{
    Remap, Request, advised, map, moved_break, protected, remap, set_allocator_code, unmap,
};

use memtrack_recorder::stack::modules::binary_at;
use std::ffi::c_void;

/// Notes that the program's heap is the allocator that contains this function, rather than the C library.
pub fn set_allocator(function: *const c_void) {
    if let Some(code) = binary_at(function.addr() as u64) {
        set_allocator_code(code);
    }
}
