//! All devices, with the host as an additional one: finds the device of an address, and allocates and frees memory.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::context::Context;
use crate::counters::Kind;
use crate::device::Device;
use crate::fork;
use crate::report;
use crate::settings::settings;
use crate::status::{CuResult, Status};

/// Address space per byte of a device's memory; more than 1, because a size class never reuses the addresses of another.
const ADDRESSES_PER_BYTE: u64 = 16;
/// The minimum and the maximum address space of one device.
const STRIDE: std::ops::RangeInclusive<u64> = 1 << 33..=1 << 41;

/// The devices of this process.
pub(crate) struct Machine {
    base: u64,
    stride: u64,
    /// One element per device, then the host's.
    areas: Vec<Mutex<Device>>,
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// Initializes the driver, for `cuInit`.
///
/// # Errors
/// The injected error, if there is one; `NO_DEVICE` if there are no devices.
pub(crate) fn start() -> CuResult {
    let settings = settings();
    match (settings.init_error, settings.devices) {
        (0, 0) => return Err(Status::NO_DEVICE),
        (0, _) => {}
        (error, _) => return Err(Status(error)),
    }
    if MACHINE.get().is_none() {
        let machine = Machine::new()?;
        if MACHINE.set(machine).is_ok() {
            report::at_exit();
            fork::register_handlers();
        }
    }
    Ok(())
}

/// Returns the machine.
///
/// # Errors
/// `NOT_INITIALIZED` before `cuInit` was called.
pub(crate) fn machine() -> CuResult<&'static Machine> {
    MACHINE.get().ok_or(Status::NOT_INITIALIZED)
}

impl Machine {
    fn new() -> CuResult<Self> {
        let settings = settings();
        let stride = settings.total.saturating_mul(ADDRESSES_PER_BYTE).clamp(*STRIDE.start(), *STRIDE.end());
        let areas = settings.devices as u64 + 1;
        // SAFETY: a new private mapping affects no existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                (stride * areas) as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Status::OUT_OF_MEMORY);
        }
        let base = base as u64;
        let area = |number: u64| {
            let start = base + number * stride;
            let is_host = number + 1 == areas;
            let total = if is_host { u64::MAX } else { settings.total };
            let others = if is_host { 0 } else { settings.other_bytes };
            Mutex::new(Device::new(start, start + stride, total, others))
        };
        Ok(Self { base, stride, areas: (0..areas).map(area).collect() })
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> usize {
        self.areas.len() - 1
    }

    /// Returns the index of a device, by the number that callers of the driver pass.
    ///
    /// # Errors
    /// `INVALID_DEVICE` if no device has this number.
    pub fn index(&self, number: i32) -> CuResult<usize> {
        usize::try_from(number).ok().filter(|&index| index < self.devices()).ok_or(Status::INVALID_DEVICE)
    }

    /// Locks a device, by its number.
    ///
    /// # Errors
    /// `INVALID_DEVICE` if no device has this number.
    pub fn device(&self, number: i32) -> CuResult<MutexGuard<'_, Device>> {
        Ok(self.area(self.index(number)?))
    }

    /// Locks the host.
    pub fn host(&self) -> MutexGuard<'_, Device> {
        self.area(self.devices())
    }

    /// Returns the index of the device that an address belongs to; the host's index follows the last device's. `None` for
    /// an address outside the mock's ranges.
    pub fn area_of(&self, address: u64) -> Option<usize> {
        let index = address.checked_sub(self.base)? / self.stride;
        usize::try_from(index).ok().filter(|&index| index < self.areas.len())
    }

    /// Locks a device or the host, by its index.
    pub fn area(&self, index: usize) -> MutexGuard<'_, Device> {
        self.areas[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates memory of a context's device.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` if too little memory is free; `INVALID_VALUE` for 0 bytes.
    pub fn allocate(&self, context: Context, kind: Kind, bytes: u64) -> CuResult<u64> {
        self.area(context.device).allocate(kind, bytes, context.number)
    }

    /// Allocates page-locked host memory.
    ///
    /// # Errors
    /// As [`Machine::allocate`].
    pub fn allocate_host(&self, context: Context, bytes: u64) -> CuResult<u64> {
        self.host().allocate(Kind::Pinned, bytes, context.number)
    }

    /// Allocates memory from a pool, the current one by default.
    ///
    /// # Errors
    /// As [`Machine::allocate`].
    pub fn allocate_pooled(
        &self,
        device: usize,
        pool: Option<usize>,
        context: u16,
        bytes: u64,
    ) -> CuResult<u64> {
        let mut device = self.area(device);
        let pool = pool.unwrap_or(device.current_pool);
        device.allocate_pooled(pool, bytes, context)
    }

    /// Frees memory of one of these kinds.
    ///
    /// # Errors
    /// `INVALID_VALUE` if no such block begins at the address.
    pub fn free(&self, address: u64, kinds: &[Kind]) -> CuResult {
        let area = self.area_of(address).ok_or(Status::INVALID_VALUE)?;
        self.area(area).free(address, kinds)
    }

    /// Frees all memory of a context.
    pub fn release_context(&self, context: Context) {
        for index in 0..self.areas.len() {
            let with_pools = context.is_primary() && index == context.device;
            self.area(index).release_context(context.number, with_pools);
        }
    }
}
