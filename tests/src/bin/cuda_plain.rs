//! A program that uses the driver and does not link memtrack: `cuda_plain SCENARIO …`. The tests `run_*` of `cli` start it
//! under `memtrack run`.
#![allow(unsafe_code)]

#[path = "../cuda/client.rs"]
mod client;
#[path = "../cuda/ends.rs"]
mod ends;
#[path = "../cuda/heap.rs"]
mod heap;
#[path = "../cuda/starts.rs"]
mod starts;

use std::ffi::{CString, c_char};
use std::path::Path;
use std::process::Command;
use std::ptr::null;
use std::time::{Duration, Instant};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        // One of three blocks and pinned memory stay live.
        ["work"] => work(),
        ["exit", code] => {
            work();
            std::process::exit(code.parse().expect("a code"));
        }
        ["exit_from_a_thread"] => {
            work();
            let other = std::thread::spawn(|| std::process::exit(7));
            let _ = other.join();
        }
        ["signal", number, file] => {
            work();
            wait_for_file(file);
            // SAFETY: sends a signal to this process.
            unsafe { libc::raise(number.parse().expect("a number")) };
        }
        // A fault: a signal that no process sends.
        ["crash", file] => {
            work();
            wait_for_file(file);
            // SAFETY: unsound on purpose: no memory is mapped at this address, and the fault must end the process.
            unsafe { std::ptr::without_provenance_mut::<u8>(16).write_volatile(1) };
        }
        ["own_handler", "before"] => {
            ends::handle_the_signal();
            work();
            ends::wait_for_the_signal();
        }
        ["own_handler", "after"] => {
            work();
            ends::handle_the_signal();
            ends::wait_for_the_signal();
        }
        ["free_at_exit"] => ends::free_at_exit(work),
        ["fork_and_be_killed", count] => {
            work();
            let count = count.parse().expect("a count");
            // SAFETY: as in `fork`.
            match unsafe { libc::fork() } {
                0 => ends::be_killed_at_work(count),
                child => assert_eq!(status_of(child) & 0x7f, libc::SIGKILL),
            }
        }
        ["wait_for_a_signal"] => {
            work();
            println!("ready");
            std::thread::sleep(HANG);
        }
        ["work_until", file] => {
            work();
            println!("ready");
            wait_for_file(file);
        }
        ["pools"] => pools(),
        // The heap, with and without the driver.
        ["heap"] => heap::work(),
        ["heap_and_work"] => {
            heap::work();
            work();
        }
        // More events than shared memory has room for, while nothing reads it.
        ["burst_and_work", begin] => {
            heap::work();
            println!("ready");
            wait_for_file(begin);
            heap::burst();
            work();
            println!("done");
        }
        ["heap_and_fork"] => {
            heap::work();
            // SAFETY: the child uses the heap, and exits.
            match unsafe { libc::fork() } {
                0 => {
                    let kept = vec![1_u8; 33_000_000];
                    std::hint::black_box(&kept);
                    std::process::exit(0);
                }
                child => wait_for(child),
            }
        }
        ["heap_block", bytes] => {
            std::mem::forget(vec![1_u8; bytes.parse().expect("a size")]);
        }
        // Starts this program again to allocate a block on the heap.
        ["heap_and_start", way, bytes] => {
            let program = std::env::current_exe().expect("this program's path");
            starts::start(way, program.to_str().expect("a name"), &["heap_block", bytes]);
        }
        ["start", way, program] => starts::start(way, program, &[]),
        ["oom"] => {
            work();
            assert_eq!(client::alloc(1 << 40), Err(client::OUT_OF_MEMORY));
        }
        // The heap fails a request and sets `errno`.
        ["heap_refused"] => {
            let kept = vec![1_u8; 33_000_000];
            // SAFETY: a request that no heap can satisfy, and this thread's `errno`.
            let (block, errno) = unsafe {
                *libc::__errno_location() = 0;
                let block = libc::malloc(std::hint::black_box(1 << 46));
                (block, *libc::__errno_location())
            };
            assert!(block.is_null() && errno == libc::ENOMEM, "{errno}");
            std::hint::black_box(&kept);
        }
        // Runs out of memory repeatedly until the file exists, and prints the number of times.
        ["oom_until", file] => {
            work();
            let mut times = 0;
            let begun = Instant::now();
            while !Path::new(file).exists() && begun.elapsed() < HANG {
                assert_eq!(client::alloc(1 << 40), Err(client::OUT_OF_MEMORY));
                times += 1;
                // There is no pause between the first attempts.
                std::thread::sleep(Duration::from_millis(if times < 20 { 0 } else { 20 }));
            }
            println!("{times}");
        }
        // The driver is used, but no memory is allocated.
        ["nothing"] => {
            client::begin(0);
        }
        ["fork"] => fork(),
        ["fork_many", count] => {
            work();
            for _ in 0..count.parse().expect("a count") {
                // SAFETY: as in `fork`.
                match unsafe { libc::fork() } {
                    0 => {
                        client::alloc(5 << 20).expect("memory");
                        std::process::exit(0);
                    }
                    child => wait_for(child),
                }
            }
        }
        ["exec"] => {
            work();
            let failed = std::os::unix::process::CommandExt::exec(
                Command::new(std::env::current_exe().expect("this program's path")).arg("work"),
            );
            panic!("{failed}");
        }
        // Calls `exec` through a variadic function, with more arguments than fit into registers.
        ["exec_list"] => {
            work();
            let path = own_path();
            let words = ["alloc", "1", "2", "3", "4", "5", "6", "7", "8"]
                .map(|word| CString::new(word).expect("a word"));
            let w = words.each_ref().map(|word| word.as_ptr());
            let end: *const c_char = null();
            // SAFETY: C strings, terminated by null.
            unsafe {
                libc::execl(
                    path.as_ptr(),
                    path.as_ptr(),
                    w[0],
                    w[1],
                    w[2],
                    w[3],
                    w[4],
                    w[5],
                    w[6],
                    w[7],
                    w[8],
                    end,
                );
            }
            panic!("{}", std::io::Error::last_os_error());
        }
        ["alloc", ref sizes @ ..] => {
            client::begin(0);
            for size in sizes {
                client::alloc(size.parse().expect("a size")).expect("memory");
            }
        }
        ["exec_fails"] => {
            work();
            let failed = std::os::unix::process::CommandExt::exec(&mut Command::new("/no/such/program"));
            assert_eq!(failed.kind(), std::io::ErrorKind::NotFound);
            client::alloc(4 << 20).expect("memory");
        }
        ["end_at_once", code] => {
            work();
            // SAFETY: ends the process.
            unsafe { libc::_exit(code.parse().expect("a code")) };
        }
        ["vfork"] => vfork(),
        ["fork_and_end_at_once"] => {
            // SAFETY: as in `fork`.
            match unsafe { libc::fork() } {
                0 => {
                    work();
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(0) };
                }
                child => wait_for(child),
            }
            work();
            // SAFETY: as in `fork`.
            match unsafe { libc::fork() } {
                0 => {
                    client::alloc(5 << 20).expect("memory");
                    // SAFETY: ends the process.
                    unsafe { libc::_exit(0) };
                }
                child => wait_for(child),
            }
        }
        ["spawn"] => {
            work();
            let program = std::env::current_exe().expect("this program's path");
            let status = Command::new(program).args(["exit", "3"]).status().expect("it can be started");
            assert_eq!(status.code(), Some(3));
        }
        _ => panic!("no such scenario: {arguments:?}"),
    }
}

/// The maximum time for which the program waits for the test, which normally ends it long before. The value equals
/// `memtrack_tests::time::HANG`; this program does not link that crate.
const HANG: Duration = Duration::from_secs(15 * 60);

/// Waits until the test has created a file.
fn wait_for_file(file: &str) {
    let begun = Instant::now();
    while !Path::new(file).exists() && begun.elapsed() < HANG {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn work() {
    client::begin(0);
    let blocks: Vec<u64> = (1..=3).map(|count| client::alloc(count << 20).expect("memory")).collect();
    client::host_alloc(1 << 16).expect("pinned memory");
    client::free(blocks[0]).expect("the block is live");
    client::free(blocks[2]).expect("the block is live");
}

/// Ends with 4 of a pool's 24 MiB in use, and 3 MiB outside the pool.
fn pools() {
    client::begin(0);
    client::alloc(3 << 20).expect("memory");
    let stream = client::stream();
    client::alloc_async(4 << 20, stream).expect("memory");
    let large = client::alloc_async(20 << 20, stream).expect("memory");
    client::free_async(large, stream).expect("the block is live");
    // When a context ends, memtrack always queries the driver's memory.
    client::end_of_a_context();
}

fn own_path() -> CString {
    let path = std::env::current_exe().expect("this program's path");
    CString::new(path.into_os_string().into_encoded_bytes()).expect("a path")
}

/// Starts a program by `vfork`. The child shares the parent's memory until `exec`, which must not end the parent's recording.
#[allow(deprecated)]
fn vfork() {
    work();
    let (path, word) = (own_path(), c"work");
    let arguments = [path.as_ptr(), word.as_ptr(), null()];
    // SAFETY: the child only calls `execv` or `_exit`.
    match unsafe { libc::vfork() } {
        -1 => panic!("no vfork"),
        // SAFETY: C strings, terminated by null.
        0 => unsafe {
            libc::execv(path.as_ptr(), arguments.as_ptr());
            libc::_exit(1);
        },
        child => wait_for(child),
    }
}

fn wait_for(child: i32) {
    assert_eq!(status_of(child), 0);
}

fn status_of(child: i32) -> i32 {
    let mut status = 0;
    // SAFETY: a child of this process, and a pointer to a local variable.
    unsafe { libc::waitpid(child, &mut status, 0) };
    status
}

fn fork() {
    work();
    // SAFETY: the child makes driver calls that the mock allows (a real driver would refuse them), and exits.
    match unsafe { libc::fork() } {
        -1 => panic!("no fork"),
        0 => {
            client::alloc(5 << 20).expect("memory");
            std::process::exit(0);
        }
        child => wait_for(child),
    }
    // A child that does nothing leaves no file.
    // SAFETY: as above.
    match unsafe { libc::fork() } {
        0 => std::process::exit(0),
        child => wait_for(child),
    }
}
