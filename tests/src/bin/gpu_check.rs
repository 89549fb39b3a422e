//! Prints a table that requires a real GPU: memtrack's sums next to the driver's, and the cost of recording per call.
//! `tests/gpu/check.sh` runs it. It also runs on the mock driver, where the last part measures the mock.
//!
//! Exits with 1 if memtrack's sums differ from the requested bytes, or exceed the driver's.

use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, result};
use memtrack_core::cuda::{gpus, hook_is_in_place, mem_get_info, pool_statistics, reset_pool_peaks};
use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;

/// Sizes from below the smallest granularity to above the largest.
const SIZES: [usize; 12] = [
    1,
    500,
    513,
    4_096,
    65_537,
    1_000_000,
    2 << 20,
    (2 << 20) + 1,
    10_000_000,
    32 << 20,
    50_000_001,
    128 << 20,
];

/// The table that is printed row by row, and whether all of its checks have passed.
struct Table {
    fine: bool,
}

impl Table {
    fn row(&mut self, what: &str, memtrack: u64, driver: u64) {
        let difference = i128::from(driver) - i128::from(memtrack);
        println!("{what:<44} {memtrack:>14} {driver:>14} {difference:>14}");
        self.fine &= difference >= 0;
    }

    fn exact(&mut self, what: &str, memtrack: u64, expected: u64) {
        self.row(what, memtrack, expected);
        self.fine &= memtrack == expected;
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let machine = gpus()?;
    println!("{machine}");
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let mut table = Table { fine: hook_is_in_place() };
    println!("hook in place: {}\n", table.fine);

    memtrack_core::start_monitor_with(&Options::new().without_host_heap())?;
    println!("{:<44} {:>14} {:>14} {:>14}", "bytes", "memtrack", "driver", "difference");
    plain(&mut table)?;
    if context.has_async_alloc() {
        pooled(&mut table, &stream)?;
    }
    memtrack_core::stop();

    println!(
        "\n{:<44} {:>14} {:>14} {:>14}",
        "ns per allocation and free, 1 MiB", "not recorded", "recorded", "added"
    );
    cost("cuMemAlloc_v2, cuMemFree_v2", 2_000, plain_pair)?;
    if context.has_async_alloc() {
        cost("cuMemAllocAsync, cuMemFreeAsync", 20_000, || pooled_pair(&stream))?;
    }
    println!("\n{}", if table.fine { "fine" } else { "NOT FINE: memtrack's sums are not the driver's" });
    Ok(if table.fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn live() -> u64 {
    let snapshot = memtrack_core::snapshot().expect("memory is monitored");
    snapshot.blocks.iter().filter(|block| block.device == DeviceId(0)).map(|block| block.size_bytes).sum()
}

fn used() -> Result<u64, Box<dyn Error>> {
    Ok(mem_get_info(0)?.used_bytes())
}

/// Compares plain allocations with the decrease in free device memory: the difference is the driver's rounding.
#[allow(unsafe_code)]
fn plain(table: &mut Table) -> Result<(), Box<dyn Error>> {
    let before = used()?;
    let mut addresses = Vec::new();
    for size in SIZES {
        let start = used()?;
        // SAFETY: the memory is never read, and is freed below.
        addresses.push(unsafe { result::malloc_sync(size) }?);
        let gained = live() - SIZES.iter().take(addresses.len() - 1).map(|&size| size as u64).sum::<u64>();
        // An allocation that fits into a granule of earlier ones takes no free memory, so this row is not checked.
        let lost = used()?.saturating_sub(start);
        println!(
            "{:<44} {gained:>14} {lost:>14} {:>14}",
            format!("cuMemAlloc of {size}"),
            i128::from(lost) - i128::from(gained)
        );
    }
    let requested: u64 = SIZES.iter().map(|&size| size as u64).sum();
    table.exact("all, beside what was asked for", live(), requested);
    table.row("all, beside cuMemGetInfo", live(), used()?.saturating_sub(before));
    for address in addresses {
        // SAFETY: the memory was allocated above.
        unsafe { result::free_sync(address) }?;
    }
    table.exact("after all frees", live(), 0);
    Ok(())
}

/// Compares pool memory with the pool's statistics.
fn pooled(table: &mut Table, stream: &Arc<CudaStream>) -> Result<(), Box<dyn Error>> {
    reset_pool_peaks(0)?;
    let before = pool_statistics(0)?.used_bytes;
    let buffers: Vec<CudaSlice<u8>> =
        SIZES.iter().map(|&size| stream.alloc_zeros(size)).collect::<Result<_, _>>()?;
    stream.synchronize()?;
    let pool = pool_statistics(0)?;
    table.row("cuMemAllocAsync, beside the pool's used", live(), pool.used_bytes - before);
    table.row("cuMemAllocAsync, beside the pool's reserved", live(), pool.reserved_bytes);
    drop(buffers);
    stream.synchronize()?;
    table.exact("after all frees, the pool's used", live(), pool_statistics(0)?.used_bytes - before);
    Ok(())
}

#[allow(unsafe_code)]
fn plain_pair() -> Result<(), Box<dyn Error>> {
    // SAFETY: the memory is never read, and is freed at once.
    unsafe { result::free_sync(black_box(result::malloc_sync(1 << 20)?)) }?;
    Ok(())
}

#[allow(unsafe_code)]
fn pooled_pair(stream: &Arc<CudaStream>) -> Result<(), Box<dyn Error>> {
    // SAFETY: the memory is never read, and is freed on the stream that it was allocated on.
    unsafe {
        let address = black_box(result::malloc_async(stream.cu_stream(), 1 << 20)?);
        result::free_async(address, stream.cu_stream())?;
    }
    Ok(())
}

/// Prints the median of eleven measurements each with and without recording, alternating, so that noise affects both alike.
fn cost(
    what: &str,
    rounds: u32,
    mut pair: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut time = || -> Result<Duration, Box<dyn Error>> {
        let start = Instant::now();
        for _ in 0..rounds {
            pair()?;
        }
        Ok(start.elapsed() / rounds)
    };
    time()?;
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for _ in 0..11 {
        off.push(time()?);
        memtrack_core::start_monitor_with(&Options::new().without_host_heap())?;
        on.push(time()?);
        memtrack_core::stop();
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_nanos()
    };
    let (off, on) = (median(&mut off), median(&mut on));
    println!("{what:<44} {off:>14} {on:>14} {:>14}", on as i128 - off as i128);
    Ok(())
}
