//! The longer of the ways in which `cuda_plain` can end: after a signal that it handles, with exit handlers that free memory,
//! and with a child that is killed.

use crate::client;
use std::io::Write;
use std::sync::Barrier;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

static SIGNALS: AtomicI32 = AtomicI32::new(0);

extern "C" fn count(_signal: i32) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

/// Installs a handler that counts `SIGUSR2` signals.
pub fn handle_the_signal() {
    // SAFETY: the handler adds to an atomic and does nothing else.
    unsafe { libc::signal(libc::SIGUSR2, count as *const () as usize) };
}

/// Prints `ready`, waits for the signal, and prints `handled`.
pub fn wait_for_the_signal() {
    let print = |text: &str| {
        println!("{text}");
        std::io::stdout().flush().expect("stdout can be written");
    };
    print("ready");
    let begun = Instant::now();
    while SIGNALS.load(Ordering::Relaxed) == 0 {
        assert!(begun.elapsed() < crate::HANG, "no signal came");
        thread::sleep(Duration::from_millis(10));
    }
    print("handled");
}

/// The addresses of the blocks that the exit handlers free.
static LEFT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

extern "C" fn free_the_first() {
    client::free(LEFT[0].load(Ordering::Relaxed)).expect("the block is live");
}

extern "C" fn free_the_second() {
    client::free(LEFT[1].load(Ordering::Relaxed)).expect("the block is live");
}

/// Runs `work`, and allocates two blocks that exit handlers free: one handler is registered before the driver is first
/// used, and the other afterwards.
pub fn free_at_exit(work: fn()) {
    // SAFETY: the handlers are plain functions.
    unsafe { libc::atexit(free_the_first) };
    work();
    for left in &LEFT {
        left.store(client::alloc(8 << 20).expect("memory"), Ordering::Relaxed);
    }
    // SAFETY: the handler is a plain function.
    unsafe { libc::atexit(free_the_second) };
}

/// Allocates `count` blocks on each of two threads, and is killed while both still run.
pub fn be_killed_at_work(count: usize) {
    let done = Barrier::new(3);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                client::begin(0);
                for _ in 0..count {
                    client::alloc(512).expect("memory");
                }
                done.wait();
                loop {
                    thread::park();
                }
            });
        }
        done.wait();
        // SAFETY: sends a signal to this process.
        unsafe { libc::raise(libc::SIGKILL) };
    });
}
