//! Accounts: exact books of what is allocated in them, for tests with limits (`memtrack_core::testing`). Who enters a
//! [`scope`](crate::scope) handle that was taken inside an account is in it; a block stays in the account of who allocated
//! it, whoever frees it. The books are kept while things happen, not read from a recording: they need no session, are
//! exact however many events there are, and hold what is live and a row for each distinct stack.
//!
//! All of this is behind one bit of the switch ([`switch::ACCOUNTS`]), which is on while any account is open.
//!
//! Order: an allocation is booked after the block was obtained, a free before it is given back, each under the account's
//! lock; so the peak is that of one order of events in which every block lives from the one to the other.
//!
//! **Why not read a recording?** A ring is bounded, a snapshot at the end of each test would grow with what others
//! record, and a session has one program's options. For the peak, each row remembers what it was when it first changed
//! after the peak, so an event costs the same however high the peak. A thread's account goes with scope handles, in a
//! word of its own: scope nodes live for ever, and a thousand tests would use them up.

mod blocks;
mod books;
mod nobody;
mod printing;

pub use books::{Amount, Books, DeviceBooks, StackAmounts};
pub use nobody::Others;

use crate::recorder::{Hook, Inside, RECORDER, begin_accounts, generation, loaded_binaries};
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

/// Accounts that may be open at the same time.
const MOST_OPEN: usize = 1024;

/// Which account a thread, a task or a block is in; a number, so that it is one word everywhere: the slot plus one, and
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

/// A place for an account, used again and again.
#[derive(Default)]
struct Slot {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    run: u64,
    is_open: bool,
    /// Nothing more is booked than frees.
    has_ended: bool,
    parent: Membership,
    books: Books,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static SLOTS: [OnceLock<Box<Slot>>; MOST_OPEN] = [const { OnceLock::new() }; MOST_OPEN];
/// How many accounts are open. Held while the switch is turned.
static OPEN: Mutex<usize> = Mutex::new(0);
/// In which process, counted by forks: the child of a fork keeps no accounts.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Why there can be no account.
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
    before: nobody::Reading,
}

impl Account {
    /// Opens an account inside the one that the calling thread is in, if it is in one: what is booked in this one is
    /// booked there too.
    ///
    /// # Errors
    /// When there are too many, or in a forked process.
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
        Ok(Self { membership, before: nobody::Reading::take() })
    }

    /// What a thread enters, or a future runs in, to be in the account; its scope is the calling thread's.
    pub fn scope(&self) -> ScopeHandle {
        ScopeHandle::in_account(self.membership)
    }

    /// From here on nothing is booked but frees.
    pub fn end(&self) {
        self.state().has_ended = true;
    }

    /// What nobody has given back so far, on each device.
    pub fn left(&self) -> Vec<(DeviceId, Amount)> {
        let _inside = reentry::enter();
        let state = self.state();
        state.books.devices().into_iter().map(|(device, books)| (device, books.left())).collect()
    }

    /// A copy of the books as they are now.
    pub fn books(&self) -> Books {
        let _inside = reentry::enter();
        self.state().books.clone()
    }

    /// What threads have allocated since the account was opened that is in none; the most first.
    pub fn others(&self) -> Vec<Others> {
        let _inside = reentry::enter();
        self.before.since()
    }

    /// Closes it, and returns its books. What is still live is in the account around it alone.
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
        // Blocks name their account until they are handed over, and it leads to its parent until then.
        drop(state);
        if books.has_live() {
            blocks::hand_over(self.membership, parent);
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
        self.before = nobody::Reading::default();
    }
}

/// Whether the program's global allocator tells of the host's heap. An account is open.
pub fn sees_the_heap() -> bool {
    host::is_installed()
}

/// The addresses of a stack, innermost first.
pub fn addresses(stack: StackId) -> Vec<u64> {
    let _inside = reentry::enter();
    RECORDER.get().stacks.addresses(stack)
}

/// The loaded binaries, which give addresses their names.
pub fn modules() -> Vec<Module> {
    let _inside = reentry::enter();
    loaded_binaries()
}

/// A block that is given back or becomes another one.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    device: DeviceId,
    address: u64,
    block: Option<Block>,
}

/// Enters a hook for accounts, where the thread's own allocations count.
#[inline(always)]
fn enter() -> Option<Hook> {
    if reentry::is_inside() || !is_this_process() {
        return None;
    }
    // Of the function that this is part of, which stays until the hook is left; a closure would not.
    Some(Hook::enter_anyway(Registers::here()))
}

/// Whether this process keeps accounts, and is no child of one that does.
fn is_this_process() -> bool {
    generation() == PROCESS.load(Ordering::Relaxed)
}

/// A block was handed out. What a panic takes while it goes on is not booked: its message, and the names of its backtrace,
/// are many megabytes or nothing, as the environment says.
#[cold]
#[inline(never)]
pub(crate) fn allocated(device: DeviceId, address: u64, bytes: u64) {
    if reentry::is_inside() {
        return;
    }
    let account = current_account();
    if account.is_none() {
        return nobody::count(bytes);
    }
    if thread::panicking() {
        return;
    }
    let Some(hook) = enter() else { return };
    let inside = *hook;
    inside.with_room(move || book_alloc(inside, account, device, address, bytes));
}

fn book_alloc(inside: Inside, account: Membership, device: DeviceId, address: u64, bytes: u64) {
    let stack = inside.stack(true);
    let Some(account) = running(account) else { return nobody::count_in(inside, bytes) };
    // First among the blocks: whoever gets hold of it can free it only after this returns.
    let block = Block { account, bytes, stack, is_pending: false };
    if let Some(lost) = blocks::insert(device, address, block) {
        // Its end was not told, or its address could not have been handed out again.
        book_free(device, &lost);
    }
    let mut counts = false;
    each_around(account, |state| {
        counts |= state.books.alloc(device, stack, bytes, || printing::is_output(stack));
    });
    if !counts {
        blocks::remove(device, address);
    }
}

/// A block is about to be given back.
#[cold]
#[inline(never)]
pub(crate) fn freeing(device: DeviceId, address: u64) {
    if let Some(hook) = enter() {
        hook.with_room(move || {
            if let Some(block) = blocks::remove(device, address) {
                book_free(device, &block);
            }
        });
    }
}

/// A block is given back by its owner, but other streams may still use it.
#[cold]
#[inline(never)]
pub(crate) fn free_requested(device: DeviceId, address: u64) {
    if let Some(hook) = enter() {
        hook.with_room(move || {
            if let Some(block) = blocks::request_free(device, address).filter(|block| !block.is_pending) {
                each_around(block.account, |state| {
                    state.books.free_requested(device, block.stack, block.bytes);
                });
            }
        });
    }
}

/// A block is about to become another one.
#[cold]
#[inline(never)]
pub(crate) fn reallocating(device: DeviceId, address: u64) -> Taken {
    let Some(hook) = enter() else { return Taken { device, address, block: None } };
    Taken { device, address, block: hook.with_room(move || blocks::remove(device, address)) }
}

/// It became that one; null: it did not, and is still there. Who is in no account leaves the block in its own.
#[cold]
#[inline(never)]
pub(crate) fn reallocated(taken: Taken, address: u64, bytes: u64) {
    let Taken { device, address: before, block } = taken;
    if reentry::is_inside() {
        return;
    }
    let mine = current_account();
    if block.is_none() && (mine.is_none() || address == 0) {
        if address != 0 {
            nobody::count(bytes);
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
            book_free(device, &block);
        }
        let account = if mine.is_none() { block.map_or(mine, |block| block.account) } else { mine };
        book_alloc(inside, account, device, address, bytes);
    });
}

fn book_free(device: DeviceId, block: &Block) {
    each_around(block.account, |state| {
        state.books.free(device, block.stack, block.bytes, block.is_pending);
    });
}

/// The account, or the next one around it that has not ended.
fn running(account: Membership) -> Option<Membership> {
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

/// The account and all around it, innermost first, one locked at a time.
fn each_around(account: Membership, mut act: impl FnMut(&mut State)) {
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
