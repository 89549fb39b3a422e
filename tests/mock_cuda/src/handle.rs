//! Handles are numbers that look like pointers and are never followed: a tag, the number of what they belong to (a
//! context, a device) and a number of their own. So a wrong handle is told at once, without a table.

use std::ffi::c_void;

use crate::status::{Answer, Status};

/// What a handle stands for.
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

/// A handle of `owner`'s `number`.
pub(crate) fn make(tag: Tag, owner: u16, number: u32) -> *mut c_void {
    let bits = (tag as u64) << TAG_SHIFT | u64::from(owner) << OWNER_SHIFT | u64::from(number) & NUMBER_MASK;
    std::ptr::without_provenance_mut(bits as usize)
}

/// Owner and number of a handle.
///
/// # Errors
/// Invalid handle where it is none of this tag.
pub(crate) fn read(tag: Tag, handle: *mut c_void) -> Answer<(u16, u32)> {
    let bits = handle.addr() as u64;
    if bits >> TAG_SHIFT != tag as u64 {
        return Err(Status::INVALID_HANDLE);
    }
    Ok(((bits >> OWNER_SHIFT) as u16, (bits & NUMBER_MASK) as u32))
}
