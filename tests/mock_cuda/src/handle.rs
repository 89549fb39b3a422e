//! Handles: numbers that look like pointers and are never dereferenced. They consist of a tag, the number of the owner (a
//! context or a device) and the object's number, so that a wrong handle is detected without a table.

use std::ffi::c_void;

use crate::status::{CuResult, Status};

/// The type of object that a handle refers to.
#[derive(Clone, Copy)]
pub(crate) enum Tag {
    Context = 1,
    Stream = 2,
    Module = 3,
    Function = 4,
    Pool = 5,
    Physical = 6,
}

const OWNER_SHIFT: u32 = 28;
const TAG_SHIFT: u32 = 44;
const NUMBER_MASK: u64 = (1 << OWNER_SHIFT) - 1;

/// Returns the handle of the owner's object with this number.
pub(crate) fn make(tag: Tag, owner: u16, number: u32) -> *mut c_void {
    let bits = (tag as u64) << TAG_SHIFT | u64::from(owner) << OWNER_SHIFT | u64::from(number) & NUMBER_MASK;
    std::ptr::without_provenance_mut(bits as usize)
}

/// Returns the owner and the number of a handle.
///
/// # Errors
/// `INVALID_HANDLE` if it does not have this tag.
pub(crate) fn read(tag: Tag, handle: *mut c_void) -> CuResult<(u16, u32)> {
    let bits = handle.addr() as u64;
    if bits >> TAG_SHIFT != tag as u64 {
        return Err(Status::INVALID_HANDLE);
    }
    Ok(((bits >> OWNER_SHIFT) as u16, (bits & NUMBER_MASK) as u32))
}
