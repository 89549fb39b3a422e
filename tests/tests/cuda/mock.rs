//! The mock driver compared with the real driver's documented behaviour: other tests use the mock's totals as their oracle.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;

use memtrack_tests::{alone, mock_cuda, nested, time};

/// The handle of the driver's library, which is opened by name, as cudarc opens it.
struct Driver(usize);

type Result<T = ()> = std::result::Result<T, i32>;

/// Calls a driver function by name, with arguments of the declared types.
macro_rules! call {
    ($name:ident($($argument:expr => $kind:ty),*)) => {{
        // SAFETY: the types match the driver's declaration.
        let code = unsafe {
            let function: extern "C" fn($($kind),*) -> i32 = std::mem::transmute(driver().symbol(stringify!($name)));
            function($($argument),*)
        };
        if code == 0 { Ok(()) } else { Err(code) }
    }};
}

fn driver() -> &'static Driver {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let folder = mock_cuda::driver_dir();
        let path = CString::new(folder.path().join("libcuda.so.1").to_str().unwrap()).unwrap();
        // SAFETY: opening the mock runs only the loader's code.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "the mock can be opened");
        // SAFETY: the test is alone in its process, and has started no thread.
        unsafe {
            std::env::set_var("MEMTRACK_MOCK_DEVICES", "2");
            std::env::set_var("MEMTRACK_MOCK_TOTAL", (1u64 << 30).to_string());
        }
        Driver(handle as usize)
    })
}

impl Driver {
    fn symbol(&self, name: &str) -> *mut c_void {
        let name = CString::new(name).unwrap();
        // SAFETY: the handle is never closed.
        let symbol = unsafe { libc::dlsym(self.0 as *mut c_void, name.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?} is exported");
        symbol
    }
}

fn count(device: i32, kind: i32, what: i32) -> i64 {
    // SAFETY: the mock declares the function with this type.
    let function: extern "C" fn(i32, i32, i32) -> i64 =
        unsafe { std::mem::transmute(driver().symbol("memtrack_mock_count")) };
    function(device, kind, what)
}

/// Creates a context and makes it current. Destroying a context frees only the memory of that context.
fn new_context(device: i32) -> *mut c_void {
    let mut context = null_mut();
    call!(cuInit(0 => u32)).unwrap();
    call!(cuCtxCreate_v2(&mut context => *mut *mut c_void, 0 => u32, device => i32)).unwrap();
    context
}

fn alloc(bytes: usize) -> Result<u64> {
    let mut address = 0;
    call!(cuMemAlloc_v2(&mut address => *mut u64, bytes => usize)).map(|()| address)
}

fn free(address: u64) -> Result {
    call!(cuMemFree_v2(address => u64))
}

#[test]
fn the_mock_behaves_like_the_driver() {
    alone!();
    assert_eq!(count(0, -1, 0), 0, "nothing before cuInit");
    assert_eq!(alloc(1), Err(3), "not initialized");
    plain_memory();
    pools();
    virtual_memory();
    contexts();
    lookups();
    costs();
}

fn plain_memory() {
    let context = new_context(0);
    assert_eq!(alloc(0), Err(1), "zero bytes cannot be allocated");
    let address = alloc(1000).unwrap();
    let (data, mut back) = ([7u8; 1000], [0u8; 1000]);
    call!(cuMemcpyHtoD_v2(address => u64, data.as_ptr() => *const u8, 1000 => usize)).unwrap();
    call!(cuMemcpyDtoH_v2(back.as_mut_ptr() => *mut u8, address => u64, 1000 => usize)).unwrap();
    assert_eq!(data, back);
    assert_eq!((count(0, -1, 2), count(0, 0, 4)), (1000, 1));
    assert_eq!(free(address + 1), Err(1), "a free needs the start of a block");
    free(address).unwrap();
    assert_eq!(free(address), Err(1), "a block is freed once");
    assert_eq!((count(0, -1, 2), count(0, -1, 3), count(0, -1, 1)), (0, 1000, 1));

    let (mut available, mut total) = (0usize, 0usize);
    assert_eq!(alloc(2 << 30), Err(2), "more than there is");
    let most = alloc(1 << 30).unwrap();
    call!(cuMemGetInfo_v2(&mut available => *mut usize, &mut total => *mut usize)).unwrap();
    assert_eq!((available, total), (0, 1 << 30));
    assert_eq!(alloc(1), Err(2), "no byte is left");
    call!(cuMemsetD8_v2(most => u64, 0 => u8, 1usize << 30 => usize)).unwrap();
    free(most).unwrap();
    call!(cuCtxDestroy_v2(context => *mut c_void)).unwrap();
}

fn pools() {
    let context = new_context(1);
    let (mut stream, mut pool) = (null_mut(), null_mut());
    call!(cuStreamCreate(&mut stream => *mut *mut c_void, 0 => u32)).unwrap();
    call!(cuDeviceGetDefaultMemPool(&mut pool => *mut *mut c_void, 1 => i32)).unwrap();
    let pool: *mut c_void = pool;
    let attributes = || {
        [5, 6, 7, 8].map(|attribute| {
            let mut value = 0u64;
            call!(cuMemPoolGetAttribute(pool => *mut c_void, attribute => i32, &mut value => *mut u64))
                .unwrap();
            value
        })
    };
    let mut address = 0u64;
    call!(cuMemAllocAsync_ptsz(&mut address => *mut u64, 1000 => usize, stream => *mut c_void)).unwrap();
    assert_eq!(attributes(), [32 << 20, 32 << 20, 1024, 1024]);
    assert_eq!((count(1, 3, 2), count(0, 3, 2)), (1000, 0), "on the stream's device");
    call!(cuMemFreeAsync(address => u64, stream => *mut c_void)).unwrap();
    assert_eq!(attributes(), [32 << 20, 32 << 20, 0, 1024], "a free leaves the memory in the pool");
    call!(cuStreamSynchronize(stream => *mut c_void)).unwrap();
    assert_eq!(attributes(), [0, 32 << 20, 0, 1024], "a synchronisation releases it");
    let mut zero = 0u64;
    call!(cuMemPoolSetAttribute(pool => *mut c_void, 8 => i32, &mut zero => *mut u64)).unwrap();
    assert_eq!(attributes(), [0, 32 << 20, 0, 0]);
    call!(cuStreamDestroy_v2(stream => *mut c_void)).unwrap();
    call!(cuCtxDestroy_v2(context => *mut c_void)).unwrap();
}

fn virtual_memory() {
    let context = new_context(0);
    let piece = 2usize << 20;
    let properties: [i32; 8] = [1, 0, 1, 0, 0, 0, 0, 0];
    let access: [i32; 3] = [1, 0, 3];
    let (mut range, mut handle) = (0u64, 0u64);
    call!(cuMemAddressReserve(&mut range => *mut u64, 4 * piece => usize, 0 => usize, 0 => u64, 0 => u64))
        .unwrap();
    let create = |handle: &mut u64, bytes: usize| call!(cuMemCreate(handle => *mut u64, bytes => usize, properties.as_ptr() => *const i32, 0 => u64));
    assert_eq!(create(&mut handle, 1000), Err(1), "less than the granularity");
    create(&mut handle, piece).unwrap();
    let places = [range, range + 2 * piece as u64];
    for place in places {
        call!(cuMemMap(place => u64, piece => usize, 0 => usize, handle => u64, 0 => u64)).unwrap();
        call!(cuMemSetAccess(place => u64, piece => usize, access.as_ptr() => *const i32, 1 => usize))
            .unwrap();
    }
    call!(cuMemsetD32_v2(places[0] => u64, 0x1234_5678 => u32, 8 => usize)).unwrap();
    let mut seen = 0u32;
    call!(cuMemcpyDtoH_v2(&mut seen => *mut u32, places[1] + 28 => u64, 4 => usize)).unwrap();
    assert_eq!(seen, 0x1234_5678, "one handle at two places shows the same bytes");
    assert!(call!(cuMemMap(places[0] => u64, piece => usize, 0 => usize, handle => u64, 0 => u64)).is_err());
    call!(cuMemRelease(handle => u64)).unwrap();
    call!(cuMemUnmap(places[0] => u64, piece => usize)).unwrap();
    assert_eq!(count(0, 5, 2), piece as i64, "mapped memory stays");
    call!(cuMemUnmap(places[1] => u64, piece => usize)).unwrap();
    assert_eq!((count(0, 5, 2), count(0, 5, 1)), (0, 1));
    call!(cuMemAddressFree(range => u64, 4 * piece => usize)).unwrap();
    call!(cuCtxDestroy_v2(context => *mut c_void)).unwrap();
}

fn contexts() {
    let context = new_context(0);
    alloc(4096).unwrap();
    let mut host = null_mut();
    call!(cuMemHostAlloc(&mut host => *mut *mut c_void, 100 => usize, 0 => u32)).unwrap();
    assert_eq!((count(0, -1, 4), count(-2, -1, 2)), (1, 100));
    call!(cuCtxDestroy_v2(context => *mut c_void)).unwrap();
    assert_eq!((count(-1, -1, 4), count(-2, -1, 4)), (0, 0), "destroying a context frees its memory");
    assert_eq!(alloc(1), Err(201), "no context");

    let mut primary = null_mut();
    call!(cuDevicePrimaryCtxRetain(&mut primary => *mut *mut c_void, 0 => i32)).unwrap();
    call!(cuCtxSetCurrent(primary => *mut c_void)).unwrap();
    alloc(4096).unwrap();
    call!(cuDevicePrimaryCtxReset_v2(0 => i32)).unwrap();
    assert_eq!(count(0, -1, 4), 0);
    assert_eq!(alloc(1), Err(709), "destroyed");
    call!(cuCtxSetCurrent(null_mut() => *mut c_void)).unwrap();
}

fn lookups() {
    let find = |name: &CStr, version: i32, flags: u64| {
        let (mut address, mut status) = (null_mut(), -1);
        call!(cuGetProcAddress_v2(name.as_ptr() => *const c_char, &mut address => *mut *mut c_void, version => i32,
            flags => u64, &mut status => *mut i32))
        .map(|()| (address, status))
    };
    assert_eq!(find(c"cuMemAlloc", 3020, 0), Ok((driver().symbol("cuMemAlloc_v2"), 0)));
    assert_eq!(find(c"cuMemAllocAsync", 11020, 2), Ok((driver().symbol("cuMemAllocAsync_ptsz"), 0)));
    assert_eq!(find(c"cuMemAllocAsync", 99_000, 0), Ok((null_mut(), 2)), "newer than the driver");
    assert_eq!(find(c"", 12000, 0), Ok((null_mut(), 1)));
    assert_eq!(call!(cuGraphCreate(null_mut() => *mut c_void, 0 => u32)), Err(801), "known by name only");
}

/// Every function that cudarc may look up is exported, and every exported function is implemented or returns "not supported".
#[test]
fn every_known_function_is_exported() {
    alone!();
    let names: BTreeSet<&str> = include_str!("../../mock_cuda/names.txt").lines().collect();
    assert!(names.len() > 500);
    driver();
    let called = names_of_cudarc();
    assert!(called.contains("cuMemAlloc_v2") && called.len() > 400, "{}", called.len());
    for name in names.iter().copied().chain(called.iter().map(String::as_str)) {
        driver().symbol(name);
    }
    // SAFETY: the mock declares the function with this type, and the function returns a static C string.
    let stubs = unsafe {
        let stubs: extern "C" fn() -> *const c_char =
            std::mem::transmute(driver().symbol("memtrack_mock_stubs"));
        CStr::from_ptr(stubs()).to_str().unwrap()
    };
    let stubs: BTreeSet<&str> = stubs.split(' ').collect();
    assert!(stubs.is_subset(&names) && stubs.contains("cuGraphCreate") && !stubs.contains("cuMemAlloc_v2"));
    for name in stubs {
        // SAFETY: a stub takes no arguments.
        let stub: extern "C" fn() -> i32 = unsafe { std::mem::transmute(driver().symbol(name)) };
        assert_eq!(stub(), 801, "{name}");
    }
}

/// Returns the names of the driver functions in cudarc's source, which `cargo metadata` locates.
fn names_of_cudarc() -> BTreeSet<String> {
    // Packages for other platforms may be missing on this machine.
    let output = nested::cargo_command()
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform"])
        .arg(env!("MEMTRACK_TESTS_HOST"))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    let cudarc = packages
        .iter()
        .find(|package| {
            package["name"] == "cudarc" && package["version"].as_str().unwrap().starts_with("0.19.")
        })
        .expect("it is a dependency");
    let folder = Path::new(cudarc["manifest_path"].as_str().unwrap()).parent().unwrap();
    let source = std::fs::read_to_string(folder.join("src/driver/sys/mod.rs")).expect("its source");
    let functions = source.lines().filter_map(|line| line.strip_prefix("pub unsafe fn cu"));
    functions
        .filter_map(|rest| rest.split('(').next())
        .filter(|name| name.starts_with(char::is_uppercase))
        .map(|name| format!("cu{name}"))
        .collect()
}

/// Checks that calls of the mock are cheap, since benches on the mock measure memtrack. The limit is generous, because this build
/// is unoptimised. The fastest of many rounds is compared with the limit: no other program delayed that round.
fn costs() {
    let context = new_context(0);
    const CALLS: u32 = 400;
    let round = |_| {
        let begun = time::of_thread();
        for number in 0..CALLS / 2 {
            free(alloc(512 + number as usize % 4096).unwrap()).unwrap();
        }
        (time::of_thread() - begun) / CALLS
    };
    let each = (0..100).map(round).min().unwrap();
    println!("{each:?} per call");
    assert!(each.as_micros() < 20, "{each:?}");
    call!(cuCtxDestroy_v2(context => *mut c_void)).unwrap();
}
