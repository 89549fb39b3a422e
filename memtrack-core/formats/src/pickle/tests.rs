//! Tests that the machine reads what the writer writes, and that it refuses malformed files.

use super::*;
use crate::InputState;
use crate::document::{self, Document, Value};
use proptest::prelude::*;

/// A tree that can contain every kind of value that the writer can write.
#[derive(Clone, Debug)]
enum Tree {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Pair(Box<[Tree; 2]>),
    List(Vec<Tree>),
    Dict(Vec<(String, Tree)>),
    Counter(Vec<(i64, Tree)>),
}

fn write<W: std::io::Write>(writer: &mut Writer<W>, tree: &Tree) -> std::io::Result<()> {
    match tree {
        Tree::None => writer.write_none(),
        Tree::Bool(truth) => writer.write_bool(*truth),
        Tree::Int(number) => writer.write_int(*number),
        Tree::Float(number) => writer.write_float(*number),
        Tree::Text(text) => writer.write_text(text),
        Tree::Pair(pair) => {
            writer.write_tuple::<2>(|writer| pair.iter().try_for_each(|item| write(writer, item)))
        }
        Tree::List(items) => writer.write_list(items, |writer, item| write(writer, item)),
        Tree::Dict(entries) => writer.write_dict(entries, |writer, (key, value)| {
            writer.write_text(key)?;
            write(writer, value)
        }),
        Tree::Counter(entries) => writer.write_default_dict(true, entries, |writer, (key, value)| {
            writer.write_int(*key)?;
            write(writer, value)
        }),
    }
}

fn pickle_tree(tree: &Tree) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    write(&mut writer, tree).unwrap();
    writer.finish().unwrap()
}

fn assert_same(value: Value<'_>, tree: &Tree) {
    match tree {
        Tree::None => assert!(value.is_none()),
        Tree::Bool(truth) => assert_eq!(value.as_bool(), Some(*truth)),
        Tree::Int(number) => assert_eq!((value.type_name(), value.as_i64()), ("an integer", Some(*number))),
        Tree::Float(number) => {
            assert_eq!(value.type_name(), "a float");
            assert_eq!(value.as_f64().map(f64::to_bits), Some(number.to_bits()));
        }
        Tree::Text(text) => assert_eq!(value.to_text().as_ref(), Some(text)),
        Tree::Pair(pair) => {
            let items = value.as_tuple().unwrap();
            assert_eq!(items.len(), 2);
            items.iter().zip(pair.iter()).for_each(|(a, b)| assert_same(*a, b));
        }
        Tree::List(list) => {
            let items = value.as_list().unwrap();
            assert_eq!(items.len(), list.len());
            items.iter().zip(list).for_each(|(a, b)| assert_same(*a, b));
        }
        Tree::Dict(entries) => {
            let read = value.as_entries().unwrap();
            assert_eq!(read.len(), entries.len());
            for ((key, value), (name, tree)) in read.iter().zip(entries) {
                assert_same(*key, &Tree::Text(name.clone()));
                assert_same(*value, tree);
            }
        }
        Tree::Counter(entries) => {
            let read = value.as_entries().unwrap();
            assert_eq!(read.len(), entries.len());
            for ((key, value), (number, tree)) in read.iter().zip(entries) {
                assert_same(*key, &Tree::Int(*number));
                assert_same(*value, tree);
            }
        }
    }
}

fn read(bytes: &[u8]) -> Result<Document, PickleError> {
    document::load(bytes, &InputState::default())
}

fn read_error(bytes: &[u8]) -> PickleErrorKind {
    read(bytes).expect_err("a refusal").kind
}

fn trees() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::None),
        any::<bool>().prop_map(Tree::Bool),
        any::<i64>().prop_map(Tree::Int),
        (-70_000i64..70_000).prop_map(Tree::Int),
        any::<f64>().prop_map(Tree::Float),
        "\\PC{0,12}".prop_map(Tree::Text),
        (250usize..300).prop_map(|length| Tree::Text("ä".repeat(length))),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| Tree::Pair(Box::new([a, b]))),
            prop::collection::vec(inner.clone(), 0..6).prop_map(Tree::List),
            prop::collection::vec(("[a-c]{0,2}", inner.clone()), 0..6).prop_map(Tree::Dict),
            prop::collection::vec((any::<i64>(), inner), 0..4).prop_map(Tree::Counter),
        ]
    })
}

proptest! {
    #[test]
    fn written_trees_are_read_back(tree in trees()) {
        let document = read(&pickle_tree(&tree)).unwrap();
        assert_same(document.root(), &tree);
    }

    #[test]
    fn damaged_files_never_panic(tree in trees(), hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = pickle_tree(&tree);
        for (index, byte) in hits {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = read(&bytes);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }
}

#[test]
fn batches_and_frames_of_many_entries_are_read() {
    for count in [0, 1, 2, 999, 1000, 1001, 2000, 2001, 70_000] {
        let tree = Tree::List((0..count).map(|number| Tree::Text(format!("operator {number}"))).collect());
        let document = read(&pickle_tree(&tree)).unwrap();
        assert_same(document.root(), &tree);
    }
}

#[test]
fn text_protocols_are_read() {
    let document =
        read(b"(dp0\nVname\np1\nS'a\\tb'\np2\nsVn\nL12345678901234567890L\nsVx\nF1.5\nsVt\nI01\ns.").unwrap();
    let get = |key| document.root().get(key).unwrap();
    assert_eq!(get("name").to_text().as_deref(), Some("a\tb"));
    assert_eq!(get("n").as_f64(), Some(12345678901234567890.0));
    assert_eq!(get("x").as_f64(), Some(1.5));
    assert_eq!(get("t").as_bool(), Some(true));
}

#[test]
fn names_are_refused_with_their_offset() {
    let error = read(b"\x80\x02cos\nsystem\nU\x02ls\x85R.").unwrap_err();
    assert_eq!(error.offset, 2);
    let PickleErrorKind::RefusedGlobal { module, name } = error.kind else { panic!("{error}") };
    assert_eq!((module.as_str(), name.as_str()), ("os", "system"));
}

#[test]
fn only_calls_that_make_empty_dictionaries_are_accepted() {
    assert!(read(b"ccollections\ndefaultdict\n)R.").is_ok());
    assert!(matches!(read_error(b"cbuiltins\nint\n)R."), PickleErrorKind::RefusedCall(Some(Global::Int))));
    assert!(matches!(
        read_error(b"ccollections\ndefaultdict\n(I1\nI2\ntR."),
        PickleErrorKind::RefusedCall(_)
    ));
}

#[test]
fn declared_lengths_allocate_nothing() {
    assert!(matches!(read_error(b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f"), PickleErrorKind::Truncated));
    assert!(matches!(read_error(b"X\xff\xff\xff\xffabc"), PickleErrorKind::Truncated));
    assert!(matches!(read_error(b"\x95\xff\xff\xff\xff\xff\xff\xff\x7fN."), PickleErrorKind::Truncated));
    assert!(matches!(read_error(b"Nr\xf0\xff\xff\xff."), PickleErrorKind::MemoIndex(4294967280)));
}

#[test]
fn cyclic_and_deep_values_are_refused_and_shared_values_accepted() {
    assert!(matches!(read_error(b"]q\x00h\x00a."), PickleErrorKind::Cyclic));
    assert!(matches!(read_error(b"}q\x00U\x01ah\x00s."), PickleErrorKind::Cyclic));
    let deep = [&[b']'; 100_000][..], &[b'a'; 99_999], b"."].concat();
    assert!(matches!(read_error(&deep), PickleErrorKind::TooDeep(500)));
    // There are sixty lists, each of which contains the previous one twice, so there are 2^60 paths.
    let mut shared = b"]\x94".to_vec();
    for level in 0..60 {
        shared.extend_from_slice(&[b']', 0x94, b'(', b'h', level, b'h', level, b'e']);
    }
    shared.push(b'.');
    assert!(read(&shared).is_ok());
}

#[test]
fn memory_limit_is_enforced() {
    let many = [&b"("[..], &vec![b']'; 16 << 20], b"l."].concat();
    assert!(matches!(read_error(&many), PickleErrorKind::TooLarge { .. }));
    let long = [b"X\0\0\0\x10".as_slice(), &vec![b'a'; 256 << 20], b"."].concat();
    assert!(matches!(read_error(&long), PickleErrorKind::TooLarge { .. }));
}
