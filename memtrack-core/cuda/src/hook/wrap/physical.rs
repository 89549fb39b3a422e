//! Physical memory that the program maps itself, as PyTorch's expandable segments do. It counts while it is mapped: a
//! mapping into part of a reserved range is a `segment_map` of an expandable segment, and a mapping that fills its
//! range is an ordinary segment. Reserving addresses takes no memory.

use super::{Call, CuResult, Properties, SUCCESS, ipc};
use crate::hook::watch::{AllocationDevice, Kind};
use memtrack_recorder::recorder::ForkCell;
use memtrack_recorder::recorder::driver_memory::Origin;
use memtrack_recorder::reentry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

/// The memory behind a handle.
#[derive(Clone, Copy)]
enum Memory {
    /// Memory that this process created, on this device.
    Created(AllocationDevice),
    /// Memory of another process.
    Imported,
}

/// The handles of the program's physical memory, and its reserved addresses.
#[derive(Default)]
struct Tables {
    handles: HashMap<u64, Memory>,
    /// The sizes of the reserved ranges, by address.
    ranges: BTreeMap<u64, u64>,
}

static TABLES: ForkCell<Mutex<Tables>> = ForkCell::new(Mutex::default);

fn kind(device: AllocationDevice, origin: Origin) -> Kind {
    Kind { origin, stream: 0, device }
}

/// Returns the origin of a mapping, which depends on whether it fills its reserved range and therefore cannot grow.
fn origin_of(address: u64, size: u64) -> Origin {
    let around = with_tables(|tables| {
        tables.ranges.range(..=address).next_back().map(|(&start, &size)| (start, size))
    });
    if around == Some((address, size)) { Origin::WholeRange } else { Origin::Mapping }
}

/// `cuMemAddressReserve`.
///
/// # Safety
/// `out` must be the pointer that the caller passed to the driver.
pub(in crate::hook) unsafe fn reserve(
    call: Call<impl FnOnce() -> CuResult>,
    out: *mut u64,
    size: usize,
) -> CuResult {
    let result = call.run();
    if result == SUCCESS && !out.is_null() {
        // SAFETY: the driver has just written it.
        let address = unsafe { out.read() };
        with_tables(|tables| tables.ranges.insert(address, size as u64));
    }
    result
}

/// `cuMemAddressFree`.
pub(in crate::hook) fn unreserve(call: Call<impl FnOnce() -> CuResult>, address: u64) -> CuResult {
    let before = with_tables(|tables| tables.ranges.remove(&address));
    let result = call.run();
    if let Some(before) = before.filter(|_| result != SUCCESS) {
        with_tables(|tables| tables.ranges.insert(address, before));
    }
    result
}

/// `cuMemImportFromShareableHandle`: memory that was created elsewhere.
///
/// # Safety
/// `out` must be the pointer that the caller passed to the driver.
pub(in crate::hook) unsafe fn import(call: Call<impl FnOnce() -> CuResult>, out: *mut u64) -> CuResult {
    let result = call.run();
    if result == SUCCESS && !out.is_null() {
        // SAFETY: the driver has just written it.
        let handle = unsafe { out.read() };
        // A process that imports its own memory may receive the handle that it already has. In that case, the existing
        // entry remains.
        with_tables(|tables| {
            tables.handles.entry(handle).or_insert(Memory::Imported);
        });
    }
    result
}

/// `cuMemCreate`.
///
/// # Safety
/// The pointers must be those that the caller passed to the driver.
pub(in crate::hook) unsafe fn create(
    call: Call<impl FnOnce() -> CuResult>,
    out: *mut u64,
    size: usize,
    properties: *const Properties,
) -> CuResult {
    let Some(watch) = call.watch() else { return call.run() };
    let result = call.run();
    if out.is_null() || properties.is_null() {
        return result;
    }
    // SAFETY: the driver has just read `properties`.
    let device = unsafe { (*properties).device() };
    if result == SUCCESS {
        // SAFETY: the driver has just written it.
        let handle = unsafe { out.read() };
        with_tables(|tables| tables.handles.insert(handle, Memory::Created(device)));
    } else {
        watch.record_alloc_result(result, kind(device, Origin::Mapping), 0, size as u64);
    }
    result
}

/// `cuMemRelease`: mapped memory stays mapped.
pub(in crate::hook) fn release(call: Call<impl FnOnce() -> CuResult>, handle: u64) -> CuResult {
    let before = with_tables(|tables| tables.handles.remove(&handle));
    let result = call.run();
    if let Some(memory) = before.filter(|_| result != SUCCESS) {
        with_tables(|tables| tables.handles.insert(handle, memory));
    }
    result
}

/// `cuMemMap`.
pub(in crate::hook) fn map(
    call: Call<impl FnOnce() -> CuResult>,
    address: u64,
    size: usize,
    handle: u64,
) -> CuResult {
    let Some(watch) = call.watch() else { return call.run() };
    let memory = with_tables(|tables| tables.handles.get(&handle).copied());
    let result = call.run();
    let device = match memory {
        Some(Memory::Imported) => {
            if result == SUCCESS {
                ipc::add_mapping(address, watch.driver.current_context().device, size as u64);
            }
            return result;
        }
        Some(Memory::Created(device)) => device,
        None => AllocationDevice::Current,
    };
    let origin = origin_of(address, size as u64);
    watch.record_alloc_result(
        result,
        kind(device, origin),
        if result == SUCCESS { address } else { 0 },
        size as u64,
    );
    result
}

/// `cuMemUnmap`, which may remove several mappings at once.
pub(in crate::hook) fn unmap(call: Call<impl FnOnce() -> CuResult>, address: u64, size: usize) -> CuResult {
    let Some(watch) = call.watch() else { return call.run() };
    let freed = watch.before_unmap(address, size as u64);
    let result = call.run();
    watch.record_free_results(result, freed);
    if result == SUCCESS {
        ipc::remove_mappings(address..address.saturating_add(size as u64));
    }
    result
}

fn with_tables<R>(act: impl FnOnce(&mut Tables) -> R) -> R {
    let _inside = reentry::enter();
    act(&mut TABLES.lock())
}
