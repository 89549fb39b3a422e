//! Fork handlers, so that the mock's state in the child is consistent and unlocked, regardless of the parent's other
//! threads: if the child hangs, the mock is not the cause.

use std::cell::RefCell;
use std::fs::File;
use std::sync::{MutexGuard, Once, PoisonError};

use crate::device::Device;
use crate::machine::machine;
use crate::physical::{self, Store};
use crate::settings::settings;
use crate::work::{self, Streams};

/// All locks of the mock, in the order in which its calls acquire them.
struct Locks {
    _physical: MutexGuard<'static, Option<Store>>,
    _areas: Vec<MutexGuard<'static, Device>>,
    _work: MutexGuard<'static, Option<Streams>>,
    _trace: Option<MutexGuard<'static, File>>,
}

thread_local! {
    static LOCKS: RefCell<Option<Locks>> = const { RefCell::new(None) };
}

/// Makes every later fork wait for the calls in progress.
pub(crate) fn register_handlers() {
    static REGISTERED: Once = Once::new();
    // SAFETY: the handlers are functions that stay loaded; the child's handler stores to locks and frees memory, which
    // glibc allows in a fork handler.
    REGISTERED.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(after), Some(after));
    });
}

extern "C" fn before() {
    let Ok(machine) = machine() else { return };
    let locks = Locks {
        _physical: physical::store(),
        _areas: (0..=machine.devices()).map(|index| machine.area(index)).collect(),
        _work: work::streams(),
        _trace: settings().trace.as_ref().map(|file| file.lock().unwrap_or_else(PoisonError::into_inner)),
    };
    LOCKS.set(Some(locks));
}

extern "C" fn after() {
    LOCKS.set(None);
}
