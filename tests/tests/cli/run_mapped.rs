//! `memtrack run --host`: memory that a program maps itself, by line, at the peak and at the end.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_tests::memtrack;
use memtrack_tests::run::{Bench, bytes, compile_c, load, stderr_text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::{Command, Output};

const MAPS: &str = include_str!("../../src/c/maps.c");
const MIB: u64 = 1 << 20;

/// Returns what the lines of a program hold according to their comments, in MiB, at the peak (0) or at the end (1).
fn expected(source: &str, moment: usize) -> BTreeMap<u64, u64> {
    let of_line = |(place, line): (usize, &str)| {
        let numbers: Vec<u64> =
            line.split_once("; // ")?.1.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        Some((place as u64 + 1, *numbers.get(moment)?))
    };
    source.lines().enumerate().filter_map(of_line).filter(|&(_, held)| held > 0).collect()
}

fn verb(bench: &Bench, arguments: &[&str]) -> Output {
    let mut command = Command::new(memtrack());
    command.args(arguments).current_dir(bench.folder.path()).output().expect("memtrack can be started")
}

/// Returns the answer of a verb about the recording `run`.
fn answer(bench: &Bench, arguments: &[&str]) -> Value {
    let output = verb(bench, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", stderr_text(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn mapped_memory_is_shown_by_line() {
    let bench = Bench::new();
    compile_c(bench.folder.path(), MAPS, &["-O0", "-o", "maps"]);
    let output = bench.run(&["--host", "-o", "run", "--", "./maps"]);
    assert!(output.status.success(), "{}", stderr_text(&output));
    for (moment, name) in ["peak", "end"].into_iter().enumerate() {
        let top = answer(
            &bench,
            &["top", "run", "--by", "line", "--at", name, "--device", "mapped", "-n", "100", "--json"],
        );
        let rows = top["devices"][0]["rows"].as_array().unwrap();
        let mut held: BTreeMap<u64, u64> = BTreeMap::new();
        for row in rows {
            *held.entry(row["mine"]["line"].as_u64().unwrap()).or_default() +=
                row["requested_bytes"].as_u64().unwrap();
        }
        let held: BTreeMap<u64, u64> = held.into_iter().map(|(line, bytes)| (line, bytes / MIB)).collect();
        assert_eq!(held, expected(MAPS, moment), "{name}");
    }
    // The C library's own memory, such as the heap that `fopen` would use, is not counted a second time.
    let (snapshot, _) = load(&bench.path("run"));
    let at_end = bytes(&snapshot, DeviceId::MAPPED);
    assert_eq!(at_end, expected(MAPS, 1).values().sum::<u64>() * MIB);
    let space = snapshot.address_space.expect("the heap was recorded");
    // The reservation without what was committed: the peak was before that.
    assert_eq!(space.max_reserved_bytes, 4096 * MIB);
    assert_eq!(space.reserved_bytes, (4096 - 4 - 3) * MIB);
    assert_eq!((space.file_bytes, space.on_demand_bytes), (2 * 4096, 2 * MIB));
}

#[test]
fn the_whole_process_is_reported_and_judged() {
    let bench = Bench::new();
    compile_c(bench.folder.path(), MAPS, &["-O0", "-o", "maps"]);
    let output = bench.run(&["--host", "-o", "run", "--", "./maps"]);
    let peak: u64 = expected(MAPS, 0).values().sum();
    let said = format!("mapped memory {peak}.0 MiB");
    assert!(stderr_text(&output).contains(&said), "{}", stderr_text(&output));
    let summary = answer(&bench, &["summary", "run", "--json"]);
    assert_eq!(summary["process"]["mapped"]["peak_bytes"], peak * MIB);
    assert_eq!(summary["process"]["max_reserved_address_bytes"], 4096 * MIB);
    // The heap alone is far below this limit, which the process exceeds.
    let output = verb(&bench, &["check", "run", "--max-peak", "64M"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr_text(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.contains("heap and mapped memory together"), "{printed}");
    assert!(verb(&bench, &["check", "run", "--max-peak", "128M"]).status.success());
}

/// An allocator that takes its memory from `mmap`, in place of the C library's. The command and its threads use it too.
const ALLOCATOR: &str = r"
#define _GNU_SOURCE
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

static char *chunk, *end;
static volatile char locked;

static char *take(size_t size) {
    if (chunk + size > end) {
        size_t bytes = size > 4194304 ? size : 4194304;
        chunk = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED) return chunk = end = 0;
        end = chunk + bytes;
    }
    char *taken = chunk;
    chunk += size;
    return taken;
}

void *malloc(size_t size) {
    size = (size + 15) / 16 * 16 + 16;
    while (__atomic_test_and_set(&locked, __ATOMIC_ACQUIRE)) sched_yield();
    char *taken = take(size);
    __atomic_clear(&locked, __ATOMIC_RELEASE);
    if (!taken) return 0;
    ((size_t *)taken)[0] = size - 16;
    return taken + 16;
}

size_t malloc_usable_size(void *block) { return block ? ((size_t *)((char *)block - 16))[0] : 0; }
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *old, size_t size) {
    void *new = malloc(size);
    size_t had = malloc_usable_size(old);
    if (new && old) memcpy(new, old, had < size ? had : size);
    return new;
}
void *memalign(size_t alignment, size_t size) {
    char *block = malloc(size + alignment);
    return block + (alignment - (size_t)block % alignment) % alignment;
}
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void **out, size_t alignment, size_t size) {
    *out = memalign(alignment, size);
    return *out ? 0 : 12;
}
";

const KEEPS: &str = r"
#include <stdlib.h>
#include <sys/mman.h>

int main(void) {
    volatile char *kept = malloc(20 << 20);
    char *mapped = mmap(0, 6 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    kept[0] = mapped[0];
    return 0;
}
";

#[test]
fn what_the_allocator_maps_for_the_heap_is_not_counted_twice() {
    let bench = Bench::new();
    let folder = bench.folder.path();
    compile_c(folder, ALLOCATOR, &["-fno-builtin", "-shared", "-fPIC", "-o", "liballocator.so"]);
    compile_c(folder, KEEPS, &["-fno-builtin", "-o", "keeps"]);
    let library = bench.path("liballocator.so");
    // The command adds its libraries to the variable.
    let mut command = bench.command();
    command.env("LD_PRELOAD", &library).args(["--host", "-o", "run", "--", "./keeps"]);
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{}", stderr_text(&output));
    let (snapshot, _) = load(&bench.path("run"));
    let held = [DeviceId::HOST, DeviceId::MAPPED].map(|device| bytes(&snapshot, device) / MIB);
    assert_eq!(held, [20, 6], "{}", stderr_text(&output));
}

/// Maps a gigabyte of which pages become memory as they are written, and gives most of another mapping back, but then writes to
/// a part of it again.
const ON_DEMAND: &str = r"
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **arguments) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *large = mmap(0, 1ul << 30, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, -1, 0);
    madvise(large, 1ul << 30, MADV_NOHUGEPAGE);
    memset(large + (100 << 20), 1, 40 << 20);
    char *kept = mmap(0, 16 << 20, PROT_READ | PROT_WRITE, flags, -1, 0);
    madvise(kept, 16 << 20, MADV_NOHUGEPAGE);
    memset(kept, 1, 16 << 20);
    madvise(kept, 12 << 20, MADV_DONTNEED);
    memset(kept, 1, 3 << 20);
    while (access(arguments[count - 1], F_OK)) usleep(1000);
    munmap(large, 1ul << 30);
    return 0;
}
";

#[test]
fn pages_that_become_memory_on_demand_are_found() {
    let bench = Bench::new();
    compile_c(bench.folder.path(), ON_DEMAND, &["-o", "on_demand"]);
    // The mapping's own pages of tables are none of its memory.
    let held = |snapshot: &Snapshot| bytes(snapshot, DeviceId::MAPPED);
    let output =
        bench.run_until("run", &["--host"], &["./on_demand"], &[], |snapshot| held(snapshot) == 47 * MIB);
    assert!(output.status.success(), "{}", stderr_text(&output));
    let (snapshot, report) = load(&bench.path("run"));
    assert!(report.complete);
    assert_eq!(held(&snapshot), 7 * MIB);
    let counts = snapshot.exact_counts(DeviceId::MAPPED).expect("they were counted");
    assert_eq!((counts.allocated_bytes - counts.freed_bytes, counts.dropped), (7 * MIB, 0));
    let space = snapshot.address_space.expect("the heap was recorded");
    assert_eq!(space.max_on_demand_bytes, (1 << 30) + 12 * MIB);
    assert_eq!(space.on_demand_bytes, 12 * MIB);
    let top = answer(&bench, &["top", "run", "--by", "line", "--at", "peak", "--device", "mapped", "--json"]);
    let rows = top["devices"][0]["rows"].as_array().unwrap();
    let held: Vec<u64> = rows.iter().map(|row| row["requested_bytes"].as_u64().unwrap()).collect();
    // A part of the 40 MiB may have been read before the other mapping shrank, which is then the peak.
    assert!(held.iter().any(|bytes| (31 * MIB..=40 * MIB).contains(bytes)), "{held:?}");
}
