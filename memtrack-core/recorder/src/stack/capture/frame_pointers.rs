//! Walks along the frame pointers, which takes two loads per frame. This is used only in programs built with frame
//! pointers (`-C force-frame-pointers=yes`), as determined by a self-check. As in `unwind`, the thread's previous stack
//! is reused, because following the chain must wait for each load, whereas the loads that check a known chain can run
//! in parallel. Every word that a walk would read is read and compared, so reuse is exact.
#![allow(unsafe_code)]

use super::unwind::ThreadUnwinder;
use super::{Capture, CaptureMethod, MAX_FRAMES, Registers, StackBounds};
use std::sync::atomic::{AtomicBool, Ordering};

static IS_VERIFIED: AtomicBool = AtomicBool::new(false);

/// Returns whether the self-check found frame pointers.
#[inline(always)]
pub(super) fn is_verified() -> bool {
    IS_VERIFIED.load(Ordering::Relaxed)
}

/// The number of outermost frames that may be missing. glibc's entry code has no frame pointers, so its frames may be
/// missing, and so may the frame of `main` or of the thread's first function.
const MAX_MISSING_OUTERMOST: usize = 4;

/// The state that a thread keeps between walks.
pub(super) struct ThreadChain {
    /// The previous chain's frame pointers and return addresses, outermost first.
    frames: [u64; MAX_FRAMES],
    addresses: [u64; MAX_FRAMES],
    len: usize,
    /// The frame pointer saved in the outermost frame, where the chain ended.
    end: u64,
    /// The new frames of the walk in progress, innermost first.
    new_frames: [(u64, u64); MAX_FRAMES],
    /// The address that the chain must reach for a walk to count as complete, because a chain that ends below it went
    /// through code without frame pointers. It is 0 until the first walk has been compared with the unwinder's.
    complete_from: u64,
}

impl ThreadChain {
    pub(super) fn new() -> Self {
        Self {
            frames: [0; MAX_FRAMES],
            addresses: [0; MAX_FRAMES],
            len: 0,
            end: 0,
            new_frames: [(0, 0); MAX_FRAMES],
            complete_from: 0,
        }
    }

    /// Drops the previous stack, because another thread will use this state.
    pub(super) fn forget(&mut self) {
        self.len = 0;
        self.complete_from = 0;
    }

    /// Returns the stack's return addresses, outermost first. Returns `None` if the chain ended before the bottom of
    /// the thread's stack, so that another method must be used.
    #[inline(always)]
    pub(super) fn walk(&mut self, registers: &Registers, bounds: &StackBounds) -> Option<&[u64]> {
        let mut frame = registers.bp;
        let mut lowest = registers.sp;
        let mut new_len = 0;
        let mut candidate = self.len;
        let mut kept = 0;
        while new_len < MAX_FRAMES {
            while candidate > 0 && self.frames[candidate - 1] < frame {
                candidate -= 1;
            }
            if candidate > 0 && self.frames[candidate - 1] == frame && candidate + new_len <= MAX_FRAMES {
                match self.first_changed(candidate) {
                    None => {
                        kept = candidate;
                        break;
                    }
                    Some(changed) => candidate = changed,
                }
            }
            // Read the saved frame pointer and, above it, the return address.
            let Some((caller, address)) = bounds.read_pair(lowest, frame) else { break };
            if address < 0x1000 {
                break;
            }
            self.new_frames[new_len] = (frame, address);
            new_len += 1;
            lowest = frame + 8;
            frame = caller;
        }
        if kept == 0 {
            self.end = frame;
        }
        for (offset, (frame, address)) in self.new_frames[..new_len].iter().rev().enumerate() {
            self.frames[kept + offset] = *frame;
            self.addresses[kept + offset] = *address;
        }
        self.len = kept + new_len;
        if self.complete_from == 0 {
            self.complete_from = bottom(registers, bounds);
        }
        let complete = self.len == MAX_FRAMES || (self.len > 0 && self.frames[0] >= self.complete_from);
        complete.then(|| &self.addresses[..self.len])
    }

    /// Returns the addresses from the most recent walk.
    #[inline(always)]
    pub(super) fn newest(&self) -> &[u64] {
        &self.addresses[..self.len]
    }

    /// Returns the index of the innermost of the outermost `count` frames whose saved frame pointer or return address
    /// has changed.
    #[inline(always)]
    fn first_changed(&self, count: usize) -> Option<usize> {
        (0..count).rev().find(|&index| {
            let outer = if index == 0 { self.end } else { self.frames[index - 1] };
            // SAFETY: the frame was within the stack's bounds when it was saved on this thread, and it lies at or above
            // the frame that the walk has reached, so it is still in use.
            let words = unsafe { StackBounds::read_known_pair(self.frames[index]) };
            words != (outer, self.addresses[index])
        })
    }
}

/// Returns the address that a complete chain must reach, which is found by walking with the unwinder.
#[cold]
fn bottom(registers: &Registers, bounds: &StackBounds) -> u64 {
    let mut unwinder = ThreadUnwinder::new();
    let frames = unwinder.walk(registers, bounds).len();
    // If the unwinder finds no frames, any non-empty walk is accepted.
    let outermost = frames.saturating_sub(1).min(MAX_MISSING_OUTERMOST);
    // A frame's record lies two words below the stack pointer of its caller.
    unwinder.stack_pointer(outermost).saturating_sub(16).max(1)
}

/// Captures one stack along the frame pointers and with `backtrace`, and enables frame pointers if the results agree.
pub(super) fn self_check() {
    IS_VERIFIED
        .store(methods_agree(&mut Capture::new(), &StackBounds::of_this_thread(), 3), Ordering::Relaxed);
}

/// Returns whether frame pointers and `backtrace` agree. Adds a few frames first, so that there is something to compare
/// even in `main`.
#[inline(never)]
fn methods_agree(capture: &mut Capture, bounds: &StackBounds, deeper: u32) -> bool {
    if deeper > 0 {
        let result = methods_agree(capture, bounds, deeper - 1);
        return std::hint::black_box(result);
    }
    let by_unwinder = match capture.take_by(CaptureMethod::Backtrace, bounds) {
        Some(addresses) => addresses.to_vec(),
        None => return false,
    };
    let Some(by_pointers) = capture.take_by(CaptureMethod::FramePointers, bounds) else { return false };
    // The innermost frames are this function and its two calls to `take_by`, which differ, and the outermost are
    // glibc's.
    let common = by_pointers.iter().filter(|address| by_unwinder.contains(address)).count();
    common >= 4 && common + MAX_MISSING_OUTERMOST + 4 >= by_unwinder.len() && common + 4 >= by_pointers.len()
}
