//! Accounts: exact statistics of the allocations made in them, for tests with limits (`memtrack_core::testing`). A
//! thread that enters a [`scope`](crate::scope) handle taken inside an account is in it; a block stays in the account
//! of the thread that allocated it, whichever thread frees it. The statistics are updated with every allocation and
//! free, not computed from a recording: they need no session, are exact however many events there are, and hold the
//! live blocks and a row for each distinct stack.
//!
//! All of this is behind one bit of the switch ([`switch::ACCOUNTS`]), which is on while any account is open.
//!
//! Order: an allocation is counted after the block was obtained, a free before the block is freed, each under the account's
//! lock; so the peak is that of one order of events in which every block lives from its allocation to its free.
//!
//! **Why not read a recording?** A ring is bounded, a snapshot at the end of each test would grow with the
//! records of other tests, and a session has one program's options. For the peak, each row remembers its value
//! when it first changed after the peak, so an event costs the same however high the peak. A thread's account
//! goes with scope handles, in a word of its own: scope nodes live for ever, and a thousand tests would use
//! them up.

mod blocks;
mod books;
mod printing;
mod unattributed;

pub use books::{Amount, Books, DeviceBooks, StackAmounts};
pub use unattributed::Unattributed;

use crate::events::{Hook, HookContext, RECORDER, begin_accounts, generation, loaded_binaries};
use crate::scope::{ScopeHandle, current_account};
use crate::stack::capture::Registers;
use crate::{host, reentry, switch};
use blocks::Block;
use memtrack_model::event::{DeviceId, StackId};
use memtrack_model::snapshot::Module;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

/// The most accounts that may be open at the same time.
const MAX_OPEN: usize = 1024;

/// The account of a thread, a task or a block; a number, so that it is one word everywhere: the slot plus one, and
/// how often that slot was used before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Membership(u64);

impl Membership {
    /// In no account.
    pub(crate) const NONE: Self = Self(0);

    pub(crate) fn is_none(self) -> bool {
        self == Self::NONE
    }

    fn new(slot: usize, run: u64) -> Self {
        Self(run << 16 | (slot as u64 + 1))
    }

    fn slot(self) -> Option<&'static Slot> {
        let index = (self.0 & 0xffff).checked_sub(1)?;
        SLOTS.get(index as usize)?.get().map(|slot| &**slot)
    }

    fn run(self) -> u64 {
        self.0 >> 16
    }
}

/// A reusable slot for an account.
#[derive(Default)]
struct Slot {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    run: u64,
    is_open: bool,
    /// From then on only frees are counted.
    has_ended: bool,
    parent: Membership,
    books: Books,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static SLOTS: [OnceLock<Box<Slot>>; MAX_OPEN] = [const { OnceLock::new() }; MAX_OPEN];
/// The number of open accounts. Locked while the switch is turned.
static OPEN: Mutex<usize> = Mutex::new(0);
/// The process, counted by forks, in which accounts are kept: the child of a fork keeps none.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Why no account can be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoAccount {
    /// 1,024 are open.
    TooMany,
    /// The process is the child of a fork whose parent keeps accounts.
    Forked,
}

impl fmt::Display for NoAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "1,024 tests with limits run at the same time, and there can be no more",
            Self::Forked => "this process was forked by one in which tests with limits run",
        })
    }
}

impl std::error::Error for NoAccount {}

/// An open account; dropping it closes it.
#[derive(Debug)]
pub struct Account {
    membership: Membership,
    before: unattributed::Reading,
}

impl Account {
    /// Opens an account inside the calling thread's account, if it has one: everything counted in this one is counted
    /// there too.
    ///
    /// # Errors
    /// Fails when there are too many, or in a forked process.
    pub fn open() -> Result<Self, NoAccount> {
        static READY: std::sync::Once = std::sync::Once::new();
        READY.call_once(|| {
            let _inside = reentry::enter();
            PROCESS.store(generation(), Ordering::Relaxed);
            begin_accounts();
        });
        if !is_this_process() {
            return Err(NoAccount::Forked);
        }
        printing::learn();
        let _inside = reentry::enter();
        let parent = current_account();
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = SLOTS.iter().enumerate().find_map(|(index, slot)| {
            let mut state = slot.get_or_init(Box::default).lock();
            if state.is_open {
                return None;
            }
            let run = state.run + 1;
            *state = State { run, is_open: true, parent, ..State::default() };
            Some(Membership::new(index, run))
        });
        let membership = taken.ok_or(NoAccount::TooMany)?;
        *open += 1;
        switch::set(switch::ACCOUNTS, true);
        drop(open);
        Ok(Self { membership, before: unattributed::Reading::take() })
    }

    /// Returns the handle that a thread enters, or in which a future runs, to be in the account; its scope is the
    /// calling thread's.
    pub fn scope(&self) -> ScopeHandle {
        ScopeHandle::in_account(self.membership)
    }

    /// Ends the account: from here on only frees are counted.
    pub fn end(&self) {
        self.state().has_ended = true;
    }

    /// Returns the memory that was not freed so far, on each device.
    pub fn left(&self) -> Vec<(DeviceId, Amount)> {
        let _inside = reentry::enter();
        let state = self.state();
        state.books.devices().into_iter().map(|(device, books)| (device, books.left())).collect()
    }

    /// Returns a copy of the statistics as they are now.
    pub fn books(&self) -> Books {
        let _inside = reentry::enter();
        self.state().books.clone()
    }

    /// Returns the memory that threads have allocated in no account since this one was opened; the largest first.
    pub fn others(&self) -> Vec<Unattributed> {
        let _inside = reentry::enter();
        self.before.since()
    }

    /// Closes it, and returns its statistics. Blocks that are still live stay only in the account around it.
    pub fn close(self) -> Books {
        self.take()
    }

    fn state(&self) -> MutexGuard<'static, State> {
        self.membership.slot().expect("it is this account's").lock()
    }

    fn take(&self) -> Books {
        let _inside = reentry::enter();
        let mut state = self.state();
        if state.run != self.membership.run() || !state.is_open {
            return Books::default();
        }
        state.has_ended = true;
        let books = std::mem::take(&mut state.books);
        let parent = state.parent;
        // Blocks refer to their account until they are moved to its parent, and it leads to the parent until then.
        drop(state);
        if books.has_live() {
            blocks::move_to_parent(self.membership, parent);
        }
        self.state().is_open = false;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        *open -= 1;
        if *open == 0 {
            switch::set(switch::ACCOUNTS, false);
            blocks::clear();
        }
        books
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _inside = reentry::enter();
        drop(self.take());
        self.before = unattributed::Reading::default();
    }
}

/// Returns whether the program's global allocator reports the host's heap. An account is open.
pub fn sees_the_heap() -> bool {
    host::is_installed()
}

/// Returns the addresses of a stack, innermost first.
pub fn addresses(stack: StackId) -> Vec<u64> {
    let _inside = reentry::enter();
    RECORDER.get().stacks.addresses(stack)
}

/// Returns the loaded binaries, in which addresses are named.
pub fn modules() -> Vec<Module> {
    let _inside = reentry::enter();
    loaded_binaries()
}

/// A block that is being freed or reallocated.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    device: DeviceId,
    address: u64,
    block: Option<Block>,
}

/// Enters a hook for accounts, in which the thread's own allocations count.
#[inline(always)]
fn enter() -> Option<Hook> {
    if reentry::is_inside() || !is_this_process() {
        return None;
    }
    // The frame of the function that this is inlined in, which lives until the hook is left; a closure's would not.
    Some(Hook::enter_unconditionally(Registers::here()))
}

/// Returns whether this process keeps accounts, and is not the child of one that does.
fn is_this_process() -> bool {
    generation() == PROCESS.load(Ordering::Relaxed)
}

/// Counts an allocation. Allocations of a panic that unwinds are not counted: its message, and the names of its
/// backtrace, are many megabytes or nothing, depending on the environment.
#[cold]
#[inline(never)]
pub(crate) fn allocated(device: DeviceId, address: u64, bytes: u64) {
    if reentry::is_inside() {
        return;
    }
    let account = current_account();
    if account.is_none() {
        return unattributed::count(bytes);
    }
    if thread::panicking() {
        return;
    }
    let Some(hook) = enter() else { return };
    let inside = *hook;
    inside.with_room(move || count_alloc(inside, account, device, address, bytes));
}

fn count_alloc(inside: HookContext, account: Membership, device: DeviceId, address: u64, bytes: u64) {
    let stack = inside.stack(true);
    let Some(account) = open_account(account) else { return unattributed::count_in(inside, bytes) };
    // First among the blocks: another thread that receives it can free it only after this returns.
    let block = Block { account, bytes, stack, is_pending: false };
    if let Some(lost) = blocks::insert(device, address, block) {
        // Its free was not reported, or its address could not have been allocated again.
        count_free(device, &lost);
    }
    let mut counts = false;
    each_enclosing(account, |state| {
        counts |= state.books.alloc(device, stack, bytes, || printing::is_output(stack));
    });
    if !counts {
        blocks::remove(device, address);
    }
}

/// Counts a block that is about to be freed.
#[cold]
#[inline(never)]
pub(crate) fn freeing(device: DeviceId, address: u64) {
    if let Some(hook) = enter() {
        hook.with_room(move || {
            if let Some(block) = blocks::remove(device, address) {
                count_free(device, &block);
            }
        });
    }
}

/// Counts a block that its owner freed, though other streams may still use it.
#[cold]
#[inline(never)]
pub(crate) fn free_requested(device: DeviceId, address: u64) {
    if let Some(hook) = enter() {
        hook.with_room(move || {
            if let Some(block) = blocks::request_free(device, address).filter(|block| !block.is_pending) {
                each_enclosing(block.account, |state| {
                    state.books.free_requested(device, block.stack, block.bytes);
                });
            }
        });
    }
}

/// Takes out a block that is about to be reallocated.
#[cold]
#[inline(never)]
pub(crate) fn reallocating(device: DeviceId, address: u64) -> Taken {
    let Some(hook) = enter() else { return Taken { device, address, block: None } };
    Taken { device, address, block: hook.with_room(move || blocks::remove(device, address)) }
}

/// Counts the reallocated block; null: the reallocation failed, and the block is still there. A thread in no account
/// leaves the block in its account.
#[cold]
#[inline(never)]
pub(crate) fn reallocated(taken: Taken, address: u64, bytes: u64) {
    let Taken { device, address: before, block } = taken;
    if reentry::is_inside() {
        return;
    }
    let current = current_account();
    if block.is_none() && (current.is_none() || address == 0) {
        if address != 0 {
            unattributed::count(bytes);
        }
        return;
    }
    if block.is_none() && thread::panicking() {
        return;
    }
    let Some(hook) = enter() else { return };
    let inside = *hook;
    inside.with_room(move || {
        if let Some(block) = block {
            if address == 0 {
                blocks::insert(device, before, block);
                return;
            }
            count_free(device, &block);
        }
        let account = if current.is_none() { block.map_or(current, |block| block.account) } else { current };
        count_alloc(inside, account, device, address, bytes);
    });
}

fn count_free(device: DeviceId, block: &Block) {
    each_enclosing(block.account, |state| {
        state.books.free(device, block.stack, block.bytes, block.is_pending);
    });
}

/// Returns the account, or the next one around it that has not ended.
fn open_account(account: Membership) -> Option<Membership> {
    let mut account = account;
    loop {
        let state = account.slot()?.lock();
        if state.run != account.run() || !state.is_open {
            return None;
        }
        if !state.has_ended {
            return Some(account);
        }
        account = state.parent;
    }
}

/// Calls `act` for the account and all around it, innermost first, one locked at a time.
fn each_enclosing(account: Membership, mut act: impl FnMut(&mut State)) {
    let mut account = account;
    while let Some(slot) = account.slot() {
        let mut state = slot.lock();
        if state.run != account.run() || !state.is_open {
            return;
        }
        act(&mut state);
        account = state.parent;
    }
}
