//! The same snapshot from many writers (protocols 0 to 5, with and without memo, from Python and from C++): the pickle machine
//! reads the same data from every file.

use memtrack_core::__pickle::{Document, Limits, Value, load};
use memtrack_tests::oracle;
use std::fs;

/// Describes a value, with the entries of dictionaries sorted: Python 2 wrote them in arbitrary order.
fn describe(document: &Document, value: Value) -> String {
    let list =
        |items: &[Value]| items.iter().map(|item| describe(document, *item)).collect::<Vec<_>>().join(", ");
    match value {
        Value::Str(span) => format!("{:?}", document.text(span)),
        Value::Bytes(span) | Value::BigInt(span) => format!("{:?}", document.bytes(span)),
        Value::Tuple(id) => format!("({})", list(document.tuple(id))),
        Value::List(id) => format!("[{}]", list(document.list(id))),
        Value::Dict(id) => {
            let entry = |entry: &(Value, Value)| {
                format!("{}: {}", describe(document, entry.0), describe(document, entry.1))
            };
            let mut entries: Vec<_> = document.dict(id).entries.iter().map(entry).collect();
            // `note` is a large string that only some writers added.
            entries.retain(|entry| !entry.starts_with("\"note\""));
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        plain => format!("{plain:?}"),
    }
}

#[test]
fn snapshots_from_all_writers_are_equal() {
    let mut first: Option<String> = None;
    for entry in fs::read_dir(oracle("pickles")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|suffix| suffix != "pickle") {
            continue;
        }
        let document = load(fs::File::open(&path).unwrap(), &[], Limits::default()).unwrap();
        let text = describe(&document, document.root);
        assert!(first.get_or_insert_with(|| text.clone()) == &text, "{}", path.display());
    }
    assert!(first.is_some_and(|text| text.len() > 1000));
}
