//! Memory that the program maps itself: the calls of `mmap` and its siblings under `memtrack run --host`, recorded as blocks
//! of [`DeviceId::MAPPED`]. What the C library maps for its own heap does not pass through here.
//!
//! **What counts?** Committed memory: private mappings that are or were writable, and shared memory (anonymous, or a file in
//! the memory file system). Addresses that are only reserved (`PROT_NONE`) and mapped files are added up as numbers of their
//! own. A block ends when its pages are unmapped, made inaccessible, or given back (`madvise`). If only a part of a block ends,
//! the rest becomes one or two new blocks with the block's stack.
//!
//! **Pages on demand** (`MAP_NORESERVE`, and pages that were given back) become memory when the program writes to them, which no
//! call shows. Asking the system here (`mincore`) would be a system call that the program does not make, and that its sandbox may
//! punish. So these ranges are reported to the command, by [`Action::SegmentMap`] and [`Action::SegmentUnmap`] of the device,
//! and it reads from outside which of their pages are memory (the collector's module `on_demand`).
//!
//! **Why is a call recorded before it is made if it unmaps pages?** As with a free, another thread may get the addresses as
//! soon as the call has returned. If the call fails, the blocks are restored.

mod kind;
mod regions;

#[cfg(test)]
pub(crate) use regions::MAX_BYTES;

use crate::events::{ForkCell, Hook, HookContext};
use crate::reentry;
use crate::shared_memory::{Counter, add_to_level, count};
use kind::Kind;
use memtrack_model::event::{Action, DeviceId, EventFlags, ScopeId, StackId, StreamId};
use regions::{Cut, Regions};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const MAPPED: DeviceId = DeviceId::MAPPED;
const STREAM: StreamId = StreamId(0);

/// The mapped ranges of this process. A forked child starts with an empty table, as it does for the heap.
static REGIONS: ForkCell<Mutex<Regions>> = ForkCell::new(Mutex::default);

/// The code of the program's allocator, if that allocator calls `mmap` through the loader: start and end.
static ALLOCATOR_CODE: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Sets the code of the allocator whose blocks are recorded as the heap. The memory that it maps is the heap's and does not
/// count a second time.
pub fn set_allocator_code(code: Range<u64>) {
    ALLOCATOR_CODE[1].store(code.end, Ordering::Relaxed);
    ALLOCATOR_CODE[0].store(code.start, Ordering::Relaxed);
}

/// The arguments of a call of `mmap`.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The requested address.
    pub address: u64,
    /// The length in bytes.
    pub bytes: u64,
    /// `PROT_READ` and others.
    pub protection: i32,
    /// `MAP_PRIVATE` and others.
    pub flags: i32,
    /// The descriptor of the mapped file.
    pub file: i32,
}

/// The arguments of a call of `mremap` beside the ranges.
#[derive(Clone, Copy, Debug)]
pub struct Remap {
    /// `MREMAP_MAYMOVE` and others.
    pub flags: i32,
    /// The requested new address, if there is one.
    pub target: Option<u64>,
}

/// Records a call of `mmap`, which `map` makes and which returns the address or the error's number. Returns the same.
pub fn map(request: Request, map: impl FnOnce() -> Result<u64, i32>) -> Result<u64, i32> {
    let Some(hook) = enter() else { return map() };
    let is_fixed = request.flags & libc::MAP_FIXED != 0;
    let replaced = match is_fixed {
        true => end_range(*hook, &pages(request.address, request.bytes)),
        false => Vec::new(),
    };
    let result = map();
    match result {
        Ok(address) => begin_range(*hook, pages(address, request.bytes), Kind::of(&request)),
        Err(error) => {
            restore(*hook, replaced);
            if error == libc::ENOMEM && Kind::of(&request) == Kind::Memory {
                hook.record_without_block(Action::Oom, MAPPED, STREAM, 0, request.bytes);
            }
        }
    }
    result
}

/// Records a call of `munmap`, which `unmap` makes. Returns its result.
pub fn unmap(address: u64, bytes: u64, unmap: impl FnOnce() -> Result<u64, i32>) -> Result<u64, i32> {
    let Some(hook) = enter() else { return unmap() };
    let ended = end_range(*hook, &pages(address, bytes));
    unmap().inspect_err(|_| restore(*hook, ended))
}

/// Records a call of `mremap`, which `remap` makes and which returns the new address. If a mapping grows or moves, the caller
/// holds all of it afterwards, as with `realloc`. A mapping that shrinks keeps its stack.
pub fn remap(
    address: u64,
    old_bytes: u64,
    new_bytes: u64,
    Remap { flags, target }: Remap,
    remap: impl FnOnce() -> Result<u64, i32>,
) -> Result<u64, i32> {
    let Some(hook) = enter() else { return remap() };
    let (old, new) = (pages(address, old_bytes), pages(address, new_bytes));
    if !old.is_empty() && new.end <= old.end && target.is_none() {
        let ended = end_range(*hook, &(new.end..old.end));
        return remap().inspect_err(|_| restore(*hook, ended));
    }
    let kind = REGIONS.lock().kind_of(&old);
    // With a length of zero, or this flag, the old mapping stays.
    let moves = old_bytes > 0 && flags & libc::MREMAP_DONTUNMAP == 0;
    let mut ended = if moves { end_range(*hook, &old) } else { Vec::new() };
    if let Some(target) = target {
        ended.extend(end_range(*hook, &pages(target, new_bytes)));
    }
    let result = remap();
    match (result, kind) {
        (Err(_), _) => restore(*hook, ended),
        // Pages that are mapped a second time are no further memory.
        (Ok(_), _) if old_bytes == 0 => {}
        (Ok(address), Some(kind)) => begin_range(*hook, pages(address, new_bytes), kind),
        (Ok(address), None) => {
            end_range(*hook, &pages(address, new_bytes));
        }
    }
    result
}

/// Records a call of `mprotect` that has succeeded.
pub fn protected(address: u64, bytes: u64, protection: i32) {
    let is_writable = protection & libc::PROT_WRITE != 0;
    if !is_writable && protection != libc::PROT_NONE {
        return;
    }
    let Some(hook) = enter() else { return };
    let changes = |kind: Kind| if is_writable { kind.can_become_memory() } else { kind.is_recorded() };
    let becomes = if is_writable { Kind::Memory } else { Kind::Reserved };
    change_range(*hook, &pages(address, bytes), becomes, changes);
}

/// Records a call of `madvise` that has succeeded.
pub fn advised(address: u64, bytes: u64, advice: i32) {
    const DONTNEED_LOCKED: i32 = 24;
    if matches!(advice, libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_REMOVE | DONTNEED_LOCKED)
        && let Some(hook) = enter()
    {
        change_range(*hook, &pages(address, bytes), Kind::OnDemand, |kind| kind == Kind::Memory);
    }
}

/// Records a call of `sbrk` or `brk` that has moved the end of the data segment from `old` to `new`.
pub fn moved_break(old: u64, new: u64) {
    let Some(hook) = enter() else { return };
    if new < old {
        end_range(*hook, &(new..old));
    } else {
        begin_range(*hook, old..new, Kind::Memory);
    }
}

/// Enters a hook, unless the caller is the allocator whose blocks are recorded as the heap.
///
/// An allocator may map memory while it holds its locks, so nothing here may call the program's allocator. Apart from
/// entering a thread's first hook, hooks never do.
#[inline(always)]
fn enter() -> Option<Hook> {
    let hook = reentry::in_mapping(Hook::enter)?;
    let [start, end] = ALLOCATOR_CODE.each_ref().map(|limit| limit.load(Ordering::Relaxed));
    let is_allocators =
        end != 0 && hook.innermost_address().is_some_and(|caller| (start..end).contains(&caller));
    (!is_allocators).then_some(hook)
}

/// Returns the pages of a range of addresses.
fn pages(address: u64, bytes: u64) -> Range<u64> {
    /// The smallest page. Larger pages are multiples of it.
    const PAGE_BYTES: u64 = 4096;
    address..address.saturating_add(bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes))
}

/// A range that ended, and the stack and scope of its block.
struct Ended {
    kind: Kind,
    inside: Range<u64>,
    stack: StackId,
    scope: ScopeId,
}

/// Removes all ranges within `addresses`, and records the end of their blocks.
fn end_range(hook: HookContext, addresses: &Range<u64>) -> Vec<Ended> {
    hook.with_room(|| {
        let mut ended = Vec::new();
        while let Some(cut) = cut(addresses, |_| true) {
            ended.push(end_cut(hook, &cut));
        }
        ended
    })
}

/// Makes the ranges within `addresses` that `changes` selects become something else. Pages on demand keep the stack of the
/// memory that they were.
fn change_range(hook: HookContext, addresses: &Range<u64>, becomes: Kind, changes: impl Fn(Kind) -> bool) {
    hook.with_room(|| {
        while let Some(cut) = cut(addresses, &changes) {
            let ended = end_cut(hook, &cut);
            let origin = (becomes == Kind::OnDemand).then_some((ended.stack, ended.scope));
            add_range(hook, cut.inside, becomes, origin);
        }
    });
}

fn cut(addresses: &Range<u64>, matches: impl Fn(Kind) -> bool) -> Option<Cut> {
    if addresses.is_empty() { None } else { REGIONS.lock().cut(addresses, matches) }
}

/// Records the end of a range that was cut out of the table. The parts that are left continue as blocks of their own.
fn end_cut(hook: HookContext, cut: &Cut) -> Ended {
    let mut ended =
        Ended { kind: cut.kind, inside: cut.inside.clone(), stack: StackId::NONE, scope: ScopeId::NONE };
    if !cut.kind.is_recorded() {
        change_level(cut.kind, &cut.inside, false);
        return ended;
    }
    let freed = hook.begin_free(MAPPED, cut.whole.start);
    let Some((stack, scope)) = freed.origin() else { return ended };
    (ended.stack, ended.scope) = (stack, scope);
    match cut.kind {
        Kind::OnDemand => hook.end_addresses(freed),
        _ => hook.finish_free(freed, 0, STREAM, false),
    }
    for part in cut.rest() {
        record_range(hook, &part, cut.kind, Some((stack, scope)));
    }
    ended
}

/// Adds a new range with the caller's stack.
fn begin_range(hook: HookContext, range: Range<u64>, kind: Kind) {
    // Whatever the table has there was unmapped in a way that does not pass through here.
    end_range(hook, &range);
    hook.with_room(|| add_range(hook, range, kind, None));
}

/// Adds a range, and records its block: with the given stack and scope, or with the caller's.
fn add_range(hook: HookContext, range: Range<u64>, kind: Kind, origin: Option<(StackId, ScopeId)>) {
    if range.is_empty() {
        return;
    }
    if !REGIONS.lock().insert(range.clone(), kind) {
        count(Counter::UntrackedBlocks, u64::from(kind.is_recorded()));
        return;
    }
    if kind.is_recorded() {
        record_range(hook, &range, kind, origin);
    } else {
        change_level(kind, &range, true);
    }
}

/// Records a new range that is, or may become, memory: with the given stack and scope, or with the caller's.
fn record_range(hook: HookContext, range: &Range<u64>, kind: Kind, origin: Option<(StackId, ScopeId)>) {
    let (address, bytes) = (range.start, range.end - range.start);
    match (kind, origin) {
        (Kind::OnDemand, origin) => hook.begin_addresses(MAPPED, address, bytes, origin),
        (_, None) => {
            hook.alloc(MAPPED, STREAM, address, bytes, EventFlags::default());
        }
        (_, Some((stack, scope))) => hook.alloc_for(MAPPED, STREAM, address, bytes, stack, scope),
    }
}

/// Restores ranges that are still mapped because the call failed.
#[cold]
fn restore(hook: HookContext, ended: Vec<Ended>) {
    hook.with_room(|| {
        for Ended { kind, inside, stack, scope } in ended {
            add_range(hook, inside, kind, Some((stack, scope)));
        }
    });
}

/// Adds or subtracts addresses that are only reserved, or that map a file.
fn change_level(kind: Kind, range: &Range<u64>, is_added: bool) {
    let (level, highest) = match kind {
        Kind::PrivateFile | Kind::SharedFile => (Counter::MappedFileBytes, Counter::MaxMappedFileBytes),
        _ => (Counter::ReservedAddressBytes, Counter::MaxReservedAddressBytes),
    };
    let bytes = range.end - range.start;
    add_to_level(level, highest, if is_added { bytes } else { bytes.wrapping_neg() });
}
