//! Tests that reusing the previous stack is not observable. Whatever a thread did before, a walk returns the same
//! addresses as the `backtrace` crate, which has no state.

use super::{Capture, CaptureMethod, Registers, StackBounds, prepare};
use std::hint::black_box;

/// The buffers for captures on one thread.
struct Captures(Box<Capture>, StackBounds);

impl Captures {
    #[inline(always)]
    fn take_by(&mut self, method: CaptureMethod) -> Option<&[u64]> {
        self.0.take_by(method, &self.1)
    }
}

/// A pseudo-random sequence with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Captures the stack from here with both methods and compares the results.
#[inline(never)]
fn compare(capture: &mut Captures, method: CaptureMethod, compared: &mut u64) {
    let Some(taken) = capture.take_by(method).map(<[u64]>::to_vec) else {
        assert_eq!(method, CaptureMethod::FramePointers, "the chain may break, the unwinder must not");
        return;
    };
    let truth = capture.take_by(CaptureMethod::Backtrace).unwrap().to_vec();
    // The innermost frames are this function's calls to `take_by`, which differ, and the functions called there.
    let here = |stack: &[u64]| {
        let callers = truth.iter().rposition(|address| stack.contains(address));
        callers.map_or(0, |last| stack.iter().rposition(|address| *address == truth[last]).unwrap() + 1)
    };
    let common = here(&taken);
    assert!(common + 4 >= taken.len(), "the innermost {} frames are not the same", taken.len() - common);
    assert!(truth.len() < 256, "so deep that the oracle is cut");
    // Only one of the methods lists glibc's entry code.
    let from = truth.iter().position(|address| *address == taken[0]).expect("the outermost frame is known");
    // The chain of frame pointers may end as many frames earlier as `frame_pointers` allows.
    let allowed = if method == CaptureMethod::FramePointers { 4 } else { 1 };
    assert!(from <= allowed, "{from} outermost frames are missing");
    assert_eq!(taken[..common], truth[from..from + common]);
    *compared += 1;
}

type Step = fn(&mut Random, u64, &mut Captures, CaptureMethod, &mut u64);

/// Returns one of several functions whose frames differ in size, alignment and use of registers.
fn step(random: &mut Random) -> Step {
    [plain, large, aligned, wide, by_two_calls, through_a_closure][random.below(6) as usize]
}

#[inline(never)]
fn deeper(
    random: &mut Random,
    depth: u64,
    capture: &mut Captures,
    method: CaptureMethod,
    compared: &mut u64,
) {
    if depth == 0 {
        return compare(capture, method, compared);
    }
    step(random)(random, depth - 1, capture, method, compared);
    if random.below(8) == 0 {
        compare(capture, method, compared);
    }
    // Branch again from here. The outer frames stay the same, and the inner ones change.
    if random.below(6) == 0 {
        step(random)(random, random_depth(depth), capture, method, compared);
    }
}

fn random_depth(depth: u64) -> u64 {
    depth / 2
}

#[inline(never)]
fn plain(random: &mut Random, depth: u64, capture: &mut Captures, method: CaptureMethod, compared: &mut u64) {
    deeper(random, depth, capture, method, compared);
    black_box(depth);
}

#[inline(never)]
fn large(random: &mut Random, depth: u64, capture: &mut Captures, method: CaptureMethod, compared: &mut u64) {
    let mut room = [depth; 40];
    deeper(random, depth, capture, method, compared);
    black_box(&mut room);
}

#[repr(align(64))]
struct Aligned(#[expect(dead_code, reason = "room on the stack")] [u64; 8]);

/// Calls the next function from a frame whose stack pointer is aligned, so that its distance from the caller's varies.
#[inline(never)]
fn aligned(
    random: &mut Random,
    depth: u64,
    capture: &mut Captures,
    method: CaptureMethod,
    compared: &mut u64,
) {
    let mut room = Aligned([depth; 8]);
    black_box(&mut room);
    deeper(random, depth, capture, method, compared);
    black_box(&mut room);
}

#[repr(align(256))]
struct Wide(#[expect(dead_code, reason = "room on the stack")] [u64; 32]);

#[inline(never)]
fn wide(random: &mut Random, depth: u64, capture: &mut Captures, method: CaptureMethod, compared: &mut u64) {
    let mut room = Wide([depth; 32]);
    black_box(&mut room);
    deeper(random, depth, capture, method, compared);
    black_box(&mut room);
}

/// Calls the next function from one of two call sites, so that stacks differ in one return address far from the end.
#[inline(never)]
fn by_two_calls(
    random: &mut Random,
    depth: u64,
    capture: &mut Captures,
    method: CaptureMethod,
    compared: &mut u64,
) {
    if random.below(2) == 0 {
        deeper(random, depth, capture, method, compared);
        black_box(1);
    } else {
        deeper(random, depth, capture, method, compared);
        black_box(2);
    }
}

#[inline(never)]
fn through_a_closure(
    random: &mut Random,
    depth: u64,
    capture: &mut Captures,
    method: CaptureMethod,
    compared: &mut u64,
) {
    let extra = random.below(100);
    let mut call: Box<dyn FnMut()> = Box::new(|| {
        black_box(extra);
        deeper(random, depth, capture, method, compared);
    });
    call();
}

fn on_some_threads(method: CaptureMethod) -> u64 {
    prepare();
    let threads: Vec<_> = (0..3)
        .map(|seed| {
            std::thread::spawn(move || {
                let mut capture = Captures(Capture::new(), StackBounds::of_this_thread());
                let (mut random, mut compared) = (Random(seed), 0);
                while compared < 2000 {
                    let depth = random.below(45);
                    deeper(&mut random, depth, &mut capture, method, &mut compared);
                    if method == CaptureMethod::FramePointers && compared == 0 {
                        break;
                    }
                }
                compared
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).sum()
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_unwinder_with_reuse_agrees_with_backtrace() {
    assert!(on_some_threads(CaptureMethod::Unwinder) >= 6000);
}

/// Compares only if the program has frame pointers, because otherwise the chain ends early and there is nothing to
/// compare.
#[cfg(target_arch = "x86_64")]
#[test]
fn the_chain_of_frame_pointers_with_reuse_agrees_with_backtrace() {
    if prepare() == CaptureMethod::FramePointers {
        assert!(on_some_threads(CaptureMethod::FramePointers) >= 3000);
    }
}

/// As in a hook whose thread has no room left on its stack, the registers are read here and the walk runs on another
/// stack.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_stack_can_be_taken_from_another_stack() {
    prepare();
    let mut captures = Captures(Capture::new(), StackBounds::of_this_thread());
    let truth = captures.take_by(CaptureMethod::Backtrace).unwrap().to_vec();
    let registers = Registers::here();
    let Captures(capture, bounds) = &mut captures;
    let taken = crate::stack::separate_stack::run(|| capture.take(&registers, bounds).to_vec());
    let common = taken.iter().filter(|address| truth.contains(address)).count();
    assert!(common + 1 >= taken.len() && common > 3, "{common} of {} frames", taken.len());
}

/// The system does not know about coroutines' stacks. In this test, a block of memory serves as one.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_foreign_stack_is_taken_without_reading_beyond_it() {
    #[inline(never)]
    fn inner(captures: &mut Captures) -> Vec<u64> {
        let registers = Registers::here();
        assert!(!captures.1.contain(registers.stack_pointer()), "on a stack of its own");
        let stack = captures.0.take(&registers, &captures.1).to_vec();
        black_box(stack)
    }
    prepare();
    let mut captures = Captures(Capture::new(), StackBounds::of_this_thread());
    let stack = crate::stack::separate_stack::run(|| inner(&mut captures));
    assert!(!stack.is_empty(), "at least the caller's frame");
}
