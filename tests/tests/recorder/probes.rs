//! The static probes (USDT): what tools find in a program's file, and the events that they see when they attach.

use memtrack_tests::memtrack;
use object::{Object, ObjectSection, SectionKind};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");

/// A note in `.note.stapsdt`.
#[derive(Debug)]
struct Probe {
    provider: String,
    name: String,
    arguments: String,
    /// The addresses of the `nop`, of the section `.stapsdt.base`, and of the semaphore, in the file.
    places: [u64; 3],
}

/// Reads the probes of an ELF file. A note has the lengths of its owner's name and of its description, its type, the owner's
/// name, and the description: three addresses and three texts.
fn probes(data: &[u8]) -> Vec<Probe> {
    // The cache of `memtrack run` also has other files.
    let Ok(file) = object::File::parse(data) else { return Vec::new() };
    let Some(section) = file.section_by_name(".note.stapsdt") else { return Vec::new() };
    let mut rest = section.data().unwrap();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        let (owner_bytes, bytes) = (word(0), word(4));
        assert_eq!((word(8), &rest[12..12 + owner_bytes]), (3, b"stapsdt\0".as_slice()));
        let description = &rest[12 + owner_bytes.next_multiple_of(4)..][..bytes];
        let address = |at: usize| u64::from_ne_bytes(description[at..at + 8].try_into().unwrap());
        let texts: Vec<_> = description[24..].split(|&byte| byte == 0).collect();
        let text = |at: usize| String::from_utf8(texts[at].to_vec()).unwrap();
        found.push(Probe {
            provider: text(0),
            name: text(1),
            arguments: text(2),
            places: [address(0), address(8), address(16)],
        });
        rest = &rest[12 + owner_bytes.next_multiple_of(4) + bytes.next_multiple_of(4)..];
    }
    found
}

/// Checks that a file has each probe once, with as many arguments as documented, at an instruction that does nothing, and
/// with a semaphore that is writable and zero.
fn assert_probes(path: &Path) {
    let data = fs::read(path).unwrap();
    let mut found = probes(&data);
    found.sort_by(|a, b| (&a.provider, &a.name).cmp(&(&b.provider, &b.name)));
    let names: Vec<_> = found
        .iter()
        .map(|probe| (&*probe.provider, &*probe.name, probe.arguments.split_whitespace().count()))
        .collect();
    let expected = [
        ("memtrack", "device_alloc", 4),
        ("memtrack", "device_free", 2),
        ("otel_memory", "alloc", 3),
        ("otel_memory", "free", 1),
    ];
    assert_eq!(names, expected, "{}", path.display());
    let file = object::File::parse(&*data).unwrap();
    let section_at = |address: u64, bytes: u64| {
        let holds = |section: &object::Section<'_, '_>| {
            section.address() != 0 && section.data_range(address, bytes).is_ok_and(|range| range.is_some())
        };
        file.sections().find(holds).unwrap_or_else(|| panic!("no section at {address:#x}"))
    };
    let nop: &[u8] = if cfg!(target_arch = "x86_64") { &[0x90] } else { &[0x1f, 0x20, 0x03, 0xd5] };
    let base = file.section_by_name(".stapsdt.base").expect("tools find out by it where the file was loaded");
    let mut semaphores = Vec::new();
    for probe in &found {
        assert!(probe.arguments.split_whitespace().all(|argument| argument.starts_with("8@")), "{probe:?}");
        let [at, base_address, semaphore] = probe.places;
        let code = section_at(at, nop.len() as u64);
        assert_eq!(code.data_range(at, nop.len() as u64).unwrap(), Some(nop), "{probe:?}");
        assert_eq!(base_address, base.address());
        let words = section_at(semaphore, 2);
        assert_eq!((words.name(), words.data_range(semaphore, 2)), (Ok(".probes"), Ok(Some(&[0_u8, 0][..]))));
        assert_eq!(words.kind(), SectionKind::Data, "tools write to it");
        semaphores.push(semaphore);
    }
    semaphores.sort_unstable();
    semaphores.dedup();
    assert_eq!(semaphores.len(), 4, "each probe has a semaphore of its own");
}

#[test]
fn a_program_has_each_probe_once() {
    assert_probes(Path::new(CHILD));
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn the_library_of_memtrack_run_has_each_probe_once() {
    let folder = tempfile::tempdir().unwrap();
    let status = Command::new(memtrack())
        .args(["run", "-o", "run.memtrack", "--", "true"])
        .current_dir(folder.path())
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .status()
        .unwrap();
    assert!(status.success());
    // The same library lies in several folders, for loaders with different search paths.
    let files = files_below(&folder.path().join("cache"));
    let libraries: Vec<_> =
        files.iter().filter(|path| !probes(&fs::read(path).unwrap()).is_empty()).collect();
    assert!(!libraries.is_empty(), "{files:?}");
    libraries.iter().for_each(|library| assert_probes(library));
}

/// Runs a scenario while bpftrace counts the events of the probes. Returns the numbers that the program printed and those
/// that bpftrace printed, by name.
fn trace(how: &str, rounds: &str) -> BTreeMap<String, i64> {
    let script = format!(
        "usdt:{CHILD}:otel_memory:alloc {{ @seen_allocs = count(); @seen_size = sum(arg1); @seen_weighted = sum(arg2); }}
         usdt:{CHILD}:otel_memory:free {{ @seen_frees = count(); }}
         usdt:{CHILD}:memtrack:device_alloc /arg0 == 3 && arg3 == 9/ {{ @device_allocs = count(); @device_size = sum(arg2); }}
         usdt:{CHILD}:memtrack:device_free /arg0 == 3 && arg1 >= 0x70000000/ {{ @device_frees = count(); }}"
    );
    let output = Command::new("bpftrace")
        .args(["-c", &format!("{CHILD} probes {how} {rounds}"), "-e", &script])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines()
        .filter_map(|line| {
            let (name, number) = line.trim_start_matches('@').split_once([' ', ':'])?;
            Some((name.to_owned(), number.trim().parse().ok()?))
        })
        .collect()
}

#[test]
#[cfg_attr(not(bpftrace), ignore = "needs bpftrace, and a kernel that lets it attach")]
fn bpftrace_sees_every_recorded_event() {
    let seen = trace("exact", "3000");
    assert!(seen["allocs"] > 5000 && seen["frees"] > 5000, "{seen:?}");
    assert_eq!((seen["seen_allocs"], seen["seen_frees"]), (seen["allocs"], seen["frees"]));
    assert_eq!((seen["seen_size"], seen["seen_weighted"]), (seen["size"], seen["size"]));
    assert!(seen["size"] >= seen["requested"], "{seen:?}");
    // 20 of 30 blocks were freed, half of those after a request; blocks have 1,000 bytes and more.
    let of_device = [seen["device_allocs"], seen["device_frees"], seen["device_size"]];
    assert_eq!(of_device, [30, 20, (0..30).map(|number| 1000 + number).sum()]);
}

#[test]
#[cfg_attr(not(bpftrace), ignore = "needs bpftrace, and a kernel that lets it attach")]
fn weighted_bytes_of_samples_add_up_to_what_was_allocated() {
    let seen = trace("sampled", "20000");
    assert!(seen["allocs"] * 3 < 40_000, "most blocks are only counted: {seen:?}");
    assert_eq!((seen["seen_allocs"], seen["seen_frees"]), (seen["allocs"], seen["frees"]));
    assert_eq!(seen["seen_size"], seen["size"]);
    // Each weight is rounded to a byte here and there.
    assert!(seen["seen_weighted"].abs_diff(seen["weighted"]) <= seen["allocs"] as u64, "{seen:?}");
    let (estimate, truth) = (seen["seen_weighted"] as f64, seen["requested"] as f64);
    // Blocks of 100,000 bytes and more are exact. Small ones have 40 MB, sampled every 8 KiB: a standard error of 0.6 MB, a
    // tenth of the limit.
    assert!((estimate - truth).abs() < 6e6, "{estimate} B are estimated, {truth} B were allocated");
}
