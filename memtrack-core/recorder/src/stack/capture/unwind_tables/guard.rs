//! Unwind tables that are read in place, because copies of them would be large (`libtorch_cpu.so` of PyTorch 1.12 has 22 MB),
//! although their binary may be unloaded.
//!
//! **When are they read?** In a walk, for an address of the binary's code that is a return address of the walked stack. Before
//! the first such address, the walk asks glibc whether the same binary is still loaded there (`_dl_find_object`, about 20
//! ns; it takes no lock). A binary to which a running function returns cannot be unloaded during the walk. If it is no longer
//! loaded, the walk ends there.
//!
//! **Why not a second mapping of the file?** That needs a file descriptor, and a sandboxed program must not open files.

use super::loader;
use std::ops::Range;

/// A binary whose tables are read in place.
#[derive(Clone, Debug)]
pub(super) struct Guarded {
    pub(super) code: Range<u64>,
    /// The address of its `.eh_frame_hdr`.
    pub(super) eh_frame_hdr_at: u64,
}

/// What one walk has found out about these binaries.
pub(in crate::stack::capture) struct Guard {
    binaries: &'static [Guarded],
    /// A bit for each binary that is certain to be loaded during the walk.
    admitted: u64,
}

/// The maximum number of such binaries. The tables of others are not used, and stacks through them are truncated.
pub(super) const MAX_GUARDED: usize = u64::BITS as usize;

impl Guard {
    pub(super) fn new(binaries: &'static [Guarded]) -> Self {
        Self { binaries, admitted: 0 }
    }

    /// Returns whether the tables for this address can be read.
    #[inline(always)]
    pub(in crate::stack::capture) fn admits(&mut self, address: u64) -> bool {
        self.binaries.is_empty() || self.admits_with_guarded(address)
    }

    fn admits_with_guarded(&mut self, address: u64) -> bool {
        let Some(index) = self.binaries.iter().position(|binary| binary.code.contains(&address)) else {
            return true;
        };
        let bit = 1 << index;
        if self.admitted & bit == 0 {
            let is_loaded = loader::object_at(address)
                .is_some_and(|object| object.eh_frame_at() == self.binaries[index].eh_frame_hdr_at);
            if !is_loaded {
                return false;
            }
            self.admitted |= bit;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_admitted_only_while_its_binary_is_loaded_there() {
        let here = code_is_admitted_only_while_its_binary_is_loaded_there as fn() as usize as u64;
        loader::find_object();
        let eh_frame_hdr_at = loader::object_at(here).expect("the program is loaded").eh_frame_at();
        let guarded = |eh_frame_hdr_at| &*vec![Guarded { code: here..here + 64, eh_frame_hdr_at }].leak();
        let mut guard = Guard::new(guarded(eh_frame_hdr_at));
        assert_eq!([here, here + 1, here + 64].map(|address| guard.admits(address)), [true; 3]);
        let mut other = Guard::new(guarded(eh_frame_hdr_at + 8));
        assert_eq!([here, here + 64].map(|address| other.admits(address)), [false, true]);
        let unmapped = &*vec![Guarded { code: 16..32, eh_frame_hdr_at: 0 }].leak();
        assert!(!Guard::new(unmapped).admits(20));
        assert!(Guard::new(&[]).admits(20));
    }
}
