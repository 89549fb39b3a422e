//! The child of a fork finds the mock's books whole and free, whatever other threads were doing in the parent: so that
//! what hangs there is not the mock.

use std::cell::RefCell;
use std::fs::File;
use std::sync::{MutexGuard, Once, PoisonError};

use crate::device::Device;
use crate::machine::machine;
use crate::physical::{self, Store};
use crate::settings::settings;
use crate::work::{self, All};

/// All locks of the mock, in the order in which its calls take them.
struct Held {
    _physical: MutexGuard<'static, Option<Store>>,
    _areas: Vec<MutexGuard<'static, Device>>,
    _work: MutexGuard<'static, Option<All>>,
    _trace: Option<MutexGuard<'static, File>>,
}

thread_local! {
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// Has every later fork wait for the calls that are under way.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    // SAFETY: the handlers are functions that stay loaded; the child's stores to locks, and gives memory back, which
    // glibc allows there.
    WATCHED.call_once(|| unsafe {
        libc::pthread_atfork(Some(before), Some(after), Some(after));
    });
}

extern "C" fn before() {
    let Ok(machine) = machine() else { return };
    let held = Held {
        _physical: physical::store(),
        _areas: (0..=machine.devices()).map(|index| machine.area(index)).collect(),
        _work: work::all(),
        _trace: settings().trace.as_ref().map(|file| file.lock().unwrap_or_else(PoisonError::into_inner)),
    };
    HELD.set(Some(held));
}

extern "C" fn after() {
    HELD.set(None);
}
