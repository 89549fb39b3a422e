//! The same snapshot from many writers (protocols 0 to 5, with and without memo, from Python and from C++): the pickle machine
//! reads the same data from every file.

use memtrack_core::__pickle::{InputState, Value, load};
use memtrack_tests::oracle;
use std::fs;

/// Describes a value, with the entries of dictionaries sorted: Python 2 wrote them in arbitrary order.
fn describe(value: Value<'_>) -> String {
    let list = |items: Vec<Value<'_>>| items.into_iter().map(describe).collect::<Vec<_>>().join(", ");
    if let Some(text) = value.to_text() {
        return format!("{text:?}");
    }
    if let Some(items) = value.as_tuple() {
        return format!("({})", list(items));
    }
    if let Some(items) = value.as_list() {
        return format!("[{}]", list(items));
    }
    if let Some(entries) = value.as_entries() {
        let entry = |(key, value)| format!("{}: {}", describe(key), describe(value));
        let mut entries: Vec<_> = entries.into_iter().map(entry).collect();
        // `note` is a large string that only some writers added.
        entries.retain(|entry| !entry.starts_with("\"note\""));
        entries.sort();
        return format!("{{{}}}", entries.join(", "));
    }
    format!("{} {:?}", value.type_name(), value.as_f64())
}

#[test]
fn snapshots_from_all_writers_are_equal() {
    let mut first: Option<String> = None;
    for entry in fs::read_dir(oracle("pickles")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|suffix| suffix != "pickle") {
            continue;
        }
        let document = load(fs::File::open(&path).unwrap(), &InputState::default()).unwrap();
        let text = describe(document.root());
        assert!(first.get_or_insert_with(|| text.clone()) == &text, "{}", path.display());
    }
    assert!(first.is_some_and(|text| text.len() > 1000));
}
