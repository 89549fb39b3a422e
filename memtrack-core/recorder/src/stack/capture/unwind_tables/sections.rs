//! The sections of a binary that unwinding reads, with copies of them and their bounds in memory.
#![allow(unsafe_code)]

use crate::{internal_bytes, settings};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of a section of a binary's unwind tables.
#[derive(Clone)]
pub(in crate::stack::capture) enum Bytes {
    /// A section of the program or another binary that is never unloaded, which is not copied.
    InPlace(&'static [u8]),
    Copied(Arc<Copied>),
    /// A section of a binary that may be unloaded, which is not copied because it is large. It is read only while a
    /// [guard](super::guard) ensures that the binary is loaded.
    Guarded(Section),
}

/// The place of a section in memory.
#[derive(Clone, Copy)]
pub(in crate::stack::capture) struct Section {
    at: u64,
    len: u64,
}

pub(in crate::stack::capture) struct Copied(Box<[u8]>);

impl Default for Bytes {
    fn default() -> Self {
        Self::InPlace(&[])
    }
}

/// The maximum total size of all copies in bytes. Tables that do not fit are read in place. A forked child keeps the existing
/// copies.
pub(crate) const MAX_COPIED_BYTES: usize = 24 << 20;
static COPIED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The maximum size in bytes of a table that is copied when monitoring starts. Larger tables are copied only once a stack
/// goes through their library.
pub(super) const COPIED_AT_START_BYTES: usize = 4 << 20;

impl Bytes {
    /// Copies a section; `None` if the copies would become too large.
    pub(super) fn copy(bytes: &[u8]) -> Option<Self> {
        let most = settings::quarter_if_small(MAX_COPIED_BYTES);
        let room = |copied: usize| Some(copied + bytes.len()).filter(|&all| all <= most);
        COPIED_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok()?;
        internal_bytes::add_inherited(bytes.len());
        Some(Self::Copied(Arc::new(Copied(bytes.into()))))
    }

    /// Returns a section that is read in place.
    ///
    /// # Safety
    /// The section must be mapped and readable while a guard admits the code of its binary.
    pub(super) unsafe fn guarded(at: u64, len: u64) -> Self {
        Self::Guarded(Section { at, len })
    }

    /// Returns whether the section is read in place while a guard admits it.
    pub(super) fn is_guarded(&self) -> bool {
        matches!(self, Self::Guarded(_))
    }

    /// Returns the section's length without reading it.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::InPlace(bytes) => bytes.len(),
            Self::Copied(bytes) => bytes.0.len(),
            Self::Guarded(section) => section.len as usize,
        }
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        COPIED_BYTES.fetch_sub(self.0.len(), Ordering::Relaxed);
        internal_bytes::subtract_inherited(self.0.len());
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::InPlace(bytes) => bytes,
            Self::Copied(bytes) => &bytes.0,
            // SAFETY: `guarded` was called for this section, and sections are read only in a walk, after its guard has admitted
            // an address of the binary.
            Self::Guarded(section) => unsafe {
                std::slice::from_raw_parts(section.at as *const u8, section.len as usize)
            },
        }
    }
}

/// Returns the address of `.eh_frame`, read from the head of `.eh_frame_hdr` at `at`, where linkers store it as a
/// pc-relative offset of four bytes.
pub(super) fn eh_frame_pointer(header: &[u8], at: u64) -> Option<u64> {
    const PCREL_SDATA4: u8 = 0x1b;
    if header.len() < 8 || header[0] != 1 || header[1] != PCREL_SDATA4 {
        return None;
    }
    let offset = i32::from_le_bytes(header[4..8].try_into().ok()?);
    Some((at + 4).wrapping_add_signed(i64::from(offset)))
}

/// Returns the length of the `.eh_frame` section at `at`, found by following its entries to the terminating zero.
pub(super) fn eh_frame_length(at: u64, end: u64) -> Option<u64> {
    let mut cursor = at;
    while cursor + 4 <= end {
        // SAFETY: entries follow each other without gaps up to the terminating zero, so the cursor stays in the
        // section. If the section is damaged, the bound keeps the cursor within the mapping.
        let len = u64::from(unsafe { (cursor as *const u32).read_unaligned() });
        cursor += 4;
        match len {
            0 => return Some(cursor - at),
            0xffff_ffff => return None,
            len => cursor += len,
        }
    }
    None
}
