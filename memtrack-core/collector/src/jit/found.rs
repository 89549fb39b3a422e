//! What the files contain about the addresses in stacks: the texts of the entries that cover each address. A file may have
//! millions of entries, of which only those that cover an address take memory.

use memtrack_model::Frame;
use memtrack_model::paths::file_name;
use std::collections::{BTreeMap, HashMap};

/// The maximum number of functions at an address that are named.
const MAX_FUNCTIONS: usize = 3;
/// The maximum size of all texts together.
const MAX_TEXT_BYTES: usize = 64 << 20;

/// An entry's text, and the place of its function if the file has it apart from the text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    text: String,
    place: Option<(String, u32)>,
}

/// The addresses, with the entries found so far.
#[derive(Debug)]
pub(super) struct Found {
    /// The return addresses, sorted.
    addresses: Vec<u64>,
    /// The entries that cover each address, each once, as indices in `entries`; parallel to `addresses`.
    covering: Vec<Vec<u32>>,
    entries: Vec<Entry>,
    known: HashMap<Entry, u32>,
    text_bytes: usize,
}

/// An entry whose text is not known, or that is not kept.
const UNKNOWN: u32 = u32::MAX;

impl Found {
    /// Creates the table for sorted return addresses.
    pub(super) fn new(addresses: Vec<u64>) -> Self {
        let covering = vec![Vec::new(); addresses.len()];
        Self { addresses, covering, entries: Vec::new(), known: HashMap::new(), text_bytes: 0 }
    }

    /// Returns whether code at these addresses contains any of the calls.
    pub(super) fn is_needed(&self, start: u64, bytes: u64) -> bool {
        !self.covered(start, bytes).is_empty()
    }

    /// Adds an entry. `text` is `None` if it is not known.
    pub(super) fn add(&mut self, start: u64, bytes: u64, text: Option<&str>, place: Option<(String, u32)>) {
        let covered = self.covered(start, bytes);
        if covered.is_empty() {
            return;
        }
        let entry = text.map(|text| Entry { text: text.to_owned(), place });
        let index = entry.map_or(UNKNOWN, |entry| self.index_of(entry));
        for covering in &mut self.covering[covered] {
            if !covering.contains(&index) {
                covering.push(index);
            }
        }
    }

    /// Returns the range of addresses in code at `start`. The call is right before its return address.
    fn covered(&self, start: u64, bytes: u64) -> std::ops::Range<usize> {
        let end = start.saturating_add(bytes);
        let first = self.addresses.partition_point(|&address| address <= start);
        let count = self.addresses[first..].partition_point(|&address| address <= end);
        first..first + count
    }

    fn index_of(&mut self, entry: Entry) -> u32 {
        if let Some(&index) = self.known.get(&entry) {
            return index;
        }
        self.text_bytes += entry.text.len() + entry.place.as_ref().map_or(0, |(file, _)| file.len());
        if self.text_bytes > MAX_TEXT_BYTES {
            return UNKNOWN;
        }
        let index = self.entries.len() as u32;
        self.entries.push(entry.clone());
        self.known.insert(entry, index);
        index
    }

    /// Returns the functions at the addresses for which there are entries. `split` makes a frame of an entry's text. The
    /// list of an address is empty if one of its functions is not known.
    pub(super) fn into_frames(self, split: impl Fn(&str) -> Frame) -> BTreeMap<u64, Vec<Frame>> {
        let frame = |entry: &Entry| {
            let frame = split(&entry.text);
            match &entry.place {
                Some((file, line)) if frame.file.is_none() => {
                    Frame { file: Some(file.clone()), line: (*line > 0).then_some(*line), ..frame }
                }
                _ => frame,
            }
        };
        let frames: Vec<Frame> = self.entries.iter().map(frame).collect();
        let covered = self.addresses.iter().zip(&self.covering).filter(|(_, covering)| !covering.is_empty());
        let functions = |covering: &[u32]| {
            if covering.contains(&UNKNOWN) {
                return Vec::new();
            }
            let mut functions: Vec<&Frame> = Vec::new();
            for &index in covering {
                let frame = &frames[index as usize];
                if !functions.contains(&frame) {
                    functions.push(frame);
                }
            }
            one_of(&functions).into_iter().collect()
        };
        covered.map(|(&address, covering)| (address, functions(covering))).collect()
    }
}

/// Returns the frame that stands for one of these functions; `None` if there are none.
fn one_of(functions: &[&Frame]) -> Option<Frame> {
    let (&first, others) = functions.split_first()?;
    if others.is_empty() {
        return Some(first.clone());
    }
    let file = first.file.clone().filter(|_| others.iter().all(|other| other.file == first.file));
    let name = |frame: &&Frame| {
        let own_file = frame.file.as_deref().filter(|_| file.is_none());
        match (own_file.map(file_name), frame.line) {
            (Some(name), Some(line)) => format!("{} {name}:{line}", frame.function),
            (Some(name), None) => format!("{} {name}", frame.function),
            (None, Some(line)) => format!("{}:{line}", frame.function),
            (None, None) => frame.function.clone(),
        }
    };
    let mut names: Vec<String> = functions.iter().take(MAX_FUNCTIONS).map(name).collect();
    match functions.len() - names.len() {
        0 => {}
        1 => names.push("one other".into()),
        more => names.push(format!("{more} others")),
    }
    Some(Frame { function: names.join(" or "), file, line: None, binary: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Frame {
        super::super::forms::split(text, false)
    }

    #[test]
    fn return_address_belongs_to_the_call_before_it() {
        let mut found = Found::new(vec![100, 101, 110, 111]);
        assert!(found.is_needed(100, 10) && !found.is_needed(111, u64::MAX) && !found.is_needed(105, 0));
        found.add(100, 10, Some("foo"), None);
        found.add(111, u64::MAX, Some("bar"), None);
        let frames = found.into_frames(split);
        assert_eq!(frames.keys().copied().collect::<Vec<_>>(), [101, 110]);
        assert_eq!(frames[&101][0].function, "foo");
    }

    #[test]
    fn reused_address_has_the_names_of_all_its_functions() {
        let function_of = |texts: &[Option<&str>]| {
            let mut found = Found::new(vec![5]);
            texts.iter().for_each(|&text| found.add(0, 10, text, None));
            found.into_frames(split).remove(&5).and_then(|frames| frames.into_iter().next())
        };
        let named = |texts: &[&str]| {
            let texts: Vec<Option<&str>> = texts.iter().copied().map(Some).collect();
            let frame = function_of(&texts).unwrap();
            (frame.function, frame.file, frame.line)
        };
        // The same function is compiled better and better.
        let tiers = ["JS:~foo /a.js:1:2", "JS:^foo /a.js:1:2", "JS:*foo /a.js:1:2"];
        assert_eq!(named(&tiers), ("foo".into(), Some("/a.js".into()), Some(1)));
        let in_a_file = ["JS:~foo /a.js:1:2", "JS:~bar /a.js:7:2"];
        assert_eq!(named(&in_a_file), ("foo:1 or bar:7".into(), Some("/a.js".into()), None));
        let in_two = ["JS:~foo /x/a.js:1:2", "JS:~bar /b.js:7:2", "baz"];
        assert_eq!(named(&in_two), ("foo a.js:1 or bar b.js:7 or baz".into(), None, None));
        assert_eq!(named(&["a", "b", "c", "d"]), ("a or b or c or one other".into(), None, None));
        assert_eq!(named(&["a", "b", "c", "d", "e"]).0, "a or b or c or 2 others");
        assert_eq!(function_of(&[Some("foo"), None]), None);
    }
}
