//! Accounts, which keep exact statistics about the allocations made in them, for tests with limits
//! (`memtrack_core::testing`). A thread is in an account while it has entered a [`scope`](crate::scope) handle that was
//! created in the account. A block belongs to the account of the thread that allocated it, whichever thread frees it.
//! The statistics are updated with every allocation and free rather than computed from a recording, so they need no
//! session and are exact for any number of events. They contain the live blocks and a row for each distinct stack.
//!
//! One bit of the switch ([`switch::ACCOUNTS`]) enables all of this. The bit is set while any account is open.
//!
//! An allocation is counted after its block has been obtained, and a free before its block is freed, each under the
//! account's lock. The peak therefore corresponds to a consistent order of events, in which every block is allocated
//! before it is freed.
//!
//! **Why not read a recording?** A ring is bounded, a snapshot at the end of each test would grow with the events of
//! other tests, and a session has only one set of options. To keep the peak, each row saves its value when it first
//! changes after the peak, so the cost of an event does not depend on the number of rows. Scope handles carry a
//! thread's account in a separate word, because scope nodes are never freed and a thousand tests would use them up.

mod blocks;
mod books;
mod printing;
mod unattributed;

pub use books::{Amount, Books, DeviceBooks, StackAmounts};
pub use unattributed::Unattributed;

use crate::events::{Hook, HookContext, RECORDER, generation, loaded_binaries, prepare_for_accounts};
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

/// The maximum number of accounts that can be open at the same time.
const MAX_OPEN: usize = 1024;

/// The account of a thread, a task or a block, packed into one word: the slot's index plus one, and the number of times
/// the slot has been used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Membership(u64);

impl Membership {
    /// No account.
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
    /// Whether the account has ended, so that only frees are counted.
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
/// The number of open accounts. Locked while the switch is changed.
static OPEN: Mutex<usize> = Mutex::new(0);
/// The fork generation of the process that keeps accounts. Its forked children keep none.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The reason an account cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoAccount {
    /// 1,024 accounts are already open.
    TooMany,
    /// The process is a forked child whose parent keeps accounts.
    Forked,
}

impl fmt::Display for NoAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooMany => "1,024 tests with limits are already running, which is the maximum",
            Self::Forked => "this process was forked by one in which tests with limits run",
        })
    }
}

impl std::error::Error for NoAccount {}

/// An open account, which is closed when dropped.
#[derive(Debug)]
pub struct Account {
    membership: Membership,
    before: unattributed::Reading,
}

impl Account {
    /// Opens an account. If the calling thread is in an account, everything counted in the new one is also counted in
    /// that account.
    ///
    /// # Errors
    /// Fails if too many accounts are open, or in a forked process.
    pub fn open() -> Result<Self, NoAccount> {
        static INIT: std::sync::Once = std::sync::Once::new();
        INIT.call_once(|| {
            let _inside = reentry::enter();
            PROCESS.store(generation(), Ordering::Relaxed);
            prepare_for_accounts();
        });
        if !is_this_process() {
            return Err(NoAccount::Forked);
        }
        printing::find_addresses();
        let _inside = reentry::enter();
        let parent = current_account();
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let claimed = SLOTS.iter().enumerate().find_map(|(index, slot)| {
            let mut state = slot.get_or_init(Box::default).lock();
            if state.is_open {
                return None;
            }
            let run = state.run + 1;
            *state = State { run, is_open: true, parent, ..State::default() };
            Some(Membership::new(index, run))
        });
        let membership = claimed.ok_or(NoAccount::TooMany)?;
        *open += 1;
        switch::set(switch::ACCOUNTS, true);
        drop(open);
        Ok(Self { membership, before: unattributed::Reading::take() })
    }

    /// Returns a handle to the calling thread's scope in this account. A thread that enters the handle is in the
    /// account, and so is a future that runs in the handle's scope.
    pub fn scope(&self) -> ScopeHandle {
        ScopeHandle::in_account(self.membership)
    }

    /// Ends the account. From then on, only frees are counted.
    pub fn end(&self) {
        self.state().has_ended = true;
    }

    /// Returns the memory that has not been freed so far, on each device.
    pub fn left(&self) -> Vec<(DeviceId, Amount)> {
        let _inside = reentry::enter();
        let state = self.state();
        state.books.devices().into_iter().map(|(device, books)| (device, books.left())).collect()
    }

    /// Returns a copy of the current statistics.
    pub fn books(&self) -> Books {
        let _inside = reentry::enter();
        self.state().books.clone()
    }

    /// Returns the memory that threads have allocated outside all accounts since this one was opened, largest amounts
    /// first.
    pub fn unattributed(&self) -> Vec<Unattributed> {
        let _inside = reentry::enter();
        self.before.since()
    }

    /// Closes the account and returns its statistics. Blocks that are still live are counted only in the enclosing
    /// account from then on.
    pub fn close(self) -> Books {
        self.close_once()
    }

    fn state(&self) -> MutexGuard<'static, State> {
        self.membership.slot().expect("it is this account's").lock()
    }

    fn close_once(&self) -> Books {
        let _inside = reentry::enter();
        let mut state = self.state();
        if state.run != self.membership.run() || !state.is_open {
            return Books::default();
        }
        state.has_ended = true;
        let books = std::mem::take(&mut state.books);
        let parent = state.parent;
        // Blocks refer to this account until they are moved to its parent, so it stays open until then.
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
        drop(self.close_once());
        self.before = unattributed::Reading::default();
    }
}

/// Returns whether the program's global allocator reports the host heap. An account must be open.
pub fn is_heap_tracked() -> bool {
    host::is_installed()
}

/// Returns the addresses of a stack, innermost first.
pub fn addresses(stack: StackId) -> Vec<u64> {
    let _inside = reentry::enter();
    RECORDER.get().stacks.addresses(stack)
}

/// Returns the loaded binaries, which are needed to symbolize addresses.
pub fn modules() -> Vec<Module> {
    let _inside = reentry::enter();
    loaded_binaries()
}

/// A block that is being freed or reallocated.
#[derive(Clone, Copy)]
pub(crate) struct RemovedBlock {
    device: DeviceId,
    address: u64,
    block: Option<Block>,
}

/// Enters a hook for accounts. Returns `None` inside memtrack and in a process that keeps no accounts.
#[inline(always)]
fn enter() -> Option<Hook> {
    if reentry::is_inside() || !is_this_process() {
        return None;
    }
    // Take the registers of the function that this is inlined into. Its frame, unlike a closure's, exists until the hook
    // is left.
    Some(Hook::enter_unconditionally(Registers::here()))
}

/// Returns whether this process keeps accounts and is not a forked child of one that does.
fn is_this_process() -> bool {
    generation() == PROCESS.load(Ordering::Relaxed)
}

/// Counts an allocation. Allocations during a panic are not counted: the panic's message and the symbols for its
/// backtrace take anything from nothing to many megabytes, depending on the environment.
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
    let Some(account) = open_account(account) else { return unattributed::count_in_hook(inside, bytes) };
    // Insert the block first. Another thread can free it only after this function has returned.
    let block = Block { account, bytes, stack, is_pending: false };
    if let Some(replaced) = blocks::insert(device, address, block) {
        // The address was allocated again, so the free of the previous block was not reported.
        count_free(device, &replaced);
    }
    let mut counts = false;
    for_each_enclosing(account, |state| {
        counts |= state.books.alloc(device, stack, bytes, || printing::is_captured_output(stack));
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

/// Counts a block whose free was requested while other streams may still use it.
#[cold]
#[inline(never)]
pub(crate) fn free_requested(device: DeviceId, address: u64) {
    if let Some(hook) = enter() {
        hook.with_room(move || {
            if let Some(block) = blocks::request_free(device, address).filter(|block| !block.is_pending) {
                for_each_enclosing(block.account, |state| {
                    state.books.free_requested(device, block.stack, block.bytes);
                });
            }
        });
    }
}

/// Removes a block that is about to be reallocated.
#[cold]
#[inline(never)]
pub(crate) fn reallocating(device: DeviceId, address: u64) -> RemovedBlock {
    let Some(hook) = enter() else { return RemovedBlock { device, address, block: None } };
    RemovedBlock { device, address, block: hook.with_room(move || blocks::remove(device, address)) }
}

/// Counts a reallocated block. If `address` is 0, the reallocation failed and the old block is restored. If the thread
/// is in no account, the block stays in its previous account.
#[cold]
#[inline(never)]
pub(crate) fn reallocated(removed: RemovedBlock, address: u64, bytes: u64) {
    let RemovedBlock { device, address: before, block } = removed;
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
    for_each_enclosing(block.account, |state| {
        state.books.free(device, block.stack, block.bytes, block.is_pending);
    });
}

/// Returns the account or, if it has ended, the innermost enclosing account that has not.
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

/// Calls `act` for the account and all enclosing ones, innermost first, and locks only one at a time.
fn for_each_enclosing(account: Membership, mut act: impl FnMut(&mut State)) {
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
