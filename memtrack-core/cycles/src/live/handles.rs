//! Tracked handles, which are reference-counted pointers that are known individually, each with the place where it was
//! created. After a scan, a handle is unaccounted for if it was not found in any visited value although the root scope
//! in which it was created has ended. Such a handle has been forgotten (`mem::forget`, `Box::leak`), or it is in a
//! growing static or somewhere else that a scan cannot see. Counts alone cannot distinguish such handles from handles
//! in use.

use super::registry::{Register, RegisterDyn, SHARD_COUNT, shard_of_thread};
use super::switch;
use crate::graph::UnexplainedHandles;
use foldhash::{HashMap, HashSet};
use memtrack_model::references::{Counted, References, Visitor};
use memtrack_recorder::recorder::{ForkCell, generation, ticks};
use memtrack_recorder::reentry;
use memtrack_recorder::scope::{self, ScopeKind, ScopeNode};
use std::fmt;
use std::ops::Deref;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The maximum number of tracked handles in each list, which take some 25 MB. A thread uses one list.
const MAX_HANDLES: usize = 1 << 18;

/// An `Rc` or `Arc` that a scan can distinguish from other pointers to the same value. If it is forgotten, the scan
/// reports where it was created.
///
/// While registration is off, creating and dropping a handle costs a load and a branch more than the pointer alone
/// would. Otherwise, it costs some 100 ns and 100 bytes. A handle that is created while registration is off, or after a
/// thread already has 262,144 handles, behaves like the pointer alone.
///
/// ```
/// # use memtrack_cycles::Tracked;
/// use std::rc::Rc;
///
/// let weights = Tracked::new(Rc::new(vec![1.0, 2.0]));
/// let shared = weights.clone(); // another handle, made here
/// assert_eq!(shared.len(), 2);
/// ```
pub struct Tracked<P: Counted> {
    pointer: P,
    /// The handle's number, or 0 if it is not tracked.
    number: u64,
}

impl<P: Register> Tracked<P> {
    /// Creates a handle that records the place of this call, and registers the value.
    #[track_caller]
    pub fn new(pointer: P) -> Self {
        super::register(&pointer);
        Self::new_at(pointer, Location::caller())
    }
}

impl<P: RegisterDyn> Tracked<P> {
    /// Like [`new`](Self::new), but for a value whose size is not known at compile time, such as `Rc<dyn Layer>`.
    #[track_caller]
    pub fn new_dyn(pointer: P) -> Self {
        super::register_dyn(&pointer);
        Self::new_at(pointer, Location::caller())
    }
}

impl<P: Counted> Tracked<P> {
    fn new_at(pointer: P, site: &'static Location<'static>) -> Self {
        let number = if switch::is_enabled() { track(pointer.address(), site) } else { 0 };
        Self { pointer, number }
    }

    /// Returns the pointer. Clones of it are not tracked.
    pub fn pointer(this: &Self) -> &P {
        &this.pointer
    }
}

impl<P: Counted + Clone> Clone for Tracked<P> {
    /// Creates another handle that records the place of this call.
    #[track_caller]
    fn clone(&self) -> Self {
        Self::new_at(self.pointer.clone(), Location::caller())
    }
}

impl<P: Counted> Drop for Tracked<P> {
    fn drop(&mut self) {
        if self.number != 0 {
            untrack(self.number);
        }
    }
}

impl<P: Counted + Deref> Deref for Tracked<P> {
    type Target = P::Target;

    fn deref(&self) -> &P::Target {
        &self.pointer
    }
}

impl<P: Counted> References for Tracked<P> {
    fn references(&self, to: &mut Visitor<'_>) {
        to.handle(&self.pointer, self.number);
    }
}

impl<P: Counted + fmt::Debug> fmt::Debug for Tracked<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pointer.fmt(f)
    }
}

/// A handle that has been created and not yet dropped.
#[derive(Clone)]
struct Handle {
    address: usize,
    site: &'static Location<'static>,
    scope: Option<&'static ScopeNode>,
    made_at: u64,
    /// The number of root scopes on its thread that had ended when it was created.
    ended_roots: u64,
    thread: Arc<ThreadRoots>,
}

/// A map of handles, keyed by their numbers.
#[derive(Default)]
struct Handles {
    handles: HashMap<u64, Handle>,
    next: u64,
    /// The number of handles for which there was no room.
    untracked: u64,
}

/// A list of handles that shares no cache line with other lists.
#[repr(align(128))]
struct Shard(Mutex<Handles>);

impl Shard {
    fn lock(&self) -> MutexGuard<'_, Handles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lists of handles. A forked child does not use its parent's lists, because the numbers of the parent's handles do
/// not apply to it.
static HANDLES: ForkCell<Box<[Shard]>> =
    ForkCell::new(|| (0..SHARD_COUNT).map(|_| Shard(Mutex::default())).collect());

/// The number of root scopes that have ended on a thread.
#[derive(Default)]
struct ThreadRoots {
    ended: AtomicU64,
    /// Whether the thread has ended, and with it all its scopes.
    gone: AtomicBool,
}

/// The current thread's counter of ended root scopes, which is marked as gone when the thread ends.
struct CurrentThread(Arc<ThreadRoots>);

impl CurrentThread {
    fn new() -> Self {
        let _inside = reentry::enter();
        Self(Arc::default())
    }
}

impl Drop for CurrentThread {
    fn drop(&mut self) {
        let _inside = reentry::enter();
        self.0.gone.store(true, Ordering::Relaxed);
        self.0 = Arc::default();
    }
}

thread_local! {
    static THREAD: CurrentThread = CurrentThread::new();
}

/// Records that a root scope on this thread has ended. Watchers call this whenever one ends.
pub fn root_ended() {
    if switch::is_enabled() {
        let _ = THREAD.try_with(|thread| thread.0.ended.fetch_add(1, Ordering::Relaxed));
    }
}

/// The number of low bits in a handle's number that identify its list.
const SHARD_BITS: u32 = SHARD_COUNT.trailing_zeros();
/// The number of high bits in a handle's number that identify the process.
const PROCESS_BITS: u32 = 8;

/// Returns the high bits that this process puts in the numbers of its handles.
fn process_bits() -> u64 {
    u64::from(generation()) << (u64::BITS - PROCESS_BITS)
}

fn track(address: usize, site: &'static Location<'static>) -> u64 {
    if !switch::is_enabled_in_process() {
        return 0;
    }
    let Ok(thread) = THREAD.try_with(|thread| Arc::clone(&thread.0)) else { return 0 };
    let ended_roots = thread.ended.load(Ordering::Relaxed);
    let handle =
        Handle { address, site, scope: scope::current_node(), made_at: ticks(), ended_roots, thread };
    let _inside = reentry::enter();
    let shard = shard_of_thread();
    let mut handles = HANDLES.get()[shard].lock();
    if handles.handles.len() >= MAX_HANDLES {
        handles.untracked += 1;
        return 0;
    }
    handles.next += 1;
    let number = handles.next << SHARD_BITS | shard as u64 | process_bits();
    handles.handles.insert(number, handle);
    number
}

fn untrack(number: u64) {
    // A handle from a parent process is in the parent's lists, which this process does not use.
    if number >> (u64::BITS - PROCESS_BITS) != process_bits() >> (u64::BITS - PROCESS_BITS)
        || !HANDLES.is_made()
    {
        return;
    }
    let _inside = reentry::enter();
    let shard = number as usize % SHARD_COUNT;
    let gone = HANDLES.get()[shard].lock().handles.remove(&number);
    drop(gone);
}

/// Handles to one value that the scan did not find.
pub(super) struct ForgottenHandles {
    /// The value's index in the scan's table.
    pub(super) place: u32,
    /// The description of the handles, in which the node number is not set yet.
    pub(super) description: UnexplainedHandles,
}

/// Returns the handles that were created before the time `before`, whose numbers are not in `seen`, and whose root scope
/// has ended. If `all` is true, also returns handles whose root scope has not ended. The handles are grouped by value and
/// by place of creation, with the largest groups first. `place_of` returns the index of the visited value at an address.
pub(super) fn find_forgotten(
    seen: &[u64],
    before: u64,
    all: bool,
    place_of: impl Fn(usize) -> Option<u32>,
) -> Vec<ForgottenHandles> {
    if !HANDLES.is_made() {
        return Vec::new();
    }
    let seen: HashSet<u64> = seen.iter().copied().collect();
    type Site = (u32, *const Location<'static>, Option<*const ScopeNode>);
    let mut groups: HashMap<Site, ForgottenHandles> = HashMap::default();
    for shard in HANDLES.get() {
        let candidates: Vec<Handle> = {
            let handles = shard.lock();
            let unseen = |(number, handle): (&u64, &Handle)| {
                let wanted = handle.made_at < before && (all || handle.has_ended()) && !seen.contains(number);
                wanted.then(|| handle.clone())
            };
            handles.handles.iter().filter_map(unseen).collect()
        };
        for handle in candidates {
            let Some(place) = place_of(handle.address) else { continue };
            let root = handle.root_scope();
            let site = (place, std::ptr::from_ref(handle.site), root.map(std::ptr::from_ref));
            let group = groups.entry(site).or_insert_with(|| ForgottenHandles {
                place,
                description: UnexplainedHandles {
                    node: 0,
                    handles: 0,
                    site: handle.site.to_string(),
                    scope: root.map(|root| root.name().to_owned()),
                    ended_roots: 0,
                },
            });
            group.description.handles += 1;
            let ended = handle.thread.ended.load(Ordering::Relaxed) - handle.ended_roots;
            group.description.ended_roots = group.description.ended_roots.max(ended);
        }
    }
    let mut forgotten: Vec<ForgottenHandles> = groups.into_values().collect();
    forgotten.sort_by(|a, b| {
        let key = |each: &ForgottenHandles| (std::cmp::Reverse(each.description.handles), each.place);
        key(a)
            .cmp(&key(b))
            .then_with(|| a.description.site.cmp(&b.description.site))
            .then_with(|| a.description.scope.cmp(&b.description.scope))
    });
    forgotten
}

/// Returns the number of handles for which there was no room.
pub(super) fn count_untracked() -> u64 {
    if !HANDLES.is_made() {
        return 0;
    }
    HANDLES.get().iter().map(|shard| shard.lock().untracked).sum()
}

impl Handle {
    /// Returns the root scope in which the handle was created.
    fn root_scope(&self) -> Option<&'static ScopeNode> {
        scope::outwards(self.scope).filter(|node| node.kind == ScopeKind::Root).last()
    }

    /// Returns whether the root scope in which the handle was created, or its thread, has ended.
    fn has_ended(&self) -> bool {
        let gone = self.thread.gone.load(Ordering::Relaxed);
        gone || self.root_scope().is_some() && self.thread.ended.load(Ordering::Relaxed) > self.ended_roots
    }
}
