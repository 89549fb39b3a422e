//! What `print!` allocates in a test belongs to the test harness: it captures output in a buffer that grows. Which code
//! that is, is found out by printing nothing: what is between the formatting of an argument and this module is the standard
//! library's, and the address in its outermost function is in every stack of captured output.

use crate::recorder::RECORDER;
use crate::recorder::stack_here;
use memtrack_model::event::StackId;
use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;

/// Prints nothing, and remembers the stack that it was asked on.
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

/// Finds them out, once. The calling thread is in no account and outside of memtrack.
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
    called_by_printer(&here, &printing)
}

/// Both innermost first. From the outermost on they have in common what called [`learn_of`]; then come an address in that,
/// one in the function that prints, and the one that is wanted.
fn called_by_printer(here: &[u64], printing: &[u64]) -> Option<u64> {
    let common = here.iter().rev().zip(printing.iter().rev()).take_while(|(one, other)| one == other).count();
    let place = printing.len().checked_sub(common + 3)?;
    (common > 0 && place > 0).then(|| printing[place])
}

/// Whether what a stack allocated is captured output.
pub(super) fn is_output(stack: StackId) -> bool {
    let Some(addresses) = ADDRESSES.get() else { return false };
    !addresses.is_empty() && RECORDER.get().stacks.goes_through(stack, addresses)
}
