//! The memory usage of a part of a program, for tests that make their own comparisons.

use super::account::{NO_ALLOCATOR_MESSAGE, RunningTest};
use memtrack_model::event::DeviceId;
use memtrack_recorder::accounts::DeviceBooks;
use memtrack_recorder::reentry;
use std::panic::Location;

/// The memory usage on one device. All numbers are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceUsage {
    /// The maximum number of bytes that were live at once.
    pub peak_bytes: u64,
    /// The number of blocks at the peak.
    pub peak_blocks: u64,
    /// The total number of bytes allocated.
    pub allocated_bytes: u64,
    /// The total number of blocks allocated. A `realloc` counts as one.
    pub count: u64,
    /// The number of bytes that had not been freed at the end, including memory that statics allocated at
    /// their first use.
    pub left_bytes: u64,
    /// The number of blocks that had not been freed at the end.
    pub left_blocks: u64,
}

/// The memory usage on all devices; see [`measure`].
#[derive(Debug, PartialEq, Eq)]
pub struct Usage {
    devices: Vec<(DeviceId, DeviceUsage)>,
    is_heap_tracked: bool,
}

impl Usage {
    /// Returns the usage of the host's heap.
    ///
    /// # Panics
    /// Panics if the program has no [`TrackingAllocator`](crate::TrackingAllocator).
    #[track_caller]
    pub fn host(&self) -> DeviceUsage {
        assert!(self.is_heap_tracked, "{NO_ALLOCATOR_MESSAGE}");
        self.device(DeviceId::HOST)
    }

    /// Returns the usage of a device that reports to [`recorder`](crate::recorder). All numbers are zero if
    /// nothing was allocated on it.
    pub fn device(&self, device: DeviceId) -> DeviceUsage {
        self.devices
            .iter()
            .find(|(of, _)| *of == device)
            .map_or_else(DeviceUsage::default, |(_, usage)| *usage)
    }

    /// Returns the usage of all devices that have allocations. The host's heap comes last.
    pub fn devices(&self) -> &[(DeviceId, DeviceUsage)] {
        &self.devices
    }
}

// A clone's table counts as memtrack's memory, so that an enclosing test does not count it.

impl Clone for Usage {
    fn clone(&self) -> Self {
        let _inside = reentry::enter();
        Self { devices: self.devices.clone(), is_heap_tracked: self.is_heap_tracked }
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        let _inside = reentry::enter();
        self.devices = Vec::new();
    }
}

/// Runs `work` and returns its result and its memory usage. The same memory counts as in
/// [`Limits::run`](super::Limits::run).
///
/// ```
/// # #[global_allocator]
/// # static ALLOCATOR: memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();
/// use memtrack_core::testing::measure;
///
/// let (text, used) = measure(|| "abc".repeat(100));
/// assert_eq!((used.host().count, used.host().left_bytes), (1, text.capacity() as u64));
/// ```
///
/// # Panics
/// Panics if `work` panics or 1,024 tests are already being observed.
#[track_caller]
pub fn measure<R>(work: impl FnOnce() -> R) -> (R, Usage) {
    let location = Location::caller();
    let running = RunningTest::begin(|| location.to_string(), false);
    let value = {
        let _inside = running.scope().enter();
        work()
    };
    let (books, is_heap_tracked) = running.end();
    let usage = |books: &DeviceBooks| DeviceUsage {
        peak_bytes: books.peak().bytes,
        peak_blocks: books.peak().blocks,
        allocated_bytes: books.allocated().bytes,
        count: books.allocated().blocks,
        left_bytes: books.left().bytes,
        left_blocks: books.left().blocks,
    };
    let _inside = reentry::enter();
    let devices = books.devices().into_iter().map(|(device, books)| (device, usage(books))).collect();
    drop(books);
    (value, Usage { devices, is_heap_tracked })
}
