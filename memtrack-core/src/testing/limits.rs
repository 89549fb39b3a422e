//! The limits on a test's memory, and running a closure or future under them.

use super::account::{FinishedTest, RunningTest, SecondRun};
use super::verdict::{Failure, LimitCheck};
use memtrack_model::event::DeviceId;
use std::panic::Location;
use std::thread;

/// The limits for one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DeviceLimits {
    pub(super) peak_bytes: Option<u64>,
    pub(super) leaked_bytes: Option<u64>,
    pub(super) count: Option<u64>,
}

impl DeviceLimits {
    fn or(self, other: Self) -> Self {
        Self {
            peak_bytes: self.peak_bytes.or(other.peak_bytes),
            leaked_bytes: self.leaked_bytes.or(other.leaked_bytes),
            count: self.count.or(other.count),
        }
    }

    fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// Limits on a test's memory.
///
/// ```
/// use memtrack_core::testing::Limits;
/// # #[global_allocator]
/// # static ALLOCATOR: memtrack_core::TrackingAllocator = memtrack_core::TrackingAllocator::system();
///
/// let sum = Limits::new().peak(1 << 20).leaks(0).count(1).run(|| {
///     let squares: Vec<u64> = (0..1000).map(|i| i * i).collect();
///     squares.iter().sum::<u64>()
/// });
/// assert_eq!(sum, 332_833_500);
/// ```
///
/// A limit applies to the host's heap and to each device separately: `peak(1 << 30)` allows a gibibyte on the heap and
/// a gibibyte on each GPU. [`host`](Self::host) sets separate limits for the heap, and [`devices`](Self::devices) for
/// devices.
#[derive(Clone, Debug, Default)]
#[must_use = "limits hold for what is run with them: `run`, `run_async`"]
pub struct Limits {
    all: DeviceLimits,
    host: DeviceLimits,
    devices: DeviceLimits,
    pub(super) ignored: Vec<String>,
    pub(super) runs_once: bool,
}

impl Limits {
    /// Creates a value without any limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the number of bytes that may be live at once.
    pub fn peak(mut self, bytes: u64) -> Self {
        self.all.peak_bytes = Some(bytes);
        self
    }

    /// Limits the number of bytes that may be left when the test ends, that is, bytes that the test allocated and that
    /// were not freed. The test's return value is still live at that point, so it counts.
    ///
    /// Memory that lives until the program or the thread ends is not counted. This is memory that a
    /// [`LazyLock`](std::sync::LazyLock), a [`OnceLock`](std::sync::OnceLock), a [`Once`](std::sync::Once) or a
    /// thread-local allocates at its first use. If a test with [`#[limits]`](crate::testing::limits) leaves more memory
    /// than allowed, it runs a second time, and memory that only the first run left is not counted either.
    /// ([`run_once`](Self::run_once) prevents the second run.) The closure passed to [`run`](Self::run) and the future
    /// passed to [`run_async`](Self::run_async) run only once.
    pub fn leaks(mut self, bytes: u64) -> Self {
        self.all.leaked_bytes = Some(bytes);
        self
    }

    /// Limits the number of blocks that may be allocated. A `realloc` counts as one.
    pub fn count(mut self, blocks: u64) -> Self {
        self.all.count = Some(blocks);
        self
    }

    /// Sets separate limits for the host's heap. The limits set in `limits` override the general ones.
    pub fn host(mut self, limits: Self) -> Self {
        self.host = limits.all;
        self.ignored.extend(limits.ignored);
        self
    }

    /// Sets separate limits for each device and for pinned host memory. The limits set in `limits` override the general
    /// ones.
    pub fn devices(mut self, limits: Self) -> Self {
        self.devices = limits.all;
        self.ignored.extend(limits.ignored);
        self
    }

    /// Does not count memory as leaked if a function or a file in its stack matches `glob`. This is for caches that are
    /// filled on purpose. Globs have the same form as for the command's option `--mine`: `my_crate::cache::*`,
    /// `src/cache.rs`. The peak and the count are not affected. Requires the feature `report`.
    pub fn ignore_leaks(mut self, glob: impl Into<String>) -> Self {
        self.ignored.push(glob.into());
        self
    }

    /// Prevents the second run that distinguishes one-time allocations from leaks. This is for tests that cannot run
    /// twice because they change something outside the process.
    pub fn run_once(mut self) -> Self {
        self.runs_once = true;
        self
    }

    /// Runs `test` under the limits and returns its result.
    ///
    /// Memory counts if it is allocated during the test on this thread, or on threads and in tasks that enter the
    /// test's [`scope::current`](crate::scope::current).
    ///
    /// # Panics
    /// Panics if a limit is exceeded; the message names the holders of the memory. Also panics if the host's heap is
    /// limited but the program has no [`TrackingAllocator`](crate::TrackingAllocator), or if `test` panics, in which
    /// case the limits are not checked.
    #[track_caller]
    pub fn run<R>(self, test: impl FnOnce() -> R) -> R {
        let location = Location::caller();
        let running = RunningTest::begin(|| test_name(location), self.limits_host());
        let value = {
            let _inside = running.scope().enter();
            test()
        };
        self.check(running.finish(&LimitCheck { limits: &self }), None).fail();
        value
    }

    /// Runs `test` under the limits, on any thread that polls it, and returns its result.
    ///
    /// Tasks that the test spawns count if their futures are wrapped with `scope::current().future(…)`.
    ///
    /// # Panics
    /// Panics in the same cases as [`run`](Self::run).
    #[track_caller]
    pub fn run_async<R>(self, test: impl Future<Output = R>) -> impl Future<Output = R> {
        let location = Location::caller();
        async move {
            let running = RunningTest::begin(|| test_name(location), self.limits_host());
            let value = running.scope().future(test).await;
            self.check(running.finish(&LimitCheck { limits: &self }), None).fail();
            value
        }
    }

    /// Checks a test that has ended against the limits.
    pub(super) fn check(&self, finished: FinishedTest, second: Option<SecondRun>) -> Failure {
        Failure(finished.check(&LimitCheck { limits: self }, second))
    }

    /// Returns the limits that apply to a device.
    pub(super) fn for_device(&self, device: DeviceId) -> DeviceLimits {
        if device.is_host() { self.host.or(self.all) } else { self.devices.or(self.all) }
    }

    /// Returns whether the host's heap is limited.
    pub(super) fn limits_host(&self) -> bool {
        !self.for_device(DeviceId::HOST).is_none()
    }
}

/// Returns a name for the running test: the thread's name, if libtest has set it, and the location of the call.
fn test_name(location: &Location<'_>) -> String {
    let thread = thread::current();
    match thread.name() {
        Some(name) if name != "main" => format!("{name} ({location})"),
        _ => location.to_string(),
    }
}
