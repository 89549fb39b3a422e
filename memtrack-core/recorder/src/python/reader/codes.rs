//! Detects that a code object was freed, because its address may then be reused by another one with the same
//! instructions. Each address belongs to one of some buckets, whose generation changes when one of its code objects that
//! stacks go through is freed. The generation is part of the stack's hash, so that no stack from before is found.
//!
//! **Why is CPython's deallocator of code objects replaced?** The names, the first line and the line table of a freed
//! code object often lie at the same addresses as those of its successor: a program that compiles one function after
//! another reuses them all. Comparing their content at each event would cost more than everything else here. CPython
//! frees each code object through one pointer in its type, `PyCode_Type.tp_dealloc`. It is the only word of the
//! interpreter that memtrack changes; the function that it then refers to calls the original one.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// The number of buckets. They take 64 KiB, of which a program touches only a part.
const BUCKETS: usize = 1 << 14;

/// The generations, which are even. The lowest bit is set if stacks go through a code object of the bucket.
static GENERATIONS: [AtomicU32; BUCKETS] = [const { AtomicU32::new(0) }; BUCKETS];
const IS_USED: u32 = 1;

/// The memory of the generations, in bytes.
#[cfg(test)]
pub(super) const MAX_BYTES: usize = BUCKETS * size_of::<AtomicU32>();

#[inline(always)]
fn bucket_of(code: u64) -> &'static AtomicU32 {
    // Objects are aligned to 16 bytes.
    &GENERATIONS[(code >> 4) as usize % BUCKETS]
}

/// Returns the generation of a code object that exists.
#[inline(always)]
pub(super) fn generation_of(code: u64) -> u32 {
    bucket_of(code).load(Ordering::Relaxed) & !IS_USED
}

/// Records that stacks go through a code object that exists. Must be called before a hash with the object's generation
/// is stored anywhere.
pub(super) fn mark_used(code: u64) {
    bucket_of(code).fetch_or(IS_USED, Ordering::Relaxed);
}

/// Records that the memory at `address` is about to be freed; it need not be a code object. Takes a nanosecond.
#[inline(always)]
fn block_freed(address: u64) {
    let bucket = bucket_of(address);
    if bucket.load(Ordering::Relaxed) & IS_USED != 0 {
        // The carry clears the bit and changes the generation.
        bucket.fetch_add(IS_USED, Ordering::Relaxed);
    }
}

/// Records that the interpreter was unloaded, with all its code objects.
#[cfg(all(target_env = "gnu", not(test)))]
pub(super) fn all_freed() {
    for bucket in &GENERATIONS {
        if bucket.load(Ordering::Relaxed) & IS_USED != 0 {
            bucket.fetch_add(IS_USED, Ordering::Relaxed);
        }
    }
}

type Dealloc = unsafe extern "C" fn(*mut c_void);

/// CPython's deallocator of code objects; null before [`watch_frees`].
static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The deallocator that replaces CPython's.
unsafe extern "C" fn free_code(code: *mut c_void) {
    block_freed(code as u64);
    let original = ORIGINAL.load(Ordering::Relaxed);
    // SAFETY: the pointer was the type's deallocator, and the caller passes an object of the type.
    unsafe { std::mem::transmute::<*mut c_void, Dealloc>(original)(code) }
}

/// Replaces the deallocator of code objects, which is at this address. Returns false if this is impossible.
///
/// # Safety
/// The address must be that of the type's field, in memory that can be written and stays mapped.
pub(super) unsafe fn watch_frees(slot: u64) -> bool {
    if !slot.is_multiple_of(8) {
        return false;
    }
    // SAFETY: the caller guarantees that it can be written, and it is aligned. Other threads only read it.
    let slot = unsafe { AtomicPtr::<c_void>::from_ptr(slot as *mut *mut c_void) };
    let own = free_code as Dealloc as *mut c_void;
    let original = slot.load(Ordering::Acquire);
    if original == own {
        return true;
    }
    if original.is_null() {
        return false;
    }
    ORIGINAL.store(original, Ordering::Release);
    slot.compare_exchange(original, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn only_frees_of_used_code_change_the_generation() {
        // No object has such an address, so other tests do not use the bucket.
        let code = 0x7fff_0000_1230;
        let before = generation_of(code);
        block_freed(code);
        assert_eq!(generation_of(code), before, "no stack goes through it");
        mark_used(code);
        assert_eq!(generation_of(code), before);
        block_freed(code);
        let after = generation_of(code);
        assert_ne!(after, before);
        block_freed(code);
        assert_eq!(generation_of(code), after, "the new object is not used yet");
    }

    #[test]
    fn replaced_deallocator_calls_the_original() {
        static FREED: AtomicU64 = AtomicU64::new(0);
        unsafe extern "C" fn original(code: *mut c_void) {
            FREED.store(code as u64, Ordering::Relaxed);
        }
        let mut slot: *mut c_void = original as Dealloc as *mut c_void;
        // SAFETY: the variable exists until the end of the test.
        assert!(unsafe { watch_frees(&raw mut slot as u64) });
        let code = 0x7fff_0000_4560;
        mark_used(code);
        let before = generation_of(code);
        // SAFETY: the slot has the type's deallocator, which accepts any pointer here.
        unsafe { std::mem::transmute::<*mut c_void, Dealloc>(slot)(code as *mut c_void) };
        assert_eq!(FREED.load(Ordering::Relaxed), code);
        assert_ne!(generation_of(code), before);
    }
}
