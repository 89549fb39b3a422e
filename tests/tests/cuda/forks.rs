//! Forks while other threads are in the hook: in the child, the hook's tables are unlocked and empty.

use crate::books::{events, live_and_segment_bytes, snapshot};
use crate::client::{self, call_at};
use memtrack_core::event::{Action, DeviceId};
use memtrack_core::recorder::Options;
use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_tests::forked::status_of;
use memtrack_tests::mock_cuda::run_ignored_test;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

const SIZE: usize = 2 << 20;
const DEVICE: DeviceId = DeviceId(0);
/// The sizes of the block that the child allocates and frees, and of the block that it does not free.
const FREED_IN_CHILD: usize = 222_222;
const KEPT_IN_CHILD: usize = 123_456;
const FORKS: u32 = 100;

/// The driver's functions, resolved before the fork: `dlsym` takes the loader's lock, which may be held during the fork.
struct Functions([*mut c_void; NAMES.len()]);

const NAMES: [&str; 14] = [
    "cuMemPoolCreate",
    "cuMemAllocFromPoolAsync",
    "cuMemFreeAsync",
    "cuMemPoolDestroy",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAddressFree",
    "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle_v2",
    "cuIpcCloseMemHandle",
    "cuCtxSetCurrent",
];

// SAFETY: the pointers are addresses of functions.
unsafe impl Sync for Functions {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Handle([u64; 8]);

impl Functions {
    fn named(&self, name: &str) -> *mut c_void {
        let index = NAMES.iter().position(|&known| known == name).expect("it is in the list");
        self.0[index]
    }

    /// Creates a pool with one block, opens `shared` as another process would, and maps memory. Frees everything except the
    /// block, and returns the block's address.
    fn round(&self, shared: u64, bytes: usize) -> u64 {
        let properties = client::properties(0);
        let properties = properties.as_ptr().cast::<c_void>();
        let (mut pool, mut block, mut opened) = (0, 0, 0);
        call_at!(self.named("cuMemPoolCreate"), &mut pool => *mut u64, properties => *const c_void)
            .expect("a pool");
        call_at!(self.named("cuMemAllocFromPoolAsync"), &mut block => *mut u64, bytes => usize, pool => u64, 0 => u64)
            .expect("memory");
        let mut handle = [0_u64; 8];
        call_at!(self.named("cuIpcGetMemHandle"), handle.as_mut_ptr().cast() => *mut c_void, shared => u64)
            .expect("it is live");
        call_at!(self.named("cuIpcOpenMemHandle_v2"), &mut opened => *mut u64, Handle(handle) => Handle, 1 => u32)
            .expect("it opens");

        let (mut range, mut physical) = (0, 0);
        call_at!(self.named("cuMemAddressReserve"), &mut range => *mut u64, SIZE => usize, 0 => usize, 0 => u64, 0 => u64)
            .expect("addresses");
        call_at!(self.named("cuMemCreate"), &mut physical => *mut u64, SIZE => usize, properties => *const c_void, 0 => u64)
            .expect("memory");
        call_at!(self.named("cuMemMap"), range => u64, SIZE => usize, 0 => usize, physical => u64, 0 => u64)
            .expect("it fits");
        call_at!(self.named("cuMemUnmap"), range => u64, SIZE => usize).expect("it is mapped");
        call_at!(self.named("cuMemRelease"), physical => u64).expect("it succeeds");
        call_at!(self.named("cuMemAddressFree"), range => u64, SIZE => usize).expect("it succeeds");

        call_at!(self.named("cuIpcCloseMemHandle"), opened => u64).expect("it is open");
        call_at!(self.named("cuMemPoolDestroy"), pool => u64).expect("it succeeds");
        block
    }

    fn free(&self, block: u64) {
        call_at!(self.named("cuMemFreeAsync"), block => u64, 0 => u64).expect("it succeeds");
    }
}

/// Records into a file; each child records into a separate file. Prints the process ids of the children that ended with `exit`,
/// whose files are complete.
#[test]
#[ignore = "is run by the test below"]
fn beside_busy_threads() {
    let file = std::env::var("FORKS_FILE").expect("the test names it");
    let context = client::begin(0);
    let options = Options::new().without_host_heap().max_entries(20_000).output(&file);
    memtrack_core::start_monitor_with(&options).expect("the file is written at the end");
    let functions = Functions(NAMES.map(client::symbol));
    let shared = client::alloc(1000).expect("memory");
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for number in 0..4 {
            let (functions, done) = (&functions, &done);
            threads.spawn(move || {
                call_at!(functions.named("cuCtxSetCurrent"), context => u64).expect("it can be current");
                while !done.load(Ordering::Relaxed) {
                    functions.free(functions.round(shared, 5000));
                    if number == 0 {
                        // A snapshot queries the driver's pools.
                        snapshot();
                    }
                }
            });
        }
        for round in 0..FORKS {
            // SAFETY: only this thread exists in the child; the test checks that the functions called there are safe after a
            // fork.
            let child = match unsafe { libc::fork() } {
                0 => in_the_child(&functions, shared, round),
                child => child,
            };
            wait(child);
            if ends_with_exit(round) {
                println!("{child}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    memtrack_core::stop();
}

fn ends_with_exit(round: u32) -> bool {
    round.is_multiple_of(10)
}

/// Allocates in the child, and checks the child's recording. Exits with a nonzero status after a panic.
fn in_the_child(functions: &Functions, shared: u64, round: u32) -> ! {
    let work = || {
        // The child's recording does not contain the parent's allocations.
        functions.free(functions.round(shared, FREED_IN_CHILD));
        functions.round(shared, KEPT_IN_CHILD);
        let now = snapshot();
        assert_eq!(live_and_segment_bytes(&now, DEVICE), (KEPT_IN_CHILD as u64, KEPT_IN_CHILD as u64));
        assert_eq!((events(&now, DEVICE, Action::Alloc), events(&now, DEVICE, Action::Free)), (4, 3));
    };
    let code = i32::from(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
    if ends_with_exit(round) {
        std::process::exit(code);
    }
    // SAFETY: `_exit` ends the process.
    unsafe { libc::_exit(code) }
}

/// Waits for a child, and exits with 1 if the child's status is not 0.
fn wait(child: libc::pid_t) {
    let status = status_of(child);
    if status != 0 {
        eprintln!("a forked child ended with {status}");
        std::process::exit(1);
    }
}

#[test]
fn forked_children_record_only_their_own_events() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("a.memtrack");
    let children =
        run_ignored_test(beside_busy_threads, &[("FORKS_FILE", file.to_str().expect("a path"))]).text;
    assert_eq!(children.lines().count(), 10);
    let sizes = |snapshot: &Snapshot, action| -> Vec<u64> {
        let events = snapshot.events.iter().filter(|event| event.action == action);
        events.map(|event| event.size_bytes).collect()
    };
    for pid in children.lines() {
        let (child, report) = Snapshot::load(format!("{}.{pid}", file.display())).expect("it recorded");
        assert!(report.complete && child.meta.pid.to_string() == pid);
        assert_eq!(sizes(&child, Action::Alloc), [222_222, 2 << 20, 123_456, 2 << 20]);
        assert_eq!(sizes(&child, Action::Free), [2 << 20, 222_222, 2 << 20]);
        assert_eq!(child.blocks.iter().map(|block| block.size_bytes).collect::<Vec<_>>(), [123_456]);
    }
    let (parent, report) = Snapshot::load(&file).expect("it recorded");
    assert!(report.complete && parent.events.iter().all(|event| event.size_bytes != 222_222));
    assert_eq!(parent.blocks.iter().map(|block| block.size_bytes).collect::<Vec<_>>(), [1000]);
}
