//! `memtrack run --host`: the heap of programs that know nothing of memtrack, whichever of C's functions they call.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::mock_cuda;
use memtrack_tests::run::{Bench, assert_work, load, said};

const PLAIN: &str = env!("CARGO_BIN_EXE_cuda_plain");

/// Sizes of the heap's live blocks of a megabyte and more, in millions, as they were asked for.
fn large(snapshot: &Snapshot) -> Vec<u64> {
    let heap = snapshot.blocks.iter().filter(|block| block.device == DeviceId::HOST);
    let mut sizes: Vec<u64> =
        heap.map(|block| block.size_bytes / 1_000_000).filter(|&millions| millions > 0).collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn every_function_of_the_heap_is_recorded() {
    let bench = Bench::new();
    let output = bench.run(&["--host", "-o", "heap", "--", PLAIN, "heap"]);
    assert!(output.status.success(), "{}", said(&output));
    let (snapshot, report) = load(&bench.path("heap"));
    assert!(report.complete);
    assert_eq!(large(&snapshot), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    // Blocks that another thread freed, and small ones, are in the sums, which agree to the byte: what is live of the
    // sums is what is live of the blocks, and little besides, of the runtime's.
    let counts =
        snapshot.devices.iter().find(|counts| counts.device == DeviceId::HOST).expect("it was recorded");
    let live = counts.allocated_bytes - counts.freed_bytes;
    let blocks: u64 = snapshot
        .blocks
        .iter()
        .filter(|block| block.size_bytes >= 64 << 10)
        .map(|block| block.size_bytes)
        .sum();
    assert!(live >= blocks && live - blocks < 200_000, "{live} of {blocks}");
    assert!(counts.allocations > 200_000 && counts.allocations - counts.frees < 1_000, "{counts:?}");
    // Who asked is the first frame.
    let mut symbols = Symbolizer::of(&snapshot);
    for block in snapshot.blocks.iter().filter(|block| block.size_bytes >= 1_000_000) {
        let stack = symbols.stack(snapshot.stacks.get(block.stack));
        let first = stack.first().map_or("", |frame| frame.function.as_str());
        assert!(first.contains("heap::every_function") || first.contains("reallocarray"), "{stack:#?}");
    }
}

#[test]
fn the_heap_and_the_device_stand_side_by_side() {
    let bench = Bench::new();
    let output = bench.run(&["--host", "-o", "both", "--", PLAIN, "heap_and_work"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_work(&bench.path("both"), true);
    assert_eq!(large(&load(&bench.path("both")).0).len(), 9);
    // Not asked for, not there.
    let output = bench.run(&["-o", "without", "--", PLAIN, "heap_and_work"]);
    assert!(output.status.success());
    assert_work(&bench.path("without"), true);
    assert!(!load(&bench.path("without")).0.device_ids().contains(&DeviceId::HOST));
}

#[test]
fn a_forked_child_records_its_own_heap() {
    let bench = Bench::new();
    let output = bench.run(&["--host", "-o", "parent", "--", PLAIN, "heap_and_fork"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(large(&load(&bench.path("parent")).0), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let files = bench.files();
    assert_eq!(files.len(), 2, "{files:?}");
    // `exit` leaves the block where it is.
    assert_eq!(large(&load(&bench.path(&files[1])).0), [33]);
}

#[test]
fn programs_do_not_notice_that_their_heap_is_recorded() {
    let bench = Bench::new();
    let programs: [&[&str]; 6] = [
        &["ls", "/"],
        &["git", "--version"],
        &[
            "python3",
            "-c",
            "import ctypes, json, threading, subprocess; print(subprocess.check_output(['echo', '6']), len(json.dumps(list(range(100000)))))",
        ],
        &["cargo", "--version"],
        &["bash", "-c", "echo one two | tr ' ' '\\n' | sort -r; (exit 3)"],
        &["perl", "-e", "my %h; $h{$_} = 'x' x $_ for 1..2000; print length(join('', values %h)), \"\\n\""],
    ];
    for program in programs {
        let mut alone = mock_cuda::with_driver(program[0], bench.driver.path());
        let Ok(alone) = alone.args(&program[1..]).current_dir(bench.folder.path()).output() else { continue };
        let output = bench.run(&[&["--host", "--force", "-o", "heap", "--"], program].concat());
        assert_eq!(output.stdout, alone.stdout, "{program:?}: {}", said(&output));
        assert_eq!(output.status.code(), alone.status.code(), "{program:?}: {}", said(&output));
        // A script becomes other programs, and has children: all of them have a heap, and none lost anything.
        let recordings = bench.files();
        let recordings: Vec<_> = recordings.iter().map(|name| load(&bench.path(name))).collect();
        let took = |snapshot: &Snapshot| snapshot.devices.iter().any(|counts| counts.allocations > 0);
        assert!(recordings.iter().any(|(snapshot, _)| took(snapshot)), "{program:?}");
        for (_, report) in recordings {
            assert_eq!(report.lost_bytes, 0, "{program:?}: {report:?}");
        }
    }
}
