//! Allocations of `print!` in a test belong to the test harness: it captures output in a buffer that grows. That code
//! is identified by printing nothing: the frames between the formatting of an argument and this module are the
//! standard library's, and the address in the outermost of them is in every stack of captured output.

use crate::events::RECORDER;
use crate::events::stack_here;
use memtrack_model::event::StackId;
use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;

/// Prints nothing, and stores the stack on which it was formatted.
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

/// Return addresses in the functions behind `print!` and `eprint!`.
static ADDRESSES: OnceLock<Vec<u64>> = OnceLock::new();

/// Finds the addresses, once. The calling thread is in no account and outside of memtrack.
pub(super) fn learn() {
    ADDRESSES.get_or_init(|| [learn_of(to_output), learn_of(to_errors)].into_iter().flatten().collect());
}

#[inline(never)]
fn to_output(probe: &Probe) {
    print!("{probe}");
}

#[inline(never)]
fn to_errors(probe: &Probe) {
    eprint!("{probe}");
}

#[inline(never)]
fn learn_of(print: fn(&Probe)) -> Option<u64> {
    let probe = Probe::default();
    let here = stack_here();
    print(&probe);
    let inside = crate::reentry::enter();
    let stacks = &RECORDER.get().stacks;
    let (here, printing) = (stacks.addresses(here), stacks.addresses(probe.stack.get()));
    drop(inside);
    find_printer_callee(&here, &printing)
}

/// Both are innermost first. Their common outermost part are the callers of [`learn_of`]; then come an address in
/// that function, one in the function that prints, and the one to find.
fn find_printer_callee(here: &[u64], printing: &[u64]) -> Option<u64> {
    let common = here.iter().rev().zip(printing.iter().rev()).take_while(|(one, other)| one == other).count();
    let place = printing.len().checked_sub(common + 3)?;
    (common > 0 && place > 0).then(|| printing[place])
}

/// Returns whether a stack's allocations are captured output.
pub(super) fn is_output(stack: StackId) -> bool {
    let Some(addresses) = ADDRESSES.get() else { return false };
    !addresses.is_empty() && RECORDER.get().stacks.goes_through(stack, addresses)
}
