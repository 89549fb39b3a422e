//! The addresses of all distinct stacks. A stack has most of its outer addresses in common with one that was stored
//! shortly before, so only its own inner addresses are stored, and the stack that has the others: a *base*.
//!
//! **Why not each stack whole?** `import torch` and five steps of training have 166,000 stacks with 5.2 million
//! addresses. Of those, 0.72 million are not in the stack before. A tree of addresses would have as few (0.71 million),
//! but needs an index of its nodes, 28 bytes for each.

use crate::settings;
use memtrack_model::event::StackId;
use std::ops::{ControlFlow, Range};

/// The maximum number of stacks, of addresses that are stored (16 MiB), and of addresses that the stacks have, shared ones
/// counted each time: a reader of the recording needs 8 bytes for each.
pub(super) const MAX_STACKS: usize = 1 << 19;
const MAX_STORED: usize = 2 << 20;
const MAX_ADDRESSES: usize = 32 << 20;

/// How many of them are kept for shortened stacks, which are stored when there is no room for whole ones.
const SHORTENED_STACKS: usize = 1 << 15;
const SHORTENED_ADDRESSES: usize = 3 << 17;

/// The number of addresses in a piece (512 KiB). Addresses are stored in pieces so that growing copies nothing. No
/// stack's own addresses are split between two pieces.
pub(super) const PIECE_ADDRESSES: usize = 1 << 16;

/// The maximum number of pieces. Stacks have at most a few hundred addresses, so little of a piece is unused at its
/// end.
const MAX_PIECES: usize = MAX_STORED / PIECE_ADDRESSES + 1;

/// The maximum number of addresses of a stack.
pub(super) const MAX_LEN: usize = 1024;

/// The number of recent stacks among which a base is looked for: several threads store stacks in turn.
const RECENT: usize = 8;

/// The maximum number of bases that have to be followed to read a stack.
const MAX_CHAIN: u8 = 64;

/// Where the addresses of a stack are.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The stack that has the outermost `shared` addresses.
    base: StackId,
    shared: u16,
    /// The number of addresses, shared ones included.
    len: u16,
    /// The offset of the other addresses in their piece, outermost first.
    from: u16,
    piece: u8,
    /// The number of bases that have to be followed to read the stack.
    chain: u8,
}

/// Returns the maximum number of bytes that the table takes up if its bounds are divided by `divisor`.
#[cfg(test)]
pub(super) const fn max_bytes(divisor: usize) -> usize {
    // The places have their whole capacity from the beginning.
    ((MAX_PIECES - 1) / divisor + 1) * PIECE_ADDRESSES * size_of::<u64>()
        + MAX_STACKS * size_of::<Place>()
        + RECENT * MAX_LEN * size_of::<u64>()
}

/// A stack that was stored recently, outermost address first.
#[derive(Debug)]
struct Recent {
    stack: StackId,
    addresses: Vec<u64>,
}

/// The stored stacks. All vectors have their capacity from the beginning, except the pieces, which are passed in: nothing is
/// allocated while the table is locked.
#[derive(Debug)]
pub(super) struct StoredStacks {
    pieces: Vec<Vec<u64>>,
    /// The places of the stacks, from id 1 on.
    places: Vec<Place>,
    recent: [Recent; RECENT],
    /// The recent stack that is replaced next.
    next_recent: usize,
    /// The number of addresses of all stacks, shared ones counted each time, and of those that are stored.
    addresses: usize,
    stored: usize,
}

impl StoredStacks {
    /// Creates an empty table.
    pub(super) fn new() -> Self {
        Self {
            pieces: Vec::with_capacity(MAX_PIECES),
            places: Vec::with_capacity(MAX_STACKS),
            recent: std::array::from_fn(|_| Recent {
                stack: StackId::NONE,
                addresses: Vec::with_capacity(MAX_LEN),
            }),
            next_recent: 0,
            addresses: 0,
            stored: 0,
        }
    }

    /// Returns the largest id plus one.
    pub(super) fn len(&self) -> usize {
        self.places.len() + 1
    }

    /// Returns the number of addresses of all stacks, shared ones counted each time.
    pub(super) fn addresses(&self) -> usize {
        self.addresses
    }

    /// Returns the number of bytes of the places.
    pub(super) fn place_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>()
    }

    /// Returns whether there is no room for a stack of this many addresses. A `shortened` stack may take the room that is
    /// kept for such stacks.
    pub(super) fn is_full(&self, addresses: usize, shortened: bool) -> bool {
        let most = settings::eighth_if_small;
        let (stacks_kept, addresses_kept) =
            if shortened { (0, 0) } else { (most(SHORTENED_STACKS), most(SHORTENED_ADDRESSES)) };
        addresses > MAX_LEN
            || self.places.len() + stacks_kept >= most(MAX_STACKS)
            || self.stored + addresses + addresses_kept > most(MAX_STORED)
            || self.addresses + addresses + addresses_kept > most(MAX_ADDRESSES)
            || self.needs_piece(addresses) && self.pieces.len() > most(MAX_PIECES - 1)
    }

    /// Returns whether a stack of this many addresses may need another piece.
    pub(super) fn needs_piece(&self, addresses: usize) -> bool {
        self.pieces.last().is_none_or(|piece| piece.len() + addresses > PIECE_ADDRESSES)
    }

    /// Adds an empty piece, which has its capacity.
    pub(super) fn add_piece(&mut self, piece: Vec<u64>) {
        self.pieces.push(piece);
    }

    /// Stores another stack. There must be room for it, also in the last piece.
    pub(super) fn push(&mut self, outermost_first: &[u64]) -> StackId {
        let (recent, base, shared) = self.choose_base(outermost_first);
        let chain = self.place(base).map_or(0, |place| place.chain + 1);
        let (base, shared, chain) =
            if shared == 0 || chain > MAX_CHAIN { (StackId::NONE, 0, 0) } else { (base, shared, chain) };
        let piece = self.pieces.len() - 1;
        let from = self.pieces[piece].len();
        self.pieces[piece].extend_from_slice(&outermost_first[shared..]);
        self.addresses += outermost_first.len();
        self.stored += outermost_first.len() - shared;
        self.places.push(Place {
            base,
            shared: shared as u16,
            len: outermost_first.len() as u16,
            from: from as u16,
            piece: piece as u8,
            chain,
        });
        let stack = StackId(self.places.len() as u32);
        let Recent { stack: newest, addresses } = &mut self.recent[recent];
        *newest = stack;
        addresses.clear();
        addresses.extend_from_slice(outermost_first);
        stack
    }

    /// Returns the recent stack that has most outermost addresses in common with a new one, how many these are, and the entry
    /// of `recent` that the new stack replaces.
    fn choose_base(&mut self, outermost_first: &[u64]) -> (usize, StackId, usize) {
        let shared = |recent: &Recent| {
            recent.addresses.iter().zip(outermost_first).take_while(|(ours, theirs)| ours == theirs).count()
        };
        let (mut most_similar, mut longest) = (0, 0);
        for (index, recent) in self.recent.iter().enumerate() {
            let shared = shared(recent);
            if shared > longest {
                (most_similar, longest) = (index, shared);
            }
        }
        let base = self.recent[most_similar].stack;
        if longest * 2 >= outermost_first.len() {
            return (most_similar, base, longest);
        }
        // This is probably another thread's stack, or one of another part of the program.
        let oldest = self.next_recent;
        self.next_recent = (oldest + 1) % RECENT;
        (oldest, base, longest)
    }

    fn place(&self, stack: StackId) -> Option<&Place> {
        stack.index().checked_sub(1).and_then(|index| self.places.get(index))
    }

    /// Passes the addresses of a stack to `each` in parts, the innermost part first; within a part, the outermost address is
    /// first. Nothing is passed for an unknown id.
    pub(super) fn visit<B>(
        &self,
        stack: StackId,
        mut each: impl FnMut(&[u64]) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut next = stack;
        let mut limit = usize::MAX;
        while let Some(place) = self.place(next) {
            let (shared, end) = (usize::from(place.shared), usize::from(place.len).min(limit));
            if end > shared {
                each(&self.own(place)[..end - shared])?;
            }
            limit = shared.min(limit);
            next = if limit > 0 { place.base } else { StackId::NONE };
        }
        ControlFlow::Continue(())
    }

    /// Appends a stack's addresses to `to`, innermost first.
    pub(super) fn append_to(&self, stack: StackId, to: &mut Vec<u64>) {
        let _: ControlFlow<()> = self.visit(stack, |part| {
            to.extend(part.iter().rev());
            ControlFlow::Continue(())
        });
    }

    /// Returns whether a stack contains an address for which `matches` returns true.
    pub(super) fn contains(&self, stack: StackId, matches: impl Fn(&u64) -> bool) -> bool {
        let result = self.visit(stack, |part| match part.iter().any(&matches) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        result.is_break()
    }

    /// Stores in `first`, for each stack from id 1 on, how many outermost addresses come before the first one in `code`;
    /// [`u16::MAX`] if none is in it. Returns whether any is. `first` must have a value for each stack.
    pub(super) fn find_code(&self, code: &Range<u64>, first: &mut [u16]) -> bool {
        let mut any = false;
        for (index, place) in self.places.iter().enumerate() {
            let in_base = place.base.index().checked_sub(1).map_or(u16::MAX, |base| first[base]);
            first[index] = match in_base < place.shared {
                true => in_base,
                false => self
                    .own(place)
                    .iter()
                    .position(|address| code.contains(address))
                    .map_or(u16::MAX, |offset| place.shared + offset as u16),
            };
            any |= first[index] != u16::MAX;
        }
        any
    }

    /// Returns the addresses that the stack does not share with its base, outermost first.
    fn own(&self, place: &Place) -> &[u64] {
        let from = usize::from(place.from);
        &self.pieces[usize::from(place.piece)][from..from + usize::from(place.len - place.shared)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an empty table with room for many addresses.
    fn empty() -> StoredStacks {
        let mut stored = StoredStacks::new();
        stored.add_piece(Vec::with_capacity(PIECE_ADDRESSES));
        stored
    }

    fn read(stored: &StoredStacks, stack: StackId) -> Vec<u64> {
        let mut addresses = Vec::new();
        stored.append_to(stack, &mut addresses);
        addresses.reverse();
        addresses
    }

    #[test]
    fn stacks_are_read_as_they_were_stored() {
        let mut stored = empty();
        // A walk through a tree, by two threads in turn: stacks become longer, shorter, and longer again.
        let mut stacks = Vec::new();
        for step in 0..1000u64 {
            let thread = 1000 + step % 2;
            let depth = 3 + (step * step) % 40;
            let mut stack: Vec<u64> =
                (0..depth).map(|level| level * 100 + (step >> (10 - level / 4)) % 7).collect();
            stack.insert(0, thread);
            let id = stored.push(&stack);
            stacks.push((id, stack));
        }
        for (id, stack) in &stacks {
            assert_eq!(read(&stored, *id), *stack);
        }
        assert_eq!(read(&stored, StackId::NONE), [0u64; 0]);
        assert_eq!(read(&stored, StackId(1001)), [0u64; 0]);
        assert!(stored.places.iter().any(|place| place.chain == MAX_CHAIN));
        let all: usize = stacks.iter().map(|(_, stack)| stack.len()).sum();
        assert_eq!(stored.addresses(), all);
        assert!(stored.stored < all * 2 / 3, "{} of {all}", stored.stored);
    }

    #[test]
    fn stacks_of_many_threads_share_their_outer_addresses() {
        let mut stored = empty();
        for step in 0..100 {
            for thread in 0..RECENT as u64 {
                let mut stack = vec![thread; 50];
                stack.push(1000 + step);
                stored.push(&stack);
            }
        }
        // Each thread's first stack and, of each later one, one address; whole ones now and then.
        assert!(stored.stored < RECENT * (2 * 51 + 100), "{}", stored.stored);
    }

    #[test]
    fn code_is_found_in_shared_addresses_too() {
        let mut stored = empty();
        for stack in [&[1, 2, 30, 4][..], &[1, 2, 30, 5], &[1, 2, 6, 7], &[1, 2, 6, 31], &[8, 9]] {
            stored.push(stack);
        }
        let mut first = [0; 5];
        assert!(stored.find_code(&(30..40), &mut first));
        assert_eq!(first, [2, 2, u16::MAX, 3, u16::MAX]);
        let found =
            [1, 2, 3, 4, 5].map(|id| stored.contains(StackId(id), |address| (30..40).contains(address)));
        assert_eq!(found, [true, true, false, true, false]);
        assert!(!stored.find_code(&(50..60), &mut first));
    }
}
