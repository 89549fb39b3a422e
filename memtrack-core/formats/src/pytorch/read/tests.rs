//! Tests the reader on hand-made pickles, for cases that no normal writer produces but that the fast path must handle
//! correctly.

use crate::LoadError;
use crate::pytorch::read::cost::CostMonitor;
use crate::pytorch::read::machine::Machine;
use crate::pytorch::read::tables::TableBuilder;
use memtrack_model::snapshot::Snapshot;
use std::cell::Cell;

fn encode_text(text: &str) -> Vec<u8> {
    [&[0x8c, text.len() as u8], text.as_bytes()].concat()
}

/// Writes a frame with the given name into a memo slot.
fn encode_frame(slot: u8, name: &str) -> Vec<u8> {
    let items = [
        encode_text("filename"),
        encode_text("a.py"),
        encode_text("name"),
        encode_text(name),
        encode_text("line"),
        b"K\x01".to_vec(),
    ];
    [b"}q", &[slot][..], b"(", &items.concat(), b"u0"].concat()
}

/// Writes an event whose stack is made by the instructions in `frames`, and appends it to the trace.
fn encode_event(frames: &[u8]) -> Vec<u8> {
    let head = [
        encode_text("action"),
        encode_text("alloc"),
        encode_text("addr"),
        b"K\x01".to_vec(),
        encode_text("frames"),
    ];
    [b"}(", &head.concat()[..], frames, b"ua"].concat()
}

fn read(trace: &[Vec<u8>], events: bool) -> Snapshot {
    try_read(trace, events).unwrap()
}

fn try_read(trace: &[Vec<u8>], events: bool) -> Result<Snapshot, LoadError> {
    let root =
        [encode_text("segments"), b"]".to_vec(), encode_text("device_traces"), b"]]".to_vec()].concat();
    // The bytes after the end keep the entire pickle on the fast path.
    let pickle = [b"\x80\x04}(", &root[..], &trace.concat(), b"au.", &[0; 32]].concat();
    crate::pytorch::read::read_pickle(&pickle[..], u64::MAX, &Cell::new(1 << 10), &mut |_| {}, events)
}

/// Returns the function names in each event's stack.
fn names(snapshot: &Snapshot) -> Vec<String> {
    let name = |frame: &memtrack_model::snapshot::FrameId| {
        let records = &snapshot.frames.records;
        let text = records.text(frame.0 as usize, memtrack_model::snapshot::pytorch::Key::Name);
        String::from_utf8_lossy(snapshot.strings.bytes(text)).into_owned()
    };
    let stacks = snapshot.events.stack.iter();
    stacks.map(|&stack| snapshot.named.get(stack).iter().map(name).collect()).collect()
}

#[test]
fn list_that_grows_after_run_of_frames_is_one_stack() {
    let trace = [
        encode_frame(0, "f"),
        encode_frame(1, "g"),
        encode_event(b"](h\x00h\x01e"),
        encode_event(b"](h\x00h\x01e(h\x01e"),
        encode_event(b"](h\x00h\x01eh\x00a"),
        encode_event(b"](h\x00j\x01\0\0\0e"),
    ];
    assert_eq!(names(&read(&trace, true)), ["fg", "fgg", "fgf", "fg"]);
}

/// If a list grows after an event has it, the event changes in Python. No writer produces such a file, and this reader
/// has already folded the event by then.
#[test]
fn memoized_list_may_grow_until_event_owns_it() {
    let frames = [encode_frame(0, "f"), encode_frame(1, "g")].concat();
    // `list` is a list in slot 2 that no event has. `grow` extends it by applying APPENDS to a reference to it, then
    // POP.
    let (list, grow) = (b"]q\x02(h\x00h\x01e0".to_vec(), b"h\x02(h\x01h\x00e0".to_vec());
    let used = encode_event(b"h\x02");
    let before = [frames.clone(), list.clone(), grow.clone(), used.clone(), used.clone()];
    assert_eq!(names(&read(&before, true)), ["fggf", "fggf"]);
    for late in [
        [list, used, grow].concat(),
        [encode_event(b"]q\x02(h\x00h\x01e"), b"h\x02h\x00a0".to_vec()].concat(),
    ] {
        let error = try_read(&[frames.clone(), late], true).unwrap_err().to_string();
        assert!(error.contains("it is changed after it was used"), "{error}");
    }
}

#[test]
fn run_means_another_stack_after_slot_was_set_again() {
    let run = b"](h\x00h\x01e";
    let trace = [
        encode_frame(0, "f"),
        encode_frame(1, "g"),
        encode_event(run),
        encode_event(run),
        encode_frame(0, "h"),
        encode_event(run),
        encode_event(b"](h\x00e"),
    ];
    assert_eq!(names(&read(&trace, true)), ["fg", "fg", "hg", "h"]);
}

#[test]
fn without_events_traces_are_empty() {
    let snapshot = read(&[encode_frame(0, "f"), encode_event(b"](h\x00e"), encode_event(b"]")], false);
    let traces = snapshot.pytorch.unwrap().traces;
    assert_eq!((traces.len(), traces[0].len()), (1, 0));
    assert_eq!(snapshot.events.len(), 0);
}

/// Checks that stencils are used in the first place, because the other tests would pass without them.
#[test]
fn one_stencil_reads_all_events_with_same_encoding() {
    let keys = [(1, "action"), (2, "alloc"), (3, "addr"), (4, "frames")];
    let words: Vec<u8> = keys
        .iter()
        .flat_map(|(slot, word)| [&encode_text(word)[..], b"q", &[*slot], b"0"].concat())
        .collect();
    let event = |address: u8| [b"}\x94(h\x01h\x02h\x03K", &[address][..], b"h\x04]\x94(h\x00eua"].concat();
    let trace = [encode_frame(0, "f"), words, (0..9).flat_map(event).collect()].concat();
    for skips_events in [false, true] {
        let builder = TableBuilder { skips_events, ..TableBuilder::default() };
        let count = Cell::new(0);
        let mut quiet = |_| {};
        let pickle = [&b"\x80\x04]"[..], &trace, b".", &[0; 32]].concat();
        let mut machine = Machine::new(CostMonitor::new(u64::MAX, &count, &mut quiet), builder);
        machine.run(&mut crate::pickle::source::Source::new(&pickle[..])).unwrap();
        assert_eq!((machine.fast.known.len(), machine.fast.misses), (1, 0));
        let events = if skips_events { 0..0 } else { 0..9 };
        assert!(machine.builder.events.address.iter().copied().eq(events));
    }
}
