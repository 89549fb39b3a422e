//! Physical memory and the addresses it is mapped to: `cuMemCreate` and related functions. A device's physical memory is
//! one sparse file in memory, a handle is a range of that file, and a mapping is a shared mapping of the range, so that all
//! mappings of one handle have the same bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::counters::Kind;
use crate::machine::machine;
use crate::status::{CuResult, Status};

/// All sizes and addresses are multiples of this.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// The memory of one call of `cuMemCreate`.
struct Piece {
    device: usize,
    bytes: u64,
    offset: u64,
    /// Whether the piece was imported. If so, it is not counted here, because its memory is counted where it was created.
    is_imported: bool,
    /// The numbers of handles and of mappings that refer to the piece.
    handles: u32,
    mappings: u32,
}

struct Mapping {
    bytes: u64,
    piece: u32,
}

#[derive(Default)]
pub(crate) struct Store {
    /// The file of each device, and the offset of its next piece.
    files: HashMap<usize, (i32, u64)>,
    pieces: HashMap<u32, Piece>,
    next: u32,
    reserved: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, Mapping>,
}

static STORE: Mutex<Option<Store>> = Mutex::new(None);

/// Locks the store. A device may be locked while the store is locked, but never the other way round.
pub(crate) fn store() -> MutexGuard<'static, Option<Store>> {
    STORE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with<T>(act: impl FnOnce(&mut Store) -> T) -> T {
    act(store().get_or_insert_default())
}

fn is_multiple(bytes: u64) -> bool {
    bytes != 0 && bytes.is_multiple_of(GRANULARITY)
}

/// Allocates physical memory of a device. Returns the device and the piece's number, which identify its handle.
///
/// # Errors
/// `INVALID_VALUE` if the size is not a multiple of the granularity; `OUT_OF_MEMORY` if too little memory is free.
pub(crate) fn create(device: i32, bytes: u64) -> CuResult<(u16, u32)> {
    if !is_multiple(bytes) {
        return Err(Status::INVALID_VALUE);
    }
    let machine = machine()?;
    {
        let mut device = machine.device(device)?;
        device.reserve_outside_pools(Kind::Physical, bytes)?;
        device.counters.alloc(Kind::Physical, bytes);
    }
    let device = device as usize;
    with(|store| {
        let (file, next) = store.files.entry(device).or_insert_with(|| (new_file(), 0));
        let offset = *next;
        *next += bytes;
        // SAFETY: extends one of the store's files; without space the mapping fails later.
        unsafe { libc::ftruncate(*file, *next as i64) };
        store.next += 1;
        store
            .pieces
            .insert(store.next, Piece { device, bytes, offset, is_imported: false, handles: 1, mappings: 0 });
        Ok((device as u16, store.next))
    })
}

fn new_file() -> i32 {
    // SAFETY: creates a new file; on failure the descriptor is -1, with which every mapping fails.
    unsafe { libc::memfd_create(c"memtrack-mock-cuda".as_ptr(), libc::MFD_CLOEXEC) }
}

/// Adds a handle to a piece, by an address where the piece is mapped.
///
/// # Errors
/// `INVALID_VALUE` if nothing is mapped at the address.
pub(crate) fn retain(address: u64) -> CuResult<(u16, u32)> {
    with(|store| {
        let (start, mapping) = store.mapped.range(..=address).next_back().ok_or(Status::INVALID_VALUE)?;
        if address - start >= mapping.bytes {
            return Err(Status::INVALID_VALUE);
        }
        let piece = store.pieces.get_mut(&mapping.piece).ok_or(Status::INVALID_VALUE)?;
        piece.handles += 1;
        Ok((piece.device as u16, mapping.piece))
    })
}

/// Imports a piece as another process would: returns another handle to the same bytes, which uses no memory.
///
/// # Errors
/// `INVALID_VALUE` for a handle that was released.
pub(crate) fn import(handle: u32) -> CuResult<(u16, u32)> {
    with(|store| {
        let piece = store.pieces.get(&handle).ok_or(Status::INVALID_VALUE)?;
        let imported = Piece { is_imported: true, handles: 1, mappings: 0, ..*piece };
        let device = piece.device as u16;
        store.next += 1;
        store.pieces.insert(store.next, imported);
        Ok((device, store.next))
    })
}

/// Returns the device of a handle.
///
/// # Errors
/// `INVALID_VALUE` for a handle that was released.
pub(crate) fn device_of(handle: u32) -> CuResult<usize> {
    with(|store| store.pieces.get(&handle).map(|piece| piece.device).ok_or(Status::INVALID_VALUE))
}

/// Releases a handle. The memory stays allocated as long as it is mapped.
///
/// # Errors
/// `INVALID_VALUE` for a handle that was released.
pub(crate) fn release(handle: u32) -> CuResult {
    with(|store| {
        let piece =
            store.pieces.get_mut(&handle).filter(|piece| piece.handles > 0).ok_or(Status::INVALID_VALUE)?;
        piece.handles -= 1;
        store.free_if_unused(handle)
    })
}

/// Reserves a range of addresses without memory.
///
/// # Errors
/// `INVALID_VALUE` if the size is not a multiple of the granularity; `OUT_OF_MEMORY` if no range is left.
pub(crate) fn reserve(bytes: u64, alignment: u64) -> CuResult<u64> {
    if !is_multiple(bytes) {
        return Err(Status::INVALID_VALUE);
    }
    let alignment = alignment.max(GRANULARITY);
    let around = bytes.checked_add(alignment).ok_or(Status::OUT_OF_MEMORY)?;
    let start = map(None, around, libc::PROT_NONE, -1, 0)?;
    let address = start.next_multiple_of(alignment);
    unmap(start, address - start);
    unmap(address + bytes, around - bytes - (address - start));
    with(|store| store.reserved.insert(address, bytes));
    Ok(address)
}

/// Frees a reserved range.
///
/// # Errors
/// `INVALID_VALUE` if the range is not reserved, or if something is mapped in it.
pub(crate) fn unreserve(address: u64, bytes: u64) -> CuResult {
    with(|store| {
        let is_used = store.mapped.range(address..address.saturating_add(bytes)).next().is_some();
        if store.reserved.get(&address) != Some(&bytes) || is_used {
            return Err(Status::INVALID_VALUE);
        }
        store.reserved.remove(&address);
        unmap(address, bytes);
        Ok(())
    })
}

/// Maps a piece to addresses.
///
/// # Errors
/// `INVALID_VALUE` if the addresses are not reserved or not free, or if the size is not the piece's.
pub(crate) fn map_piece(address: u64, bytes: u64, handle: u32) -> CuResult {
    with(|store| {
        let end = address.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        let (start, length) = store.reserved.range(..=address).next_back().ok_or(Status::INVALID_VALUE)?;
        let is_free = match store.mapped.range(..end).next_back() {
            Some((start, mapping)) => start + mapping.bytes <= address,
            None => true,
        };
        let piece = store.pieces.get_mut(&handle).ok_or(Status::INVALID_VALUE)?;
        if end > start + length || !is_free || bytes != piece.bytes {
            return Err(Status::INVALID_VALUE);
        }
        let file = store.files[&piece.device].0;
        map(Some(address), bytes, libc::PROT_NONE, file, piece.offset)?;
        piece.mappings += 1;
        store.mapped.insert(address, Mapping { bytes, piece: handle });
        Ok(())
    })
}

/// Unmaps one or several whole pieces.
///
/// # Errors
/// `INVALID_VALUE` if the range contains only a part of a mapping, or has gaps.
pub(crate) fn unmap_range(address: u64, bytes: u64) -> CuResult {
    with(|store| {
        let end = address.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        let mapped: Vec<(u64, u64)> =
            store.mapped.range(address..end).map(|(&start, mapping)| (start, mapping.bytes)).collect();
        if mapped.iter().map(|(_, bytes)| bytes).sum::<u64>() != bytes {
            return Err(Status::INVALID_VALUE);
        }
        map(Some(address), bytes, libc::PROT_NONE, -1, 0)?;
        for (start, _) in mapped {
            let Some(mapping) = store.mapped.remove(&start) else { continue };
            if let Some(piece) = store.pieces.get_mut(&mapping.piece) {
                piece.mappings -= 1;
            }
            store.free_if_unused(mapping.piece)?;
        }
        Ok(())
    })
}

/// Makes addresses writable, read-only or inaccessible (the driver's 3, 1 and 0).
///
/// # Errors
/// `INVALID_VALUE` if nothing is mapped at the address.
pub(crate) fn set_access(address: u64, bytes: u64, flags: i32) -> CuResult {
    let protection = match flags {
        3 => libc::PROT_READ | libc::PROT_WRITE,
        1 => libc::PROT_READ,
        _ => libc::PROT_NONE,
    };
    with(|store| {
        let end = address.checked_add(bytes).ok_or(Status::INVALID_VALUE)?;
        if store.mapped.range(address..end).map(|(_, mapping)| mapping.bytes).sum::<u64>() != bytes {
            return Err(Status::INVALID_VALUE);
        }
        // SAFETY: the range consists of mappings of this store.
        let failed = unsafe { libc::mprotect(pointer(address), bytes as usize, protection) } != 0;
        if failed { Err(Status::INVALID_VALUE) } else { Ok(()) }
    })
}

impl Store {
    fn free_if_unused(&mut self, number: u32) -> CuResult {
        let Some(piece) = self.pieces.get(&number).filter(|piece| piece.handles == 0 && piece.mappings == 0)
        else {
            return Ok(());
        };
        if piece.is_imported {
            self.pieces.remove(&number);
            return Ok(());
        }
        // SAFETY: punches a hole where nothing is mapped any longer, which frees the host's memory.
        unsafe {
            let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            libc::fallocate(self.files[&piece.device].0, hole, piece.offset as i64, piece.bytes as i64);
        }
        let machine = machine()?;
        let mut device = machine.area(piece.device);
        device.release_outside_pools(Kind::Physical, piece.bytes);
        device.counters.free(Kind::Physical, piece.bytes);
        self.pieces.remove(&number);
        Ok(())
    }
}

fn pointer(address: u64) -> *mut libc::c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// Maps a range of a file, or anonymous memory if `file` is -1, at a reserved address or anywhere.
fn map(address: Option<u64>, bytes: u64, protection: i32, file: i32, offset: u64) -> CuResult<u64> {
    let flags = libc::MAP_NORESERVE
        | if file < 0 { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS } else { libc::MAP_SHARED }
        | if address.is_some() { libc::MAP_FIXED } else { 0 };
    let place = address.map_or(std::ptr::null_mut(), pointer);
    // SAFETY: if an address is given, `reserve` reserved the range, which is replaced on purpose.
    let mapped = unsafe { libc::mmap(place, bytes as usize, protection, flags, file, offset as i64) };
    if mapped == libc::MAP_FAILED {
        Err(Status::OUT_OF_MEMORY)
    } else {
        Ok(mapped.expose_provenance() as u64)
    }
}

fn unmap(address: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: a range that `map` returned, and that nothing uses.
        unsafe { libc::munmap(pointer(address), bytes as usize) };
    }
}
