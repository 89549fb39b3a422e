//! Recognizes the allocations of `print!` in a test, which belong to the test harness because it captures output in a
//! growing buffer. To recognize them, this module prints a probe that writes nothing and looks at the stack on which
//! the probe's `fmt` is called. The frames between this module and `fmt` belong to the standard library, and the return
//! address in the outermost of these frames is in every stack of captured output.

use crate::events::RECORDER;
use crate::events::stack_here;
use memtrack_model::event::StackId;
use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;

/// An argument that prints nothing and stores the stack on which it was formatted.
#[derive(Default)]
struct Probe {
    stack: Cell<StackId>,
}

impl fmt::Display for Probe {
    #[inline(never)]
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stack.set(stack_here());
        Ok(())
    }
}

/// The return addresses in the functions that `print!` and `eprint!` call.
static ADDRESSES: OnceLock<Vec<u64>> = OnceLock::new();

/// Fills [`ADDRESSES`] on the first call. The calling thread must be outside all accounts and outside memtrack.
pub(super) fn find_addresses() {
    ADDRESSES.get_or_init(|| {
        [find_address(print_probe), find_address(eprint_probe)].into_iter().flatten().collect()
    });
}

#[inline(never)]
fn print_probe(probe: &Probe) {
    print!("{probe}");
}

#[inline(never)]
fn eprint_probe(probe: &Probe) {
    eprint!("{probe}");
}

#[inline(never)]
fn find_address(print: fn(&Probe)) -> Option<u64> {
    let probe = Probe::default();
    let here = stack_here();
    print(&probe);
    let inside = crate::reentry::enter();
    let stacks = &RECORDER.get().stacks;
    let (here, printing) = (stacks.addresses(here), stacks.addresses(probe.stack.get()));
    drop(inside);
    find_printer_callee(&here, &printing)
}

/// Returns the address that identifies printing. Both stacks are innermost first. The outermost addresses, which both
/// stacks share, are in the callers of [`find_address`]. Further inwards follow an address in that function, an address
/// in the function that prints, and the address to find.
fn find_printer_callee(here: &[u64], printing: &[u64]) -> Option<u64> {
    let common = here.iter().rev().zip(printing.iter().rev()).take_while(|(one, other)| one == other).count();
    let place = printing.len().checked_sub(common + 3)?;
    (common > 0 && place > 0).then(|| printing[place])
}

/// Returns whether the allocations from a stack store output that the test harness captures.
pub(super) fn is_captured_output(stack: StackId) -> bool {
    let Some(addresses) = ADDRESSES.get() else { return false };
    !addresses.is_empty() && RECORDER.get().stacks.goes_through(stack, addresses)
}
