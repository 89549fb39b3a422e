//! Handles an allocator's report that memory ran out: prints what holds the memory and writes a dump if the options
//! request it, then calls the program's observers. All of this happens after the hook, on the thread whose request
//! failed; an error here is only printed, because the program may continue without that memory.
//!
//! **How many dumps are kept?** Eight per session: the first one and the newest seven. From the ninth on, writing them
//! takes at most a fiftieth of the time (`pace`).

use super::fork::ForkCell;
use super::{report_hook, session};
use crate::message::print;
use crate::reentry;
use crate::shared_memory::{append, is_connected, log::Record};
use memtrack_model::OutOfMemory;
use memtrack_model::event::{DeviceId, StreamId};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

/// The maximum number of dumps that are kept per session: a program may run out of memory again and again.
const MAX_DUMPS: u64 = 8;

type Observe = dyn Fn(&OutOfMemory) + Send + Sync;
/// The observers with their ids, in the order in which they were attached.
type Observers = Vec<(u64, Arc<Observe>)>;

static OBSERVERS: ForkCell<RwLock<Observers>> = ForkCell::new(RwLock::default);

/// Attaches an observer, and returns its id.
pub(crate) fn attach(observer: impl Fn(&OutOfMemory) + Send + Sync + 'static) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let observer: Arc<Observe> = Arc::new(observer);
    // Called first, so that no forked child inherits the list.
    super::fork::watch();
    let _inside = reentry::enter();
    OBSERVERS.get().write().unwrap_or_else(PoisonError::into_inner).push((id, observer));
    id
}

/// Detaches the observer with this id.
pub(crate) fn detach(id: u64) {
    let detached = {
        let _inside = reentry::enter();
        let mut observers = OBSERVERS.get().write().unwrap_or_else(PoisonError::into_inner);
        let place = observers.iter().position(|(other, _)| *other == id);
        place.map(|place| observers.remove(place))
    };
    // The closure belongs to the program and may do anything when it is dropped, so the lock must be released first.
    drop(detached);
}

thread_local! {
    static REPORTING: Cell<bool> = const { Cell::new(false) };
}

/// A guard that exists while the thread is reporting that memory ran out.
struct ReportGuard;

impl ReportGuard {
    /// Returns the guard, unless the thread is already reporting.
    fn begin() -> Option<Self> {
        (!REPORTING.replace(true)).then_some(Self)
    }
}

impl Drop for ReportGuard {
    fn drop(&mut self) {
        REPORTING.set(false);
    }
}

/// Prints the report and writes a dump if the options request them, and calls the observers. Never panics.
pub(crate) fn report(oom: &OutOfMemory) {
    if reentry::is_inside() {
        return;
    }
    let Some(_reporting) = ReportGuard::begin() else { return };
    log(oom);
    catch_panic("reporting what holds the memory", || report_hook::at_oom(oom));
    catch_panic("the dump at out of memory", || dump(oom));
    let mut observers: Vec<Arc<Observe>> = {
        let _inside = reentry::enter();
        let observers = OBSERVERS.get().read().unwrap_or_else(PoisonError::into_inner);
        observers.iter().map(|(_, observer)| Arc::clone(observer)).collect()
    };
    // Calling and dropping the observers runs the program's code, whose allocations are recorded. The list's own memory
    // is memtrack's, so it is dropped inside memtrack below.
    for observer in observers.drain(..) {
        catch_panic("an observer of out of memory", move || observer(oom));
    }
    let _inside = reentry::enter();
    drop(observers);
}

/// Reports that the host heap refused a request: prints what holds the heap's memory. No dump is written and no observer
/// is called, because there would be no memory for that. Never panics.
#[cold]
pub(crate) fn report_heap_refusal(requested_bytes: u64) {
    if reentry::is_inside() {
        return;
    }
    let Some(_reporting) = ReportGuard::begin() else { return };
    if is_connected() {
        // A heap may refuse millions of requests: the command reports a few, and a record per request would fill its memory.
        static LOGGED: AtomicU64 = AtomicU64::new(0);
        if LOGGED.fetch_add(1, Ordering::Relaxed) < MAX_LOGGED_REFUSALS {
            log(&OutOfMemory::new(DeviceId::HOST, StreamId(0), requested_bytes, 0, 0));
        }
        return;
    }
    catch_panic("reporting what holds the heap", || report_hook::at_refusal(requested_bytes));
}

/// The maximum number of refused requests of the heap that are passed to the command.
const MAX_LOGGED_REFUSALS: u64 = 64;

/// Passes the failed request to the command, if recording goes to shared memory.
fn log(oom: &OutOfMemory) {
    if is_connected() {
        let _inside = reentry::enter();
        let scope = report_hook::scope_text();
        append(&Record::OutOfMemory(*oom, crate::clock::ticks(), scope.into()));
    }
}

fn dump(oom: &OutOfMemory) {
    let _inside = reentry::enter();
    let begin = Instant::now();
    let Some((snapshot, path)) = session::dump_on_oom(MAX_DUMPS) else { return };
    let written = session::with_file_name(&path, || (session::dumper().write)(&snapshot, &path));
    session::note_dump(begin.elapsed());
    match written {
        Ok(()) => print(format_args!("{oom}; wrote {}", path.display())),
        Err(error) => print(format_args!("{oom}; the dump could not be written: {error}")),
    }
}

/// Calls `act`, and prints a message if it panics.
fn catch_panic(what: &str, act: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(act)) {
        print(format_args!("{what} panicked; the program goes on"));
        // Not dropped, because its destructor could also panic.
        std::mem::forget(payload);
    }
}
