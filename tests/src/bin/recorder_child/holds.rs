//! The holders of memory, which are printed when memory runs out and when a snapshot is dumped.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{Options, record_alloc, record_free, record_oom, record_segment_alloc};
use memtrack_core::{scope, who_holds};
use std::cell::Cell;
use std::hint::black_box;
use std::time::{Duration, Instant};

const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(7);
const MIB: u64 = 1 << 20;

/// Address of the first segment.
const BASE: u64 = 0x10_0000_0000;

/// Allocates the weights of a layer. This function holds the most memory.
#[inline(never)]
fn weights(layer: u64) {
    record_alloc(DEVICE, STREAM, BASE + layer * 512 * MIB, 384 * MIB);
    black_box(());
}

/// Allocates activations. This function holds less memory than [`weights`].
#[inline(never)]
fn activations(number: u64) {
    record_alloc(DEVICE, STREAM, BASE + number * 512 * MIB + 384 * MIB, 64 * MIB);
    black_box(());
}

/// Allocates a model of four layers, and the activations of its step; 64 MiB of each segment stay free.
fn fill() {
    fill_in_halves(|| ());
}

/// Does the same as [`fill`], with a pause between the model and the step.
fn fill_in_halves(pause: impl FnOnce()) {
    let _net = scope::root("Net");
    let _encoder = scope::module("encoder");
    for layer in 0..4 {
        record_segment_alloc(DEVICE, STREAM, BASE + layer * 512 * MIB, 512 * MIB);
        let _layer = scope::module(&format!("block{layer}"));
        let _operator = scope::operator("init");
        weights(layer);
    }
    pause();
    let _operator = scope::operator("matmul");
    (0..4).for_each(activations);
}

/// The environment variable with a pause in milliseconds. If the pause was too short, the process exits with [`TOO_SLOW`].
const PAUSE: &str = "MEMTRACK_TESTS_PAUSE_MS";
const TOO_SLOW: i32 = 75;

/// Times a recording so that its midpoint lies between the model and the step, however slow the machine is.
struct Halves {
    begun: Instant,
    /// The minimum pause between the halves; `None` if the test does not depend on the midpoint.
    pause: Option<Duration>,
    second: Cell<Option<Instant>>,
}

impl Halves {
    /// Begins the first half of the recording, before monitoring starts.
    fn begin() -> Self {
        let pause = std::env::var(PAUSE).ok().and_then(|pause| pause.parse().ok());
        let pause = pause.map(Duration::from_millis);
        Self { begun: Instant::now(), pause, second: Cell::default() }
    }

    /// Ends the first half: pauses for longer than that half took.
    fn pause(&self) {
        if let Some(pause) = self.pause {
            std::thread::sleep(pause.max(2 * self.begun.elapsed()));
            self.second.set(Some(Instant::now()));
        }
    }

    /// Ends the second half, and exits the process if that half took longer than the pause.
    fn end(&self) {
        let took = self.second.get().map(|second| second.elapsed());
        if took > self.pause {
            std::process::exit(TOO_SLOW);
        }
    }
}

/// Requests more memory than is free, inside a scope.
fn run_out() {
    let _net = scope::root("Net");
    let _head = scope::module("head");
    let _operator = scope::operator("softmax");
    record_oom(DEVICE, STREAM, 200 * MIB, 100 * MIB, 4096 * MIB);
}

/// A device runs out of memory, with a dump or without.
pub fn device(dump: &str) {
    let options = Options::new().without_host_heap().report_on_oom();
    let options = if dump.is_empty() { options } else { options.dump_on_oom(dump) };
    let halves = Halves::begin();
    memtrack_core::start_monitor_with(&options).unwrap();
    fill_in_halves(|| halves.pause());
    run_out();
    halves.end();
    record_free(DEVICE, STREAM, BASE + 384 * MIB, 64 * MIB);
    drop(memtrack_core::stop());
}

/// Nothing is printed without the option.
pub fn silent() {
    memtrack_core::start_monitor_with(&Options::new().without_host_heap()).unwrap();
    fill();
    run_out();
    println!("{}", who_holds(None).unwrap());
    drop(memtrack_core::stop());
}

/// Memory runs out a thousand times.
pub fn flood() {
    memtrack_core::start_monitor_with(&Options::new().without_host_heap().report_on_oom()).unwrap();
    fill();
    (0..1000).for_each(|_| run_out());
    drop(memtrack_core::stop());
}

/// Two snapshots are dumped.
pub fn dumps(path: &str) {
    memtrack_core::start_monitor_with(&Options::new().without_host_heap().report_on_oom()).unwrap();
    fill();
    memtrack_core::dump_snapshot(path).unwrap();
    record_segment_alloc(DEVICE, STREAM, BASE + 4 * 512 * MIB, 512 * MIB);
    weights(4);
    memtrack_core::dump_snapshot(path).unwrap();
    drop(memtrack_core::stop());
}

/// Prints the recording at the end.
pub fn end() {
    memtrack_core::start_monitor_with(&Options::new().without_host_heap()).unwrap();
    fill();
    print!("{}", memtrack_core::stop());
}

/// Allocates most of the heap.
#[inline(never)]
fn rows() -> Vec<Vec<u8>> {
    black_box((0..40).map(|_| vec![1_u8; 3 << 20]).collect())
}

/// The heap fails a request, and the program continues. With a limit on the address space, there is too little memory to print
/// more than a few lines.
pub fn heap(limit_mib: u64) {
    memtrack_core::start_monitor_with(&Options::new().exact().report_on_oom()).unwrap();
    let _service = scope::module("service");
    let _operator = scope::operator("load");
    let rows = rows();
    if limit_mib > 0 {
        // SAFETY: a system call with pointers to local variables.
        unsafe {
            let mut pages = 0;
            let text = std::fs::read_to_string("/proc/self/statm").unwrap();
            if let Some(size) = text.split(' ').next() {
                pages = size.parse::<u64>().unwrap();
            }
            let limit = pages * 4096 + limit_mib * MIB;
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0);
        }
    }
    let mut much: Vec<u8> = Vec::new();
    assert!(much.try_reserve_exact(1 << 46).is_err());
    // Make the heap fail a request again, on a thread whose stack is too small for symbolization.
    let small = std::thread::Builder::new().stack_size(64 << 10);
    let refused = || {
        let mut much: Vec<u8> = Vec::with_capacity(16);
        much.push(1);
        black_box(&much);
        assert!(much.try_reserve_exact(1 << 46).is_err());
    };
    small.spawn(refused).unwrap().join().unwrap();
    drop(rows);
    let recording = memtrack_core::stop();
    println!("{} events", recording.snapshot().events.len());
}

/// A device runs out of memory while stderr is closed, or is a pipe that nothing reads.
pub fn unread_stderr(how: &str) {
    // SAFETY: system calls with descriptors of this program.
    unsafe {
        if how == "closed" {
            libc::close(libc::STDERR_FILENO);
        } else {
            let mut pipe = [0; 2];
            assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
            libc::dup2(pipe[1], libc::STDERR_FILENO);
            if how == "broken" {
                libc::close(pipe[0]);
            } else {
                // Fills the pipe.
                libc::fcntl(libc::STDERR_FILENO, libc::F_SETFL, libc::O_NONBLOCK);
                while libc::write(libc::STDERR_FILENO, [0_u8; 4096].as_ptr().cast(), 4096) > 0 {}
                libc::fcntl(libc::STDERR_FILENO, libc::F_SETFL, 0);
            }
            libc::close(pipe[1]);
        }
    }
    device("");
    println!("lives on");
}

/// Memory runs out, and the program is killed at once.
pub fn until_killed(path: &str) {
    let options = Options::new().without_host_heap().report_on_oom().stream_to(path);
    let halves = Halves::begin();
    memtrack_core::start_monitor_with(&options).unwrap();
    fill_in_halves(|| halves.pause());
    run_out();
    halves.end();
    // SAFETY: sends a signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
}

/// Allocates blocks and frees every other one, so that no free piece is large enough for a last request.
#[inline(never)]
fn kept(allocator: &memtrack_core::allocator::CachingAllocator<memtrack_core::allocator::SimulatedMemory>) {
    let blocks: Vec<u64> =
        (0..6).map(|_| allocator.allocate(8 * MIB, DEVICE, STREAM).unwrap().address).collect();
    blocks.iter().step_by(2).for_each(|&block| allocator.free(block).unwrap());
    assert!(allocator.allocate(20 * MIB, DEVICE, STREAM).is_err());
}

/// The caching allocator runs out of device memory.
pub fn allocator() {
    use memtrack_core::allocator::{CachingAllocator, Settings, SimulatedMemory};
    memtrack_core::start_monitor_with(&Options::new().without_host_heap().report_on_oom()).unwrap();
    let memory = SimulatedMemory::new(0, 64 * MIB);
    let allocator = CachingAllocator::new([memory], &Settings::default()).unwrap();
    kept(&allocator);
    drop(memtrack_core::stop());
}
