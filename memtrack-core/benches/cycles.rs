//! The cost of registrations and scans:
//!
//! `cargo bench -p memtrack-core --features cycles --bench cycles`
//!
//! Times are the thread's processor time. Registrations are measured per value, with memtrack both off and on, for
//! values that stay live and for values that are dropped immediately. Scans are measured with 10 thousand to a million
//! values, both live and unreachable, most of which have ten pointers each.

#![allow(unsafe_code, reason = "the clock of the thread")]

use memtrack_core::cycles::{RegisterOptions, Tracked, disable, enable, enable_with, find, register};
use memtrack_core::references::{References, Visitor};
use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// The number of samples of each time. The fastest and the median are printed.
const RUNS: usize = 7;

/// Returns the processor time that this thread has used so far, in seconds.
fn cpu_seconds() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out-pointer is a local variable; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Returns the fastest and the median of the times that `run` returns, in seconds.
fn measure(mut run: impl FnMut() -> f64) -> (f64, f64) {
    run();
    let mut seconds: Vec<f64> = (0..RUNS).map(|_| run()).collect();
    seconds.sort_by(f64::total_cmp);
    (seconds[0], seconds[RUNS / 2])
}

/// A value that is used by only one thread.
#[derive(Default)]
struct LocalNode {
    next: RefCell<Vec<Rc<LocalNode>>>,
}

impl References for LocalNode {
    fn references(&self, to: &mut Visitor<'_>) {
        to.field("next", &self.next);
    }
}

/// A value that is shared between threads.
#[derive(Default)]
struct SharedNode {
    next: Mutex<Vec<Arc<SharedNode>>>,
}

impl References for SharedNode {
    fn references(&self, to: &mut Visitor<'_>) {
        to.field("next", &self.next);
    }
}

/// Prints the time that `each` takes per value, for values that exist before and after the call.
fn print_time_per_value<T>(name: &str, options: RegisterOptions, make: impl Fn() -> T, each: impl Fn(&T)) {
    const VALUES: usize = 200_000;
    let (fastest, median) = measure(|| {
        disable();
        enable_with(options);
        let values: Vec<T> = (0..VALUES).map(|_| make()).collect();
        let start = cpu_seconds();
        values.iter().for_each(&each);
        (cpu_seconds() - start) / VALUES as f64
    });
    println!("{name}: {:.1} ns (median {:.1} ns)", fastest * 1e9, median * 1e9);
}

/// Prints the time that `run` takes to create a value and drop it.
fn print_time_per_life(name: &str, on: bool, run: impl Fn()) {
    const VALUES: usize = 1_000_000;
    let (fastest, median) = measure(|| {
        disable();
        if on {
            enable();
        }
        let start = cpu_seconds();
        (0..VALUES).for_each(|_| run());
        (cpu_seconds() - start) / VALUES as f64
    });
    println!("{name}: {:.1} ns (median {:.1} ns)", fastest * 1e9, median * 1e9);
}

fn measure_registrations() {
    let (plain, stacks) = (RegisterOptions::new(), RegisterOptions::new().stacks(true));
    print_time_per_value(
        "register an Rc",
        plain,
        || Rc::new(LocalNode::default()),
        |value| register(black_box(value)),
    );
    print_time_per_value(
        "register an Arc",
        plain,
        || Arc::new(SharedNode::default()),
        |value| register(black_box(value)),
    );
    print_time_per_value(
        "register an Rc, with its stack",
        stacks,
        || Rc::new(LocalNode::default()),
        |value| {
            register(black_box(value));
        },
    );
    let off = |name: &str, run: &dyn Fn()| {
        disable();
        let (fastest, _) = measure(|| {
            let start = cpu_seconds();
            (0..10_000_000).for_each(|_| run());
            (cpu_seconds() - start) / 1e7
        });
        println!("{name}: {:.2} ns", fastest * 1e9);
    };
    let value = Rc::new(LocalNode::default());
    off("register an Rc, off", &|| register(black_box(&value)));
    print_time_per_life("an Rc's life", false, || drop(black_box(Rc::new(LocalNode::default()))));
    print_time_per_life("an Rc's life, registered", true, || {
        let value = Rc::new(LocalNode::default());
        register(&value);
        drop(black_box(value));
    });
    print_time_per_life("an Arc's life, registered", true, || {
        let value = Arc::new(SharedNode::default());
        register(&value);
        drop(black_box(value));
    });
    let value = Arc::new(SharedNode::default());
    print_time_per_life("a tracked handle's life", true, || {
        drop(black_box(Tracked::new(Arc::clone(&value))))
    });
}

/// Defines a function that scans `values` values, each with `pointers` pointers to others.
macro_rules! scans {
    ($name:literal, $pointer:ident, $value:ident, $change:expr) => {
        fn $pointer(values: usize, pointers: usize, live: bool) {
            disable();
            enable();
            let change: fn(&$value, &dyn Fn(&mut Vec<std_pointer::$pointer<$value>>)) = $change;
            let all: Vec<std_pointer::$pointer<$value>> =
                (0..values).map(|_| std_pointer::$pointer::new($value::default())).collect();
            all.iter().for_each(register);
            for (number, value) in all.iter().enumerate() {
                for pointer in 0..pointers {
                    // Scatter the targets, so that successive look-ups are seldom near each other.
                    let to = &all[(number * 7919 + pointer * 104_729 + 1) % values];
                    change(value, &|next| next.push(std_pointer::$pointer::clone(to)));
                }
            }
            let weak: Vec<_> = all.iter().map(std_pointer::$pointer::downgrade).collect();
            let kept = live.then_some(all);
            let mut looks = 0;
            let mut run = || {
                let start = cpu_seconds();
                let report = find().expect("no other scan is running");
                let seconds = cpu_seconds() - start;
                assert_eq!(report.pointers, (values * pointers) as u64);
                assert_eq!(report.unreachable, if kept.is_some() { 0 } else { values as u64 });
                looks = report.visits;
                seconds
            };
            let (fastest, median) = measure(&mut run);
            println!(
                "{} {}: {values} values with {} pointers: {:.1} ms (median {:.1} ms), {:.0} ns each, {looks} looks",
                if live { "live" } else { "unreachable" },
                $name,
                values * pointers,
                fastest * 1e3,
                median * 1e3,
                fastest * 1e9 / (values * (1 + pointers)) as f64,
            );
            // Free the cycles. Take all pointers out first, so that no destructor drops another value.
            let pointers = RefCell::new(Vec::new());
            for value in weak.iter().filter_map(|weak| weak.upgrade()) {
                change(&value, &|next| pointers.borrow_mut().push(std::mem::take(next)));
            }
        }
    };
}

mod std_pointer {
    pub use std::rc::Rc;
    pub use std::sync::Arc;
}

#[allow(non_snake_case, reason = "named after the pointers")]
mod scan {
    use super::*;
    scans!("Rc", Rc, LocalNode, |value, change| change(&mut value.next.borrow_mut()));
    scans!("Arc", Arc, SharedNode, |value, change| change(&mut value.next.lock().expect("no thread panics")));
    pub fn measure_all() {
        for (values, pointers) in [(10_000, 10), (100_000, 10), (1_000_000, 10), (1_000_000, 1)] {
            Rc(values, pointers, true);
            Arc(values, pointers, true);
        }
        for (values, pointers) in [(10_000, 10), (100_000, 10), (1_000_000, 1)] {
            Rc(values, pointers, false);
            Arc(values, pointers, false);
        }
    }
}

fn main() {
    measure_registrations();
    scan::measure_all();
}
