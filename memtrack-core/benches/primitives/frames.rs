//! The measured stacks: about forty fixed frames, followed by one to ten frames that change from call to call. The
//! stacks go through sixteen functions with frames of different sizes.

use memtrack_core::event::DeviceId;
use memtrack_core::operators::{Dtype, ReportTensors, TensorInfo, TensorReader};
use memtrack_core::track_memory;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

const FIXED: usize = 58;

macro_rules! steps {
    ($($name:ident $words:literal),*) => {
        $(#[inline(never)]
        fn $name(depth: usize, path: u64, leaf: &mut dyn FnMut(usize)) -> usize {
            let room = black_box([path; $words]);
            let result = step(depth, path, leaf);
            black_box(&room);
            result + 1
        })*

        static STEPS: [fn(usize, u64, &mut dyn FnMut(usize)) -> usize; 16] = [$($name),*];
    };
}

steps!(
    a 1, b 3, c 5, d 7, e 9, f 11, g 13, h 15, i 17, j 19, k 21, l 23, m 25, n 27, o 29, p 31
);

#[inline(never)]
fn step(depth: usize, path: u64, leaf: &mut dyn FnMut(usize)) -> usize {
    if depth == 0 {
        leaf(path as usize);
        return 0;
    }
    STEPS[(path & 15) as usize](depth - 1, path.rotate_right(4), leaf)
}

/// Calls `leaf` under stacks that share their outer frames but have a different inner part each time. Returns the
/// number of calls.
pub fn call_under_varying_stacks(leaf: &mut dyn FnMut(usize)) -> usize {
    static SEED: AtomicU64 = AtomicU64::new(0x1234_5678_9abc_def0);
    let seed = SEED.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
    let mut calls = 0;
    call_under_fixed_stack(
        FIXED / 2,
        &mut |leaf_seed: usize| {
            for inner in 1..=10_usize {
                let mix = (leaf_seed as u64 ^ inner as u64).wrapping_mul(0xD6E8_FEB8_6659_FD93) % 64;
                step(inner.div_ceil(2), mix.wrapping_mul(0x0123_4567_89ab_cdef), leaf);
                calls += 1;
            }
        },
        seed,
    );
    calls
}

fn call_under_fixed_stack(depth: usize, inner: &mut dyn FnMut(usize), seed: u64) {
    // These are the same functions every time, so only the inner frames change.
    let mut run = |_| inner(seed as usize);
    step(depth, 0x0fed_cba9_8765_4321, &mut run);
}

/// Returns the average number of frames per stack, as counted by the platform's unwinder.
pub fn average_frames() -> f64 {
    let (mut frames, mut stacks) = (0, 0);
    call_under_varying_stacks(&mut |_| {
        backtrace::trace(|_| {
            frames += 1;
            true
        });
        stacks += 1;
    });
    f64::from(frames) / f64::from(stacks)
}

thread_local!(static PINNED: Cell<usize> = const { Cell::new(0) });

/// Returns the processor that the calling thread is pinned to.
pub fn pinned_processor() -> usize {
    PINNED.get()
}

/// Pins the calling thread to a processor.
#[allow(unsafe_code)]
pub fn pin(processor: usize) {
    PINNED.set(processor);
    // SAFETY: an all-zero set is valid, CPU_SET stays within it, and the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Allocates and frees a block.
#[allow(unsafe_code)]
#[inline(always)]
pub fn alloc_free(allocator: &impl GlobalAlloc, layout: Layout) {
    // SAFETY: the layout is not empty, and the block is freed with the same layout.
    unsafe {
        let block = allocator.alloc(layout);
        allocator.dealloc(black_box(block), layout);
    }
}

/// Does nothing, but is annotated as an operator.
#[track_memory]
#[inline(always)]
pub fn operator(i: usize) -> usize {
    black_box(i)
}

/// A four-dimensional tensor with non-contiguous strides, which needs the largest record.
pub struct Tensor {
    id: u64,
    sizes: [usize; 4],
    strides: [usize; 4],
}

impl Tensor {
    pub fn new(id: usize) -> Self {
        Self { id: 1_000_000 + id as u64, sizes: [16, 8, 128, 64], strides: [65536, 64, 512, 1] }
    }
}

impl ReportTensors for Tensor {
    fn report(&self, to: &mut TensorReader<'_>) {
        let info = TensorInfo::new(self.id, DeviceId(0), Dtype::Bf16, &self.sizes[..]);
        let address = 0x7f00_0000_0000 + self.id * 512;
        to.tensor(&info.strides(&self.strides[..]).storage(address, 2 << 20));
    }
}

#[inline(never)]
#[track_memory]
pub fn tensors(one: &Tensor, two: &Tensor, three: &Tensor) -> Tensor {
    black_box((one, two));
    Tensor::new(three.id as usize)
}

/// Does the same as [`tensors`] without the attribute.
#[inline(never)]
pub fn plain_tensors(one: &Tensor, two: &Tensor, three: &Tensor) -> Tensor {
    black_box((one, two));
    Tensor::new(three.id as usize)
}
