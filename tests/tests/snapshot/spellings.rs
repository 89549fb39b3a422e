//! Events are read the same way, however they are encoded in the pickle and split into reads. The reader can take no shortcuts in
//! a file that arrives byte by byte, so the result for such a file is the expected one.

use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_tests::{fixture, oracle, shared};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::PathBuf;

/// A reader that returns at most this many bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(self.1);
        self.0.read(&mut buffer[..most])
    }
}

fn read(pickle: &[u8], piece: usize, events: bool) -> Result<Snapshot, String> {
    let options = LoadOptions::new().events(events);
    match Snapshot::open_stream(Pieces(pickle, piece), options) {
        Ok(loaded) => Ok(loaded.snapshot),
        Err(error) => Err(error.to_string()),
    }
}

/// A pickle under construction, and the memo slots that it uses.
struct Builder {
    bytes: Vec<u8>,
    slots: BTreeSet<u32>,
}

impl Builder {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn memoize(&mut self) -> u32 {
        self.put(b"\x94");
        // As in Python, MEMOIZE stores the value in the slot whose number equals the count of used slots, and overwrites a
        // value that was stored there earlier by number.
        let slot = self.slots.len() as u32;
        self.slots.insert(slot);
        slot
    }

    fn text(&mut self, text: &str) -> u32 {
        self.put(&[0x8c, text.len() as u8]);
        self.put(text.as_bytes());
        self.memoize()
    }

    /// Stores a string in a memo slot, and leaves the stack unchanged.
    fn set(&mut self, slot: u32) {
        self.put(&[&b"\x8c\x01xr"[..], &slot.to_le_bytes(), b"0"].concat());
        self.slots.insert(slot);
    }

    fn get(&mut self, slot: u32) {
        match u8::try_from(slot) {
            Ok(slot) => self.put(&[b'h', slot]),
            Err(_) => self.put(&[&b"j"[..], &slot.to_le_bytes()].concat()),
        }
    }
}

const KEYS: [&str; 10] = [
    "action",
    "addr",
    "size",
    "stream",
    "time_us",
    "compile_context",
    "pool_id",
    "frames",
    "is_expandable",
    "what",
];
const TEXTS: [&str; 4] = ["alloc", "free_requested", "N/A", "other"];

/// An encoding of a key's value.
#[derive(Clone, Debug)]
enum Spelling {
    Text(usize),
    Byte(u8),
    Short(u16),
    Integer(i32),
    Long(Vec<u8>),
    Float(f64),
    Nothing,
    Truth(bool),
    /// A pair, with or without a memo slot.
    Pair(u8, u8, bool),
    /// A new list of frames, with or without a memo slot, and the frames that are appended in a second batch.
    List(Vec<usize>, bool, Vec<usize>),
    /// A reference to the latest list that has a memo slot.
    PreviousList,
    /// A reference to the event that contains the key.
    Itself,
}

/// An oddity in the encoding of an event.
#[derive(Clone, Debug, PartialEq)]
enum Trick {
    None,
    /// The entries are written in two batches.
    Twice,
    /// The memo slot of a key is overwritten before the event.
    SetAgain(usize),
    /// A slot that MEMOIZE would soon use is set before the event.
    SetAhead(u32),
    /// A list of frames grows after the event that uses it.
    Grow,
}

#[derive(Clone, Debug)]
struct Entries {
    /// Indices of keys in `KEYS`, with their values.
    entries: Vec<(usize, Spelling)>,
    trick: Trick,
}

/// Returns a snapshot of these events. Keys, strings and three frames are memoized before the events.
fn pickle(events: &[Entries]) -> Vec<u8> {
    let mut to = Builder { bytes: b"\x80\x04}(".to_vec(), slots: BTreeSet::new() };
    to.text("segments");
    to.put(b"]");
    to.text("words");
    to.put(b"](");
    let keys = KEYS.map(|key| to.text(key));
    let texts = TEXTS.map(|text| to.text(text));
    let frames = ["f", "g", "h"].map(|name| {
        to.put(b"}");
        let slot = to.memoize();
        to.put(b"(");
        for (key, value) in [("filename", "a.py"), ("name", name)] {
            to.text(key);
            to.text(value);
        }
        to.put(b"\x8c\x04lineK\x01u");
        slot
    });
    to.put(b"e");
    to.text("device_traces");
    to.put(b"](](");
    let mut previous_list = None;
    for event in events {
        match event.trick {
            Trick::SetAgain(key) => to.set(keys[key]),
            Trick::SetAhead(slots) => to.set(to.slots.len() as u32 + slots),
            _ => {}
        }
        to.put(b"}");
        let itself = to.memoize();
        to.put(b"(");
        for (place, (key, value)) in event.entries.iter().enumerate() {
            if event.trick == Trick::Twice && place == event.entries.len() / 2 && place > 0 {
                to.put(b"u(");
            }
            to.get(keys[*key]);
            match value {
                Spelling::Text(text) => to.get(texts[*text]),
                Spelling::Byte(number) => to.put(&[b'K', *number]),
                Spelling::Short(number) => to.put(&[&b"M"[..], &number.to_le_bytes()].concat()),
                Spelling::Integer(number) => to.put(&[&b"J"[..], &number.to_le_bytes()].concat()),
                Spelling::Long(bytes) => to.put(&[&[0x8a, bytes.len() as u8], &bytes[..]].concat()),
                Spelling::Float(number) => to.put(&[&b"G"[..], &number.to_be_bytes()].concat()),
                Spelling::Nothing => to.put(b"N"),
                Spelling::Truth(truth) => to.put(&[if *truth { 0x88 } else { 0x89 }]),
                Spelling::Pair(first, second, slot) => {
                    to.put(&[b'K', *first, b'K', *second, 0x86]);
                    if *slot {
                        to.memoize();
                    }
                }
                Spelling::List(parts, slot, more) => {
                    to.put(b"]");
                    if *slot {
                        previous_list = Some(to.memoize());
                    }
                    for part in [parts, more] {
                        if part.is_empty() {
                            continue;
                        }
                        to.put(b"(");
                        part.iter().for_each(|frame| to.get(frames[*frame]));
                        to.put(b"e");
                    }
                }
                Spelling::PreviousList => match previous_list {
                    Some(slot) => to.get(slot),
                    None => to.put(b"]"),
                },
                Spelling::Itself => to.get(itself),
            }
        }
        to.put(b"u");
        if let (Trick::Grow, Some(list)) = (&event.trick, previous_list) {
            to.get(list);
            to.put(b"(");
            to.get(frames[0]);
            to.put(b"e0");
        }
    }
    // Bytes after the end of the pickle allow the reader to take shortcuts up to that end.
    to.put(b"eeu.");
    to.put(&[0; 40]);
    to.bytes
}

fn long() -> impl Strategy<Value = Spelling> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 5..7).prop_map(|mut bytes| { bytes.push(1); Spelling::Long(bytes) }),
        1 => prop::collection::vec(any::<u8>(), 0..12).prop_map(Spelling::Long),
    ]
}

fn list() -> impl Strategy<Value = Spelling> {
    let frames = || prop::collection::vec(0..3usize, 0..5);
    let more = prop_oneof![6 => Just(Vec::new()), 1 => frames()];
    (frames(), prop::bool::weighted(0.9), more)
        .prop_map(|(parts, slot, more)| Spelling::List(parts, slot, more))
}

fn any_value() -> impl Strategy<Value = Spelling> {
    prop_oneof![
        (0..TEXTS.len()).prop_map(Spelling::Text),
        any::<u8>().prop_map(Spelling::Byte),
        any::<i32>().prop_map(Spelling::Integer),
        long(),
        any::<f64>().prop_filter("NaN is not itself", |number| !number.is_nan()).prop_map(Spelling::Float),
        Just(Spelling::Nothing),
        any::<bool>().prop_map(Spelling::Truth),
        (any::<u8>(), any::<u8>(), any::<bool>()).prop_map(|(a, b, slot)| Spelling::Pair(a, b, slot)),
        list(),
        Just(Spelling::PreviousList),
        Just(Spelling::Itself),
    ]
}

/// Generates a value that PyTorch would write for a key.
fn usual(key: usize) -> BoxedStrategy<Spelling> {
    match KEYS[key] {
        "action" => (0..2usize).prop_map(Spelling::Text).boxed(),
        "addr" | "time_us" => long().boxed(),
        "size" => prop_oneof![
            any::<u8>().prop_map(Spelling::Byte),
            any::<u16>().prop_map(Spelling::Short),
            (0..i32::MAX).prop_map(Spelling::Integer),
        ]
        .boxed(),
        "stream" => Just(Spelling::Byte(0)).boxed(),
        "pool_id" => (0..3u8, 0..3u8).prop_map(|(a, b)| Spelling::Pair(a, b, true)).boxed(),
        "frames" => prop_oneof![4 => list(), 1 => Just(Spelling::PreviousList)].boxed(),
        "is_expandable" => any::<bool>().prop_map(Spelling::Truth).boxed(),
        _ => Just(Spelling::Text(2)).boxed(),
    }
}

/// Generates mostly the same keys with usual values, which the reader can learn, and sometimes other entries.
fn event() -> impl Strategy<Value = Entries> {
    let value = |key| (Just(key), prop_oneof![40 => usual(key), 1 => any_value()]);
    let long: Vec<_> = (0..8).map(value).collect();
    let short: Vec<_> = (0..6).map(value).collect();
    let odd = prop::collection::vec((0..KEYS.len()).prop_flat_map(value), 1..12);
    let entries = prop_oneof![20 => long, 10 => short, 1 => odd];
    let trick = prop_oneof![
        60 => Just(Trick::None),
        1 => Just(Trick::Twice),
        1 => (0..KEYS.len()).prop_map(Trick::SetAgain),
        1 => (0..4u32).prop_map(Trick::SetAhead),
        1 => Just(Trick::Grow),
    ];
    (entries, trick).prop_map(|(entries, trick)| Entries { entries, trick })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn events_are_the_same_byte_by_byte(
        events in prop::collection::vec(event(), 1..30), kept in any::<bool>(), piece in 11..400usize,
    ) {
        let pickle = pickle(&events);
        let expected = read(&pickle, 1, kept);
        prop_assert_eq!(&read(&pickle, usize::MAX, kept), &expected);
        prop_assert_eq!(&read(&pickle, piece, kept), &expected);
    }
}

#[test]
fn a_pool_that_its_event_replaces_is_read_the_same_byte_by_byte() {
    let event = |entries: &[(usize, Spelling)]| Entries { entries: entries.to_vec(), trick: Trick::None };
    let (action, pool) = (0, 6);
    let pickle = pickle(&[
        event(&[(pool, Spelling::Pair(0, 0, true)), (action, Spelling::Text(0))]),
        event(&[
            (pool, Spelling::Pair(1, 0, true)),
            (action, Spelling::Text(1)),
            (pool, Spelling::Pair(1, 2, true)),
        ]),
    ]);
    let expected = read(&pickle, 1, true);
    assert!(expected.is_ok());
    assert_eq!(read(&pickle, usize::MAX, true), expected);
}

#[test]
fn snapshots_are_the_same_byte_by_byte() {
    byte_by_byte(&[oracle("snapshots/synth"), fixture("snapshots/samples")]);
}

#[test]
#[cfg_attr(not(real_snapshots), ignore = "needs ../shared/oracle/snapshots/real")]
fn real_snapshots_are_the_same_byte_by_byte() {
    byte_by_byte(&[shared().join("oracle/snapshots/real")]);
}

fn byte_by_byte(folders: &[PathBuf]) {
    let mut files: Vec<PathBuf> = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()))
        .filter(|path| path.to_string_lossy().contains(".pickle"))
        .filter(|path| path.metadata().is_ok_and(|file| file.len() < 250_000))
        .collect();
    files.sort();
    assert!(files.len() > 5, "{}", files.len());
    for path in files {
        let stored = std::fs::read(&path).unwrap();
        let mut pickle = Vec::new();
        match flate2::read::GzDecoder::new(&stored[..]).read_to_end(&mut pickle) {
            Ok(_) => {}
            Err(_) => pickle.clone_from(&stored),
        }
        for kept in [true, false] {
            let expected = read(&pickle, 1, kept);
            assert!(read(&pickle, usize::MAX, kept) == expected, "{}", path.display());
            assert!(read(&pickle, 1000, kept) == expected, "{}", path.display());
        }
    }
}
