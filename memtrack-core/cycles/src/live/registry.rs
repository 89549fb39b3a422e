//! The registry of values, which consists of weak pointers, each with the place of its registration. Each thread has
//! its own list of `Rc`s. For `Arc`s, there are [`SHARD_COUNT`] lists, and each thread adds to one of them. Threads use
//! different lists as long as there are no more threads than lists.
//!
//! Registering a value, or freeing a dead entry, may run the program's code. No lock is held while that code runs. A
//! value that is registered while its thread's thread-local variables are being dropped is ignored.

use super::switch;
use super::weak::{Entries, LocalWeak, SharedWeak, WeakEntry};
use memtrack_model::event::StackId;
use memtrack_model::references::{Counted, References};
use memtrack_recorder::recorder::{ForkCell, stack_here, ticks};
use memtrack_recorder::reentry;
use memtrack_recorder::scope::{self, ScopeNode};
use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of lists of shared values.
pub(super) const SHARD_COUNT: usize = 64;

/// The information recorded when a value was registered.
#[derive(Clone, Copy)]
pub(super) struct Registration {
    /// The place of the registration.
    pub(super) site: &'static Location<'static>,
    /// The time of the registration, in ticks. Newer values have higher numbers.
    pub(super) serial: u64,
    /// The innermost scope that was open during the registration.
    pub(super) scope: Option<&'static ScopeNode>,
    /// The stack of the registration, if [stacks are kept](super::RegisterOptions::stacks).
    pub(super) stack: StackId,
}

impl Registration {
    #[inline]
    pub(super) fn capture(site: &'static Location<'static>) -> Self {
        let stack = if switch::wants_stacks() { stack_here() } else { StackId::NONE };
        Self { site, serial: ticks(), scope: scope::current_node(), stack }
    }
}

/// A value in the registry.
struct Entry<W> {
    weak: W,
    registration: Registration,
}

impl<W: WeakEntry> WeakEntry for Entry<W> {
    #[inline]
    fn is_dead(&self) -> bool {
        self.weak.is_dead()
    }

    fn drop_entry(self) {
        self.weak.drop_entry();
    }
}

/// A list that shares no cache line with other lists, so that threads with different lists do not contend.
#[repr(align(128))]
struct Shard(Mutex<Entries<Entry<SharedWeak>>>);

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Entries<Entry<SharedWeak>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lists of shared values. A forked child does not use its parent's lists, because another thread may have held a
/// lock.
static SHARED: ForkCell<Box<[Shard]>> =
    ForkCell::new(|| (0..SHARD_COUNT).map(|_| Shard(Mutex::new(Entries::new()))).collect());

thread_local! {
    static LOCAL: RefCell<Entries<Entry<LocalWeak>>> = const { RefCell::new(Entries::new()) };
    /// The index of the thread's list of shared values, plus one, or 0 before a list is assigned.
    static SHARD: Cell<usize> = const { Cell::new(0) };
}

/// Returns the index of the list that this thread adds to.
#[inline]
pub(super) fn shard_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    match SHARD.get() {
        0 => {
            let shard = NEXT.fetch_add(1, Ordering::Relaxed) % SHARD_COUNT;
            SHARD.set(shard + 1);
            shard
        }
        shard => shard - 1,
    }
}

/// A counted pointer to a value that can be registered: an `Rc`, or an `Arc` whose value threads may share. (An `Arc`
/// whose value threads may not share is found through a registered value that refers to it.)
pub trait Register: Counted {
    #[doc(hidden)]
    fn register_at(&self, site: &'static Location<'static>);
}

/// A counted pointer to a value whose size is not known at compile time, such as `Rc<dyn Layer>`.
pub trait RegisterDyn: Counted {
    #[doc(hidden)]
    fn register_dyn_at(&self, site: &'static Location<'static>);
}

impl<T: References + 'static> Register for Rc<T> {
    #[inline]
    fn register_at(&self, site: &'static Location<'static>) {
        add_local(|| LocalWeak::new_sized(self), site);
    }
}

impl<T: References + Send + Sync + 'static> Register for Arc<T> {
    #[inline]
    fn register_at(&self, site: &'static Location<'static>) {
        add_shared(|| SharedWeak::new_sized(self), site);
    }
}

impl<T: References + ?Sized + 'static> RegisterDyn for Rc<T> {
    fn register_dyn_at(&self, site: &'static Location<'static>) {
        add_local(|| LocalWeak::new_unsized(self), site);
    }
}

impl<T: References + Send + Sync + ?Sized + 'static> RegisterDyn for Arc<T> {
    fn register_dyn_at(&self, site: &'static Location<'static>) {
        add_shared(|| SharedWeak::new_unsized(self), site);
    }
}

/// Makes this value a starting point for scans, regardless of what refers to it. It suffices to register one value in
/// each cycle, such as the one with the device memory.
///
/// While registration is [off](crate::enable), this costs a load and a branch. Otherwise, it costs some 16 ns (31 ns
/// for an `Arc`) and 56 bytes. The value is not kept alive, but its memory block stays allocated until a later
/// registration or a scan finds that the value is dead. A thread never has more such blocks than twice the number of
/// values that were alive at the last such check, plus 256.
///
/// ```
/// # use memtrack_cycles as cycles;
/// use std::rc::Rc;
///
/// let value = Rc::new(String::from("a layer"));
/// cycles::register(&value);
/// ```
#[inline]
#[track_caller]
pub fn register(pointer: &impl Register) {
    if switch::is_enabled() {
        pointer.register_at(Location::caller());
    }
}

/// Like [`register`], but for a value whose size is not known at compile time, such as `Rc<dyn Layer>`. This allocates
/// an additional box.
#[inline]
#[track_caller]
pub fn register_dyn(pointer: &impl RegisterDyn) {
    if switch::is_enabled() {
        pointer.register_dyn_at(Location::caller());
    }
}

fn add_local(weak: impl FnOnce() -> LocalWeak, site: &'static Location<'static>) {
    if !switch::is_enabled_in_process() {
        return;
    }
    let registration = Registration::capture(site);
    // Failures are ignored, because either the thread is ending or the program's allocator registers a value while
    // memtrack allocates.
    let _ = LOCAL.try_with(|local| {
        if let Ok(mut local) = local.try_borrow_mut() {
            local.push(Entry { weak: weak(), registration });
        }
    });
}

fn add_shared(weak: impl FnOnce() -> SharedWeak, site: &'static Location<'static>) {
    if !switch::is_enabled_in_process() {
        return;
    }
    let entry = Entry { weak: weak(), registration: Registration::capture(site) };
    SHARED.get()[shard_of_thread()].lock().push(entry);
}

/// Turns off registration and drops the registrations of shared values and of this thread. Another thread's
/// registrations are dropped when that thread ends.
pub fn disable() {
    switch::turn_off();
    let _inside = reentry::enter();
    let _ = LOCAL.try_with(|local| {
        if let Ok(mut local) = local.try_borrow_mut() {
            local.clear();
        }
    });
    if SHARED.is_made() {
        SHARED.get().iter().for_each(|shard| shard.lock().clear());
    }
}

/// Calls `visit` with a strong pointer to each registered value that is alive, both those of this thread and those that
/// threads share, in any order. Dead entries are dropped. The caller must have called [`reentry::enter`].
pub(super) fn upgrade_all(mut visit: impl FnMut(Box<dyn Counted>, Registration)) {
    /// A guard that puts the entries back, even after a panic.
    struct Restore<E: WeakEntry, F: FnMut(Vec<E>)>(Vec<E>, F);
    impl<E: WeakEntry, F: FnMut(Vec<E>)> Drop for Restore<E, F> {
        fn drop(&mut self) {
            (self.1)(std::mem::take(&mut self.0));
        }
    }
    let _ = LOCAL.try_with(|local| {
        let taken = local.borrow_mut().take();
        let mut taken = Restore(taken, |taken| local.borrow_mut().restore(taken));
        visit_alive(&mut taken.0, |entry| entry.weak.upgrade(), &mut visit);
    });
    if !SHARED.is_made() {
        return;
    }
    for shard in SHARED.get() {
        // The list is not locked while its entries are processed.
        let taken = shard.lock().take();
        let mut taken = Restore(taken, |taken| shard.lock().restore(taken));
        visit_alive(&mut taken.0, |entry| entry.weak.upgrade(), &mut visit);
    }
}

fn visit_alive<W: WeakEntry>(
    entries: &mut Vec<Entry<W>>,
    upgrade: impl Fn(&Entry<W>) -> Option<Box<dyn Counted>>,
    visit: &mut impl FnMut(Box<dyn Counted>, Registration),
) {
    let dead = |entry: &mut Entry<W>| match upgrade(entry) {
        Some(strong) => {
            visit(strong, entry.registration);
            false
        }
        None => true,
    };
    entries.extract_if(.., dead).for_each(WeakEntry::drop_entry);
}

/// Returns the number of entries in this thread's list, and the number in all shared lists.
#[cfg(test)]
pub(super) fn entry_counts() -> (usize, usize) {
    let shared = SHARED.get().iter().map(|shard| shard.lock().len()).sum();
    (LOCAL.with(|local| local.borrow().len()), shared)
}
