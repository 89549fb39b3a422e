//! Burn's CUDA runtime on the mock driver: the runtime's pools allocate pages from the driver and divide them into buffers. The
//! driver's counts and memtrack's agree at each step, in pages; buffers are not recorded. Argument: the path for the
//! recording.

#[path = "../../cudarc_loaded/src/counts.rs"]
mod counts;

use counts::{compare, of_driver};
use cubecl_cuda::{CudaDevice, CudaRuntime};
use cubecl_runtime::runtime::Runtime;
use memtrack_core::recorder::Options;

fn main() -> std::io::Result<()> {
    let file = std::env::args_os().nth(1).expect("usage: PROGRAM FILE.memtrack");
    memtrack_core::start_monitor_with(&Options::new().without_host_heap())?;
    let client = CudaRuntime::client(&CudaDevice::new(0));

    let numbers: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let first = client.create_from_slice(&numbers);
    assert!(*client.read_one(first.clone()) == *numbers, "the mock's memory keeps its content");
    compare("a buffer");
    let pages = of_driver(0);
    assert!(pages.allocations >= 1 && pages.live_bytes >= 100_000);

    let buffers: Vec<_> = (1..=20).map(|size| client.empty(size * 50_000)).collect();
    client.flush();
    let used = client.memory_usage();
    compare("twenty more");
    assert!(used.number_allocs >= 21, "{used:?}");
    assert!(used.bytes_in_use >= 100_000 + 210 * 50_000, "{used:?}");
    assert!(of_driver(0).allocations < 21, "pages, not buffers: {:?}", of_driver(0));
    assert!(used.bytes_reserved <= of_driver(0).live_bytes as u64, "{used:?}");

    let large: Vec<_> = (0..3).map(|_| client.empty(200_000_000)).collect();
    client.flush();
    let used = client.memory_usage();
    compare("three large ones");
    assert!(of_driver(0).live_bytes >= 600_000_000 && used.number_allocs >= 24, "{used:?}");

    drop((first, buffers, large));
    client.memory_cleanup();
    client.flush();
    let used = client.memory_usage();
    compare("the cleanup");
    assert_eq!(used.number_allocs, 0, "{used:?}");
    // cubecl already counts a page as freed when the page is only on the list to be freed; the driver's count is right.
    println!("{} pages freed, {used:?}", of_driver(0).frees);

    memtrack_core::stop().save(file)
}
