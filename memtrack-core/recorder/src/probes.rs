//! Static probes (USDT) that profilers outside the program attach to, such as OpenTelemetry's eBPF profiler and bpftrace:
//!
//! | probe | fires |
//! |---|---|
//! | `otel_memory:alloc(ptr, size, weighted_bytes)` | when a block of the host heap was allocated and recorded. `weighted_bytes` are the bytes that it represents: its size, or more if it was sampled |
//! | `otel_memory:free(ptr)` | when a recorded block of the host heap is about to be freed |
//! | `memtrack:device_alloc(device, ptr, size, stream)` | when memory of a device, or pinned host memory (device 65,534), was allocated and recorded |
//! | `memtrack:device_free(device, ptr)` | when such memory is freed, or its free is requested while other streams may still use it |
//!
//! The first two are OpenTelemetry's draft contract for memory probes, in which blocks that are only counted have no probe.
//! They fire while a session records the heap, and never inside memtrack's own work. The last two follow the same rules for
//! devices. A free fires before another thread can receive the address, and an allocation before its caller has it, so a
//! consumer that keeps a table by address needs no other order. If a free or a `realloc` fails, the block's allocation fires
//! again. The free of a block that was not recorded individually (it is older than the session, or the live table was full)
//! fires too if the block is so large that it would be recorded now: ignore addresses that are not in the table.
//!
//! Each probe is a `nop` behind a semaphore, a word in the program's memory that a tool raises while it is attached. While no
//! tool is attached, all four together cost one load and one branch per recorded event; blocks that are only counted do not come
//! here.
//!
//! **Why no crate, and no feature?** The crate `probe` has the semaphore and the `nop` in one macro. Expanded where the check
//! must be, in functions that are inlined into many others, it leaves a note for every copy, also for those that the linker
//! discards: 58 places in a test program, most of them at invalid addresses, to which bpftrace took six seconds to attach. In
//! a function of its own, which would have one place, it costs a call per event. The crate `usdt` has no semaphores on Linux.
//! Without a dependency there is no reason for a feature: what a profiler finds does not depend on how the program was built.
//!
//! **Why one word of four semaphores, checked where the event is written?** A check where a block is allocated or freed needs
//! its address, size and flags after it, and calls a function if a tool is attached. Keeping them in registers or memory for
//! that call delayed every event by 5 to 9 ns, with no tool attached. Where the event is written all of it is at hand, and a
//! call that happens rarely is there already.
#![allow(unsafe_code)]

use crate::settings;
use memtrack_model::event::{Action, DeviceId, DeviceKind, Event, EventFlags, interval_of_class};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// The probes' semaphores, 16 bits each: the number of tools that are attached. Tools change them from outside the program.
#[cfg_attr(target_os = "linux", unsafe(link_section = ".probes"))]
static SEMAPHORES: AtomicU64 = AtomicU64::new(0);

/// Describes an argument in a note: 8 bytes in a register, whose name has a prefix on x86.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
macro_rules! argument {
    ($value:ident) => {
        "8@%{}"
    };
}

#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
macro_rules! argument {
    ($value:ident) => {
        "8@{}"
    };
}

/// Places a probe: a `nop`, and a note in the format of SystemTap's `<sys/sdt.h>` with the addresses of the `nop`, of the
/// section by which tools detect that the file was relocated, and of the semaphore (at `$offset` in [`SEMAPHORES`]), the names,
/// and where the arguments are.
#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_endian = "little"
))]
macro_rules! place {
    ($offset:literal, $provider:literal, $name:literal, $first:ident $(, $other:ident)*) => {
        // SAFETY: the only instruction is a `nop`. A tool replaces it by a trap that it handles, and restores all registers.
        unsafe {
            std::arch::asm!(
                "990: nop",
                ".pushsection .note.stapsdt, \"?\", \"note\"",
                ".balign 4",
                ".4byte 992f - 991f, 994f - 993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b, _.stapsdt.base, {semaphores} + {offset}",
                concat!(".asciz \"", $provider, "\", \"", $name, "\""),
                concat!(".asciz \"", argument!($first) $(, " ", argument!($other))*, "\""),
                "994: .balign 4",
                ".popsection",
                ".ifndef _.stapsdt.base",
                ".pushsection .stapsdt.base, \"aGR\", \"progbits\", .stapsdt.base, comdat",
                ".weak _.stapsdt.base",
                ".hidden _.stapsdt.base",
                "_.stapsdt.base: .space 1",
                ".size _.stapsdt.base, 1",
                ".popsection",
                ".endif",
                in(reg) $first,
                $(in(reg) $other,)*
                semaphores = sym SEMAPHORES,
                offset = const $offset,
                options(readonly, nostack, preserves_flags)
            )
        }
    };
}

/// Places nothing: the notes' format is known for the platforms above only.
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_endian = "little"
)))]
macro_rules! place {
    ($offset:literal, $provider:literal, $name:literal, $($value:ident),+) => {{
        let _ = ($($value),+);
    }};
}

/// Returns whether a tool is attached to any probe. If so, the event that is being written must go through [`fire`].
#[inline(always)]
pub(crate) fn are_watched() -> bool {
    SEMAPHORES.load(Ordering::Relaxed) != 0
}

/// Fires the probe of an event, if it has one. `block_bytes` are the bytes that each sampled block counts for in addition to
/// its size.
pub(crate) fn fire(event: &Event, block_bytes: u64) {
    let Event { device, address, size_bytes, flags, .. } = *event;
    match (device.kind(), event.action) {
        // The contract has probes of their own for mapped memory, which profilers do not consume yet.
        (DeviceKind::Mapped, _) => {}
        (DeviceKind::Host, Action::Alloc) => {
            host_alloc(address, size_bytes, weighted_bytes(size_bytes, flags, block_bytes));
        }
        (_, Action::Alloc) => device_alloc(u64::from(device.0), address, size_bytes, event.stream.0),
        // The driver has freed such memory already: its probe fired before (`freeing`).
        (_, Action::Free) if flags.contains(EventFlags::WHOLE_SEGMENT) => {}
        (DeviceKind::Host, Action::Free) if FREE_HAS_FIRED.take() => {}
        (_, Action::Free | Action::FreeRequested) => freeing(device, address),
        _ => {}
    }
}

thread_local! {
    /// Whether the probe has fired for the block of the host heap that the thread is reallocating.
    static FREE_HAS_FIRED: Cell<bool> = const { Cell::new(false) };
}

/// Fires the probe for a block of the host heap that may move, if a tool is attached. The event of the free is written after
/// the block has moved, when another thread may have received the address already, so the probe cannot wait for it.
#[inline(always)]
pub(crate) fn reallocating(address: u64) {
    if are_watched() {
        FREE_HAS_FIRED.set(true);
        host_free(address);
    }
}

/// Ends what [`reallocating`] began, whether or not the event of the free was written.
#[inline(always)]
pub(crate) fn reallocated() {
    if are_watched() {
        FREE_HAS_FIRED.set(false);
    }
}

/// Fires the probe for a block that is about to be freed, if a tool is attached to any probe.
#[inline(always)]
pub(crate) fn freeing_if_watched(device: DeviceId, address: u64) {
    if are_watched() {
        freeing(device, address);
    }
}

/// Fires the probe for a block that is about to be freed.
fn freeing(device: DeviceId, address: u64) {
    match device.is_host() {
        true => host_free(address),
        false => device_free(u64::from(device.0), address),
    }
}

// Not inlined, so that each probe is in one place. Without a tool that is attached to this probe, the `nop` is just executed.

#[inline(never)]
fn host_alloc(address: u64, size_bytes: u64, weighted_bytes: u64) {
    place!(0, "otel_memory", "alloc", address, size_bytes, weighted_bytes);
}

#[inline(never)]
fn host_free(address: u64) {
    place!(2, "otel_memory", "free", address);
}

#[inline(never)]
fn device_alloc(device: u64, address: u64, size_bytes: u64, stream: u64) {
    place!(4, "memtrack", "device_alloc", device, address, size_bytes, stream);
}

#[inline(never)]
fn device_free(device: u64, address: u64) {
    place!(6, "memtrack", "device_free", device, address);
}

/// Returns the bytes that a recorded block represents, as reports calculate them
/// ([`WeighedBlock`](memtrack_model::snapshot::WeighedBlock)).
fn weighted_bytes(size_bytes: u64, flags: EventFlags, block_bytes: u64) -> u64 {
    if !flags.contains(EventFlags::SAMPLED) {
        return size_bytes;
    }
    let (counted_bytes, mean_bytes) = match flags.interval_class() {
        0 => (size_bytes, settings::sampling().mean_bytes),
        class => (size_bytes.saturating_add(block_bytes), interval_of_class(class)),
    };
    represented_bytes(size_bytes, counted_bytes, mean_bytes)
}

/// Returns the bytes that a block of `size_bytes` represents that was sampled as `counted_bytes` with a mean gap of
/// `mean_bytes`.
fn represented_bytes(size_bytes: u64, counted_bytes: u64, mean_bytes: u64) -> u64 {
    if counted_bytes == 0 || mean_bytes == 0 {
        return size_bytes;
    }
    let bytes = size_bytes as f64 / sampled_share(counted_bytes as f64 / mean_bytes as f64);
    // Rounded: the conversion truncates.
    (bytes + 0.5) as u64
}

/// Returns 1 − e^(−`gaps`), the probability that a block is sampled whose size is `gaps` mean gaps.
///
/// **Why not `f64::exp_m1`?** The preloaded library must not depend on C's math library: see the sampler's logarithm.
fn sampled_share(gaps: f64) -> f64 {
    // Beyond this, the share is 1 in floating point.
    let mut part = gaps.min(64.0);
    let mut doublings = 0;
    while part > 1.0 / 64.0 {
        part *= 0.5;
        doublings += 1;
    }
    // The series of 1 − e^(−x), of which the fifth term would change the tenth digit.
    let mut share = part * (1.0 - part / 2.0 * (1.0 - part / 3.0 * (1.0 - part / 4.0)));
    for _ in 0..doublings {
        // The share of twice the size: 1 − (1 − share)².
        share *= 2.0 - share;
    }
    share
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::sampling_weight;

    #[test]
    fn represented_bytes_are_those_of_reports() {
        for mean_bytes in [0, 1, 512, 4096, 524_288, 8 << 20] {
            for size_bytes in [0, 1, 7, 64, 4095, 65_535, 1 << 20, 1 << 33] {
                for block_bytes in [0, 160] {
                    let counted = size_bytes + block_bytes;
                    let expected = size_bytes as f64 * sampling_weight(counted, mean_bytes);
                    let bytes = represented_bytes(size_bytes, counted, mean_bytes) as f64;
                    let error = (bytes - expected).abs();
                    assert!(
                        error <= 0.5 + expected * 1e-8,
                        "{size_bytes} + {block_bytes} at {mean_bytes}: {bytes}, not {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_block_that_was_not_sampled_represents_itself() {
        assert_eq!(weighted_bytes(100, EventFlags::default(), 32), 100);
    }
}
