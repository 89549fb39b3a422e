//! Plugins that are unloaded while they are recorded, and others that are then loaded at the same addresses.

use libloading::{Library, Symbol};
use memtrack_core::analysis::top::{By, TopOptions, top};
use memtrack_core::event::DeviceId;
use memtrack_core::recorder::Options;
use std::hint::black_box;
use std::path::Path;

/// Allocates and frees a block. Plugins call this function.
extern "C" fn allocate(bytes: usize) {
    drop(black_box(vec![1_u8; bytes]));
}

/// Loads a plugin, makes it allocate, and unloads it. Returns the address of its code.
fn run(path: &Path, function: &str, bytes: usize) -> usize {
    // SAFETY: the plugins have no initialisers, and export a function of that name and type.
    let library = unsafe { Library::new(path) }.unwrap();
    // SAFETY: as above.
    let work: Symbol<'_, extern "C" fn(extern "C" fn(usize), usize)> =
        unsafe { library.get(function.as_bytes()) }.unwrap();
    work(allocate, bytes);
    *work as usize
}

/// Runs two plugins of the same layout from different files, one after the other, and then the first again.
pub fn take_turns(folder: &str) {
    memtrack_core::start_monitor_with(&Options::new().exact()).unwrap();
    let folder = Path::new(folder);
    let first = run(&folder.join("first.so"), "first_work", 100_001);
    let second = run(&folder.join("second.so"), "second_work", 100_002);
    let again = run(&folder.join("first.so"), "first_work", 100_003);
    let recording = memtrack_core::stop();
    // Print whether all three loads had the same address, which the loader decides.
    println!("{}", first == second && second == again);
    let snapshot = recording.snapshot();
    // The two loads of the first plugin have the same functions on their stacks, but are listed as separate stacks.
    let options = TopOptions::new().limit(usize::MAX).fold_hidden(false);
    let report = top(snapshot, By::Stack, DeviceId::HOST, &options);
    for (bytes, name) in [(100_001, "first_work"), (100_002, "second_work"), (100_003, "first_work")] {
        let rows: Vec<_> = report.rows.iter().filter(|row| row.largest_bytes == bytes).collect();
        assert_eq!(rows.len(), 1, "{bytes}");
        let functions: Vec<&str> = rows[0].stack.iter().map(|line| line.frame.function.as_str()).collect();
        assert!(functions.contains(&name), "{bytes}: {functions:?}");
        assert!(!functions.iter().any(|other| other.ends_with("_work") && *other != name), "{functions:?}");
    }
    // All three modules are listed, without overlaps.
    let mut modules: Vec<_> = snapshot.modules.iter().map(|module| (module.start, module.end)).collect();
    modules.sort_unstable();
    assert!(modules.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{:#x?}", snapshot.modules);
}

/// Loading and unloading a plugin many times does not accumulate memory.
pub fn come_and_go(folder: &str) {
    memtrack_core::start_monitor_with(&Options::new().exact().max_entries(1000)).unwrap();
    let path = Path::new(folder).join("first.so");
    let round = || {
        for _ in 0..200 {
            black_box(run(&path, "first_work", 1000));
        }
    };
    round();
    let before = memtrack_core::host::own_bytes();
    (0..5).for_each(|_| round());
    let grown = memtrack_core::host::own_bytes() - before;
    // Some growth is allowed: each load counts as new code, so its stack is stored as a new one.
    assert!(grown < 4 << 20, "{grown} bytes more after 1,000 loads");
}
