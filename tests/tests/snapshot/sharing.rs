//! A pickle may use one value in many places, and a few hundred bytes can represent more than fits on any disk. Every command
//! that would have to write out such values ends quickly, keeps its output small, and reports the values that it omitted.

use memtrack_tests::{memtrack, time};
use std::path::Path;
use std::process::{Command, Output};

/// The first memo slot that the bomb uses. Other values use lower slots.
const SLOT: u8 = 100;

/// Returns instructions for a list of ten lists of ten lists …, with 3 × 10^20 numbers in all.
fn bomb() -> Vec<u8> {
    let mut code = b"](K\x01K\x02K\x03e".to_vec();
    for level in 0..20 {
        // Memoizes the list, pops it, and creates a list of ten references to it.
        code.extend([b'q', SLOT + level, b'0', b']', b'(']);
        code.extend([b'h', SLOT + level].repeat(10));
        code.push(b'e');
    }
    code
}

fn text(text: &str) -> Vec<u8> {
    [b"X".as_slice(), &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat()
}

fn dict(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let entries = entries.iter().flat_map(|(key, value)| [text(key), value.clone()].concat());
    [b"}(".to_vec(), entries.collect(), b"u".to_vec()].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [b"](".to_vec(), items.concat(), b"e".to_vec()].concat()
}

fn number(number: u16) -> Vec<u8> {
    [b"M".as_slice(), &number.to_le_bytes()].concat()
}

/// Every place in a snapshot that may contain a value of unlimited size.
const PLACES: [&str; 11] = [
    "unknown key",
    "user_metadata",
    "annotation",
    "frame's key",
    "frame's line",
    "unknown action",
    "block's key",
    "state",
    "stream",
    "root key",
    "allocator_settings",
];

/// Returns a snapshot with a bomb at `place` and normal values elsewhere.
fn snapshot(place: &str) -> Vec<u8> {
    let at = |here: &str, other: Vec<u8>| if here == place { bomb() } else { other };
    let frame = dict(&[
        ("name", text("f")),
        ("filename", text("a.py")),
        ("line", at("frame's line", number(3))),
        ("fx", at("frame's key", b"N".to_vec())),
    ]);
    let event = |action: &str, may_have_bomb: bool| {
        let frames = list(&[frame.clone(), b"h\x00".to_vec()]);
        dict(&[
            ("action", text(action)),
            ("addr", number(512)),
            ("size", number(512)),
            ("stream", number(0)),
            ("time_us", number(7)),
            ("frames", if may_have_bomb { at("frames", frames) } else { b"]".to_vec() }),
            ("odd", if may_have_bomb { at("unknown key", b"N".to_vec()) } else { b"N".to_vec() }),
            ("user_metadata", if may_have_bomb { at("user_metadata", text("")) } else { text("") }),
        ])
    };
    let named = dict(&[
        ("action", text(if place == "unknown action" { "vanish" } else { "annotate" })),
        ("addr", number(0)),
        ("size", number(0)),
        ("user_metadata", at("annotation", text("step"))),
        ("odd", at("unknown action", b"N".to_vec())),
    ]);
    let block = dict(&[
        ("address", number(512)),
        ("size", number(512)),
        ("requested_size", number(500)),
        ("state", at("state", text("active_allocated"))),
        ("frames", list(std::slice::from_ref(&frame))),
        ("odd", at("block's key", b"N".to_vec())),
    ]);
    let segment = dict(&[
        ("address", number(512)),
        ("total_size", number(2048)),
        ("stream", at("stream", number(0))),
        ("blocks", list(&[block])),
    ]);
    let root = dict(&[
        ("segments", list(&[segment])),
        ("device_traces", list(&[list(&[event("alloc", true), named, event("free_completed", false)])])),
        ("allocator_settings", at("allocator_settings", b"}".to_vec())),
        ("more", at("root key", b"N".to_vec())),
    ]);
    // Memo slot 0 holds the second frame of each stack.
    let first = dict(&[("name", text("g")), ("filename", text("b.py")), ("line", number(1))]);
    [b"\x80\x02".as_slice(), &first, b"q\x000", &root, b"."].concat()
}

/// Runs `memtrack` with at most a gigabyte of address space.
fn run(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v 1000000; exec \"$@\"", "sh"]).arg(memtrack()).args(arguments);
    time::limited(&mut command, time::READS_SECONDS).current_dir(folder).output().unwrap()
}

#[test]
fn no_report_expands_shared_values_without_limit() {
    let folder = tempfile::tempdir().unwrap();
    for place in PLACES {
        std::fs::write(folder.path().join("a.pickle"), snapshot(place)).unwrap();
        for line in [
            "stats a.pickle",
            "stats a.pickle --json",
            "trace a.pickle",
            "trace a.pickle --json",
            "segments a.pickle --folded",
            "memory a.pickle --folded",
            "memory a.pickle --json",
            "compare a.pickle a.pickle --folded",
            "summary a.pickle --json",
            "top a.pickle --by stack --json",
            "top a.pickle --by file",
            "peak a.pickle",
            "check a.pickle --max-peak 1GiB",
            "convert a.pickle b.pickle --force",
            "convert a.pickle b.memtrack --force",
        ] {
            let arguments: Vec<&str> = line.split(' ').collect();
            let output = run(&arguments, folder.path());
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{place}: {line}: {} {errors}", output.status);
            assert!(output.stdout.len() < 4 << 20, "{place}: {line}: {} bytes", output.stdout.len());
        }
        let size = std::fs::metadata(folder.path().join("b.pickle")).unwrap().len();
        assert!(size < 4096, "{place}: a pickle of {size} bytes");
    }
}

#[test]
fn unlimited_json_is_refused_before_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let under = |place: &str| match place {
        "root key" => "more",
        "allocator_settings" => "allocator_settings",
        "block's key" | "state" | "stream" => "segments",
        _ => "device_traces",
    };
    for place in PLACES {
        std::fs::write(folder.path().join("a.pickle"), snapshot(place)).unwrap();
        let output = run(&["convert", "a.pickle", "b.json"], folder.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{place}: {errors}");
        let expected = format!("would take 2^63 or more bytes, most of it under `{}`", under(place));
        // The frame is also in the stacks of blocks, so the key with the most bytes is not checked.
        let expected = if place.starts_with("frame's") { "would take 2^63 or more bytes" } else { &expected };
        assert!(errors.contains(expected) && errors.contains("write a pickle"), "{place}: {errors}");
        let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{place}: {left:?}");
    }
}

#[test]
fn invalid_frames_are_refused_however_many_there_are() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.pickle"), snapshot("frames")).unwrap();
    let output = run(&["summary", "a.pickle"], folder.path());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("device_traces[0][0].frames is a list of something else"), "{errors}");
}

#[test]
fn a_listing_reports_that_it_cut_an_event() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.pickle"), snapshot("unknown action")).unwrap();
    let output = run(&["trace", "a.pickle"], folder.path());
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.contains("vanish")).unwrap();
    assert!(
        line.ends_with("], ...]}")
            && (1 << 20..1 << 21).contains(&line.len())
            && line.contains("[[[1, 2, 3], [1, 2, 3]"),
        "{}",
        &line[line.len() - 80..]
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("event 1: repeats its values so often that they were cut"), "{errors}");
}

#[test]
fn lists_in_many_places_take_limited_memory() {
    let folder = tempfile::tempdir().unwrap();
    let refer = |times: usize| [b'h', 1].repeat(times);
    let block = dict(&[("size", number(1)), ("state", text("inactive"))]);
    let blocks = [b"](".to_vec(), block.repeat(9000), b"eq\x010".to_vec()].concat();
    let segment = dict(&[("address", number(0)), ("total_size", number(9)), ("blocks", refer(1))]);
    let segments = [b"](".to_vec(), segment.repeat(9000), b"e".to_vec()].concat();
    let sharing_blocks = dict(&[("segments", segments), ("device_traces", b"]".to_vec())]);
    let event = dict(&[("action", text("alloc")), ("addr", number(1)), ("size", number(1))]);
    let events = [b"](".to_vec(), event.repeat(9000), b"eq\x010".to_vec()].concat();
    let traces = [b"](".to_vec(), refer(9000), b"e".to_vec()].concat();
    let sharing_traces = dict(&[("segments", b"]".to_vec()), ("device_traces", traces)]);
    for (what, shared, root) in [("blocks", blocks, sharing_blocks), ("events", events, sharing_traces)] {
        let pickle = [b"\x80\x02".as_slice(), &shared, &root, b"."].concat();
        std::fs::write(folder.path().join("a.pickle"), pickle).unwrap();
        let output = run(&["summary", "a.pickle"], folder.path());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{what}: {errors}");
        assert!(errors.contains(&format!("{what} in")) && errors.contains("share"), "{what}: {errors}");
    }
}

#[test]
fn an_event_that_is_a_value_in_many_places_is_stored_once() {
    let folder = tempfile::tempdir().unwrap();
    let keys: Vec<String> = (0..400).map(|key| format!("k{key}")).collect();
    let entries = keys.iter().map(|key| (key.as_str(), b"N".to_vec()));
    let entries: Vec<_> = [("action", text("alloc"))].into_iter().chain(entries).collect();
    let event = [dict(&entries), b"q\x010".to_vec()].concat();
    let many = [b"](".to_vec(), [b'h', 1].repeat(200_000), b"e".to_vec()].concat();
    let root = dict(&[("segments", b"]".to_vec()), ("device_traces", b"]".to_vec()), ("more", many)]);
    let pickle = [b"\x80\x02".as_slice(), &event, &root, b"."].concat();
    std::fs::write(folder.path().join("a.pickle"), pickle).unwrap();
    let output = run(&["convert", "a.pickle", "b.pickle"], folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
