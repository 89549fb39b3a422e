//! All devices, and the host as one more: where an address lies, and how memory is given out and comes back.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::books::Kind;
use crate::context::Context;
use crate::device::Device;
use crate::fork;
use crate::report;
use crate::settings::settings;
use crate::status::{Answer, Status};

/// Address space per byte of a device: classes of sizes keep what they once got.
const ADDRESSES_PER_BYTE: u64 = 16;
/// Address space of one device at the least and at the most.
const STRIDE: std::ops::RangeInclusive<u64> = 1 << 33..=1 << 41;

/// The devices of this process.
pub(crate) struct Machine {
    base: u64,
    stride: u64,
    /// One per device, then the host.
    areas: Vec<Mutex<Device>>,
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// What `cuInit` does.
///
/// # Errors
/// The injected one; no device where there are none.
pub(crate) fn start() -> Answer {
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
            fork::watch();
        }
    }
    Ok(())
}

/// The machine.
///
/// # Errors
/// Not initialized before `cuInit`.
pub(crate) fn machine() -> Answer<&'static Machine> {
    MACHINE.get().ok_or(Status::NOT_INITIALIZED)
}

impl Machine {
    fn new() -> Answer<Self> {
        let settings = settings();
        let stride = settings.total.saturating_mul(ADDRESSES_PER_BYTE).clamp(*STRIDE.start(), *STRIDE.end());
        let areas = settings.devices as u64 + 1;
        // SAFETY: a new private mapping touches nothing that exists.
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

    /// How many devices there are.
    pub fn devices(&self) -> usize {
        self.areas.len() - 1
    }

    /// The index of a device, by its number as the driver's callers give it.
    ///
    /// # Errors
    /// Invalid device for a number that is none.
    pub fn index(&self, number: i32) -> Answer<usize> {
        usize::try_from(number).ok().filter(|&index| index < self.devices()).ok_or(Status::INVALID_DEVICE)
    }

    /// A device, by its number.
    ///
    /// # Errors
    /// Invalid device for a number that is none.
    pub fn device(&self, number: i32) -> Answer<MutexGuard<'_, Device>> {
        Ok(self.area(self.index(number)?))
    }

    /// The host's books.
    pub fn host(&self) -> MutexGuard<'_, Device> {
        self.area(self.devices())
    }

    /// The number of the device that an address lies on; the host's is one more than the last. None for an address
    /// that the mock did not give out.
    pub fn area_of(&self, address: u64) -> Option<usize> {
        let index = address.checked_sub(self.base)? / self.stride;
        usize::try_from(index).ok().filter(|&index| index < self.areas.len())
    }

    /// A device or the host, by its index.
    pub fn area(&self, index: usize) -> MutexGuard<'_, Device> {
        self.areas[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory of a context's device.
    ///
    /// # Errors
    /// Out of memory.
    pub fn allocate(&self, context: Context, kind: Kind, bytes: u64) -> Answer<u64> {
        self.area(context.device).allocate(kind, bytes, context.number)
    }

    /// Page-locked memory of the host.
    ///
    /// # Errors
    /// As [`Machine::allocate`].
    pub fn allocate_host(&self, context: Context, bytes: u64) -> Answer<u64> {
        self.host().allocate(Kind::Pinned, bytes, context.number)
    }

    /// Memory of a pool.
    ///
    /// # Errors
    /// As [`Machine::allocate`].
    pub fn allocate_pooled(
        &self,
        device: usize,
        pool: Option<usize>,
        context: u16,
        bytes: u64,
    ) -> Answer<u64> {
        let mut device = self.area(device);
        let pool = pool.unwrap_or(device.current_pool);
        device.allocate_pooled(pool, bytes, context)
    }

    /// Takes memory of one of these kinds back.
    ///
    /// # Errors
    /// Invalid value where nothing such begins at the address.
    pub fn free(&self, address: u64, kinds: &[Kind]) -> Answer {
        let area = self.area_of(address).ok_or(Status::INVALID_VALUE)?;
        self.area(area).free(address, kinds)
    }

    /// Takes back all that a context holds.
    pub fn release_context(&self, context: Context) {
        for index in 0..self.areas.len() {
            let with_pools = context.is_primary() && index == context.device;
            self.area(index).release_context(context.number, with_pools);
        }
    }
}
