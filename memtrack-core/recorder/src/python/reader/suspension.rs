//! Stops reading Python frames while the dynamic linker may unload the library that contains the interpreter.
//!
//! **Why not keep the library loaded?** A program that closes a library expects that its destructors run and that another
//! version can be loaded.
#![allow(unsafe_code)]

use super::codes::all_freed;
use super::interpreter::{Interpreter, active, is_refused, replace};
use crate::events::{ForkCell, wait_for_hooks};
use crate::stack::modules::binary_at;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Mutex;

/// The number of [`Suspended`] guards, and the address of the interpreter that the last of them restores.
static SUSPENDED: ForkCell<Mutex<(u32, usize)>> = ForkCell::new(Mutex::default);

/// A guard during which the frames of Python are not read.
pub(crate) struct Suspended(());

/// Waits until no hook uses the interpreter, if the interpreter is in a library that may be unloaded. Must be called
/// before the dynamic linker unloads libraries, outside hooks; the guard is dropped afterwards.
pub(crate) fn suspend() -> Option<Suspended> {
    let mut all = SUSPENDED.lock();
    if all.0 == 0 {
        active().filter(|interpreter| !interpreter.is_program)?;
        all.1 = replace(null_mut()).expose_provenance();
    }
    all.0 += 1;
    drop(all);
    wait_for_hooks();
    Some(Suspended(()))
}

impl Drop for Suspended {
    fn drop(&mut self) {
        let mut all = SUSPENDED.lock();
        // A forked child begins with no guards.
        all.0 = all.0.saturating_sub(1);
        if all.0 > 0 || all.1 == 0 {
            return;
        }
        let interpreter = with_exposed_provenance_mut::<Interpreter>(std::mem::take(&mut all.1));
        // SAFETY: the pointer is null or that of an interpreter, which is never freed.
        let Some(code) = (unsafe { interpreter.as_ref() }).map(|found| found.evaluator.start) else { return };
        if binary_at(code).is_none() {
            // Another library may be loaded at its addresses.
            all_freed();
        } else if !is_refused() {
            replace(interpreter);
        }
    }
}
