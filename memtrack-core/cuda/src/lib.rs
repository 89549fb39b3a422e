//! CUDA memory, recorded at the driver. With the feature `cuda`, the program's calls to the driver pass through a hook,
//! so that every allocation and free is recorded with its stack, scope, stream and device, whichever framework made it:
//! candle, burn, cudarc, cust or a C library. Neither the framework nor the environment needs any change.
//!
//! Without a pool that reports to memtrack, each allocation of the driver is a segment with one block. A pool that does
//! report, with [`record_alloc`](memtrack_recorder::recorder::record_alloc), fills its segments with its own blocks. In
//! that case, the blocks in use count as allocated, and the rest is cache. Pinned host memory is
//! [`DeviceId::PINNED`](memtrack_model::event::DeviceId::PINNED).
//!
//! The hook is available on Linux with glibc, on x86-64 and (assembled, but never run so far) aarch64. The repository's
//! docs/RUN.md describes it and its limits; `memtrack run` does the same for a program that does not link
//! memtrack.
//!
//! With the feature `cuda-stats`, the driver and NVML can be queried: [`mem_get_info`], [`pool_statistics`],
//! [`list_gpu_processes`], [`gpus`].
//!
//! The modules:
//!
//! - `hook`: `entry` (the hook's `dlsym`), `table` (names and wrappers), `wrap` (one file per family of functions), `watch`
//!   (the reports of wrappers), `driver` and `driver_reading` (queries), `absent` (no driver); `no_hook` replaces the hook on
//!   other systems.
//! - `run`: starts recording in a program that was started by `memtrack run` (memtrack-run).
//! - `stats`: queries to the driver (cudarc) and NVML; only `stats::calls` has code that is unsafe or may panic.

#[cfg(feature = "cuda")]
#[cfg_attr(
    not(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64"))),
    path = "no_hook.rs"
)]
mod hook;
#[cfg(all(
    feature = "cuda",
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[doc(hidden)]
pub mod run;
#[cfg(feature = "cuda-stats")]
mod stats;

#[cfg(feature = "cuda-stats")]
#[doc(hidden)]
pub use stats::start_driver;
#[cfg(feature = "cuda-stats")]
pub use stats::*;

/// Returns whether programs reach the driver through memtrack's hook. If it returns false, no driver allocations are
/// recorded even though the feature is on: either another `dlsym` comes first (a statically linked program, a plugin that
/// was loaded late, another tool that is preloaded), or this is not Linux with glibc.
#[cfg(feature = "cuda")]
pub fn hook_is_in_place() -> bool {
    hook::is_in_place()
}

/// Returns the number of frees of memory whose allocation the hook had not seen, such as memory from before monitoring
/// started. These frees are only counted, not recorded, because only the address is known.
#[cfg(feature = "cuda")]
pub fn unknown_frees() -> u64 {
    hook::unknown_frees()
}

/// Prints a warning, once, if the hook is not in place.
#[cfg(feature = "cuda")]
pub fn warn_without_hook() {
    static WARNED: std::sync::Once = std::sync::Once::new();
    if !hook_is_in_place() {
        WARNED.call_once(|| {
            memtrack_recorder::message::print(
                "the CUDA hook is not in place, so CUDA memory is not recorded: this program's dlsym is not \
                 memtrack's. The hook works in dynamically linked executables on Linux with glibc; start other programs \
                 with `memtrack run -- PROGRAM`.",
            );
        });
    }
}

/// Starts the session that `memtrack run` requested, if this program runs under it and has no session yet. Called before
/// a program starts its own session, so that the requested session is the first.
#[cfg(feature = "cuda")]
pub fn begin_if_requested() {
    hook::begin_if_requested();
}
