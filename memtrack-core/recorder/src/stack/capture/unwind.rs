//! Walks with framehop, made fast in two ways. Sixteen rule caches, used as a four-way set-associative cache, keep
//! frames from evicting each other, and the thread's previous stack is reused. Reuse is exact, because a frame is
//! reused only if its address, stack pointer and frame pointer are equal and every word that a walk from there would
//! read (return addresses and saved frame pointers) is unchanged. (Return addresses alone are not enough. Where
//! functions align their stack pointer, return addresses from an older stack may remain in the gaps.)
//!
//! **Why sixteen caches?** A cache has one rule per slot, so two call sites that alternate in a slot cost half a
//! microsecond per event.

use super::{MAX_FRAMES, Registers, StackBounds, unwind_tables};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64};
use framehop::{FrameAddress, MustNotAllocateDuringUnwind, Unwinder};

/// A frame of the previous stack, stored as the state after unwinding to it.
#[derive(Clone, Copy)]
struct SavedFrame {
    sp: u64,
    bp: u64,
    /// The address from which `bp` was read. It is 0 if `bp` is unchanged from the inner frame, and [`UNKNOWN`] if
    /// other words were read too.
    bp_at: u64,
}

/// An address that can never be read, so that a frame with this value is never reused.
const UNKNOWN: u64 = u64::MAX;

const NO_FRAME: SavedFrame = SavedFrame { sp: 0, bp: 0, bp_at: 0 };

/// The addresses of the words that were read to unwind one frame. There are one or two, rarely more.
#[derive(Clone, Copy, Default)]
struct Reads {
    len: usize,
    at: [u64; 2],
}

impl Reads {
    #[inline(always)]
    fn push(&mut self, at: u64) {
        if let Some(place) = self.at.get_mut(self.len) {
            *place = at;
        }
        self.len += 1;
    }

    /// Returns [`SavedFrame::bp_at`] for a frame at `sp`, whose return address lies just below `sp`.
    #[inline(always)]
    fn bp_at(&self, sp: u64) -> u64 {
        let return_address_at = sp.wrapping_sub(8);
        match (self.len, self.at) {
            (1, [only, _]) if only == return_address_at => 0,
            (2, [first, second]) if first == return_address_at => second,
            (2, [first, second]) if second == return_address_at => first,
            _ => UNKNOWN,
        }
    }
}

type Cache = CacheX86_64<MustNotAllocateDuringUnwind>;

/// The number of groups of caches. A framehop cache has one rule for all addresses with the same remainder. With a
/// single cache, two alternating call sites with the same remainder would make it read the unwind tables again for each
/// event (half a microsecond each time), and a program with a few hundred call sites has such a pair. So there are
/// groups of caches, and within a group, each such address is assigned its own cache.
const GROUPS: usize = 4;
/// The number of caches per group.
const WAYS: usize = 4;
/// The number of rules in a framehop cache. If framehop used another number, the caches would still be correct, only
/// less effective.
const RULES: usize = 509;

/// The addresses assigned to the caches of a group, each given as a part of its hash, or 0 if unassigned.
#[derive(Clone, Copy, Default)]
#[repr(align(16))]
struct Ways([u32; WAYS]);

/// The state that a thread keeps between captures.
pub(crate) struct ThreadUnwinder {
    /// Created when they are first used: each takes 16 KB, and a thread with few call sites uses one per group.
    caches: Box<[Option<Cache>]>,
    ways: Box<[Ways]>,
    /// The previous stack, outermost first, parallel to the addresses in `Capture`.
    saved: [SavedFrame; MAX_FRAMES],
    saved_addresses: [u64; MAX_FRAMES],
    len: usize,
    /// The new frames of the walk in progress, innermost first. This is a field because clearing it on the stack would
    /// cost more than the walk.
    new_frames: [(u64, SavedFrame); MAX_FRAMES],
}

impl ThreadUnwinder {
    /// Creates the state, which allocates about 250 KB for the rule caches, but does not touch most of it.
    pub(crate) fn new() -> Self {
        Self {
            caches: (0..GROUPS * WAYS).map(|_| None).collect(),
            ways: vec![Ways::default(); GROUPS * RULES].into_boxed_slice(),
            saved: [NO_FRAME; MAX_FRAMES],
            saved_addresses: [0; MAX_FRAMES],
            len: 0,
            new_frames: [(0, NO_FRAME); MAX_FRAMES],
        }
    }

    /// Drops the previous stack, because another thread will use this state.
    pub(crate) fn forget(&mut self) {
        self.len = 0;
    }

    /// Returns the stack pointer of the frame with index `from_outermost` in the newest stack, or 0 if there is no such
    /// frame.
    pub(super) fn stack_pointer(&self, from_outermost: usize) -> u64 {
        if from_outermost < self.len { self.saved[from_outermost].sp } else { 0 }
    }

    /// Walks from `registers` and returns the addresses, outermost first. The result is empty if the walk failed at the
    /// first frame. If the stack is deeper than [`MAX_FRAMES`], its innermost frames are kept.
    pub(crate) fn walk(&mut self, registers: &Registers, bounds: &StackBounds) -> &[u64] {
        let Some((unwinder, mut guard)) = unwind_tables::unwinder() else { return &[] };
        let mut regs = UnwindRegsX86_64::new(registers.ip, registers.sp, registers.bp);
        let mut address = FrameAddress::from_instruction_pointer(registers.ip);
        // Collect new frames until one is found in the previous stack.
        let mut new_len = 0;
        // Saved frames before `candidate` (outermost first) may still match. The others are deeper than the current frame, so
        // they cannot.
        let mut candidate = self.len;
        let mut lowest = registers.sp;
        let mut kept = 0;
        while new_len < MAX_FRAMES {
            let at = address.address_for_lookup();
            if !guard.admits(at) {
                break;
            }
            let cache = existing(&mut self.caches[cache_of(&mut self.ways, at)]);
            let mut reads = Reads::default();
            let mut read_stack = |at: u64| {
                reads.push(at);
                bounds.read(registers.sp, at).ok_or(())
            };
            let Ok(Some(ip)) = unwinder.unwind_frame(address, &mut regs, cache, &mut read_stack) else {
                break;
            };
            let frame = SavedFrame { sp: regs.sp(), bp: regs.bp(), bp_at: reads.bp_at(regs.sp()) };
            if frame.sp <= lowest {
                break;
            }
            lowest = frame.sp;
            while candidate > 0 && self.saved[candidate - 1].sp < frame.sp {
                candidate -= 1;
            }
            if candidate > 0
                && (self.saved[candidate - 1].sp, self.saved[candidate - 1].bp) == (frame.sp, frame.bp)
                && self.saved_addresses[candidate - 1] == ip
                && candidate + new_len <= MAX_FRAMES
            {
                match self.first_changed(candidate - 1, registers.sp, bounds) {
                    None => {
                        kept = candidate;
                        break;
                    }
                    // Frames deeper than the changed one cannot be reused.
                    Some(changed) => candidate = changed,
                }
            }
            self.new_frames[new_len] = (ip, frame);
            new_len += 1;
            let Some(next) = FrameAddress::from_return_address(ip) else { break };
            address = next;
        }
        for (offset, (ip, frame)) in self.new_frames[..new_len].iter().rev().enumerate() {
            self.saved_addresses[kept + offset] = *ip;
            self.saved[kept + offset] = *frame;
        }
        self.len = kept + new_len;
        &self.saved_addresses[..self.len]
    }

    /// Walks from `registers` over words that `read` returns, without keeping state. This is for stacks that are not
    /// the thread's own.
    pub(super) fn walk_once(
        &mut self,
        registers: &Registers,
        mut read: impl FnMut(u64) -> Option<u64>,
    ) -> &[u64] {
        self.len = 0;
        let Some((unwinder, mut guard)) = unwind_tables::unwinder() else { return &[] };
        let mut regs = UnwindRegsX86_64::new(registers.ip, registers.sp, registers.bp);
        let mut address = FrameAddress::from_instruction_pointer(registers.ip);
        let mut read = |at: u64| read(at).ok_or(());
        let mut from = MAX_FRAMES;
        let mut lowest = registers.sp;
        while from > 0 {
            let at = address.address_for_lookup();
            if !guard.admits(at) {
                break;
            }
            let cache = existing(&mut self.caches[cache_of(&mut self.ways, at)]);
            let Ok(Some(ip)) = unwinder.unwind_frame(address, &mut regs, cache, &mut read) else { break };
            if regs.sp() <= lowest {
                break;
            }
            lowest = regs.sp();
            from -= 1;
            self.saved_addresses[from] = ip;
            let Some(next) = FrameAddress::from_return_address(ip) else { break };
            address = next;
        }
        &self.saved_addresses[from..]
    }

    /// Checks the words that were read for the saved frames with indices below `innermost`, which are the outer frames.
    /// Returns the index of the innermost of these frames whose words have changed.
    #[inline(always)]
    fn first_changed(&self, innermost: usize, sp: u64, bounds: &StackBounds) -> Option<usize> {
        (0..innermost).rev().find(|&frame| {
            let saved = self.saved[frame];
            bounds.read(sp, saved.sp.wrapping_sub(8)) != Some(self.saved_addresses[frame])
                || (saved.bp_at != 0 && bounds.read(sp, saved.bp_at) != Some(saved.bp))
        })
    }
}

/// Returns the cache in `place`, which is created on first use.
#[inline(always)]
fn existing(place: &mut Option<Cache>) -> &mut Cache {
    #[cold]
    #[inline(never)]
    fn create(place: &mut Option<Cache>) -> &mut Cache {
        place.insert(Cache::new_in())
    }
    match place {
        Some(cache) => cache,
        None => create(place),
    }
}

/// Returns the index of the cache for an address: the cache already assigned to it, or else an unassigned cache, or else
/// any cache of the group.
#[inline(always)]
fn cache_of(ways: &mut [Ways], address: u64) -> usize {
    let hash = address.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let group = (hash >> 62) as usize % GROUPS;
    let ways = &mut ways[group * RULES + address as usize % RULES];
    let tag = (hash >> 24) as u32 | 1;
    let way = ways.0.iter().position(|&assigned| assigned == tag).unwrap_or_else(|| {
        let way = ways.0.iter().position(|&assigned| assigned == 0).unwrap_or((hash >> 60) as usize % WAYS);
        ways.0[way] = tag;
        way
    });
    group * WAYS + way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_sites_with_the_same_slot_get_different_caches() {
        let mut ways = vec![Ways::default(); GROUPS * RULES];
        let group = |cache: usize| cache / WAYS;
        let first = cache_of(&mut ways, 0x5555_0000);
        // Take as many addresses with the same remainder and group as there are ways. Each gets its own cache and keeps
        // it.
        let rivals: Vec<u64> = (0..1000)
            .map(|n| 0x5555_0000 + n * RULES as u64)
            .filter(|&address| {
                group(cache_of(&mut vec![Ways::default(); GROUPS * RULES], address)) == group(first)
            })
            .take(WAYS)
            .collect();
        let caches: Vec<usize> = rivals.iter().map(|&address| cache_of(&mut ways, address)).collect();
        let mut distinct = caches.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), WAYS);
        for _ in 0..3 {
            assert!(
                rivals.iter().zip(&caches).all(|(&address, &cache)| cache_of(&mut ways, address) == cache)
            );
        }
    }
}
