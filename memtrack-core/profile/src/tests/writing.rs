//! Tests that a trace stays the same when it is written and read back.

use super::program::{Program, Reads, Writes};
use crate::optrace::{Mode, read, save, write};

/// Returns a program that uses every kind of record.
fn program() -> Program {
    let mut program = Program::default();
    program.tensor(0, 0x100, 64);
    program.tensor(7, 0x700, 64);
    program.module("Linear", &[0], &[7], |inner| {
        inner.op_with(r#"mm \"quoted\"\n"#, &[Reads(0), Writes(7)], &[3], |inner| {
            inner.alloc_tensor(3, 0x300, 8)
        });
    });
    program.phase("optimizer", |inner| inner.optimizer(0, 3, 7));
    program.grad(3);
    program.line(r#"{"ev":"mark","ts":900,"thread":4,"name":"step"}"#);
    program.line(r#"{"ev":"stack","s":5,"frames":[{"file":"a.py","line":3,"name":"f"},{"file":"","line":0,"name":"g"}]}"#);
    program.line(r#"{"ev":"dtype","name":"i4","bytes":1}"#);
    program.line(r#"{"ev":"tensor","t":9,"impl":"q","storage":null,"dev":"cpu","dtype":"i4","sizes":[2,3],"strides":null,"layout":"sparse"}"#);
    program.line(r#"{"ev":"op","id":99,"parent":null,"ts":901,"thread":-0,"name":"n","kind":"other","schema":false,"args":[null,{"ts":[9,0],"w":null},{"v":1.5}],"seq":12,"stack":5}"#.replace("-0", "0").as_str());
    program
}

#[test]
fn written_trace_is_read_back_unchanged() {
    let first = program().read(Mode::Tolerant);
    assert!(first.repairs.is_empty(), "{}", first.repairs);
    let mut file = Vec::new();
    write(&first.trace, &mut file).unwrap();
    let second = read(&file[..], Mode::Compat, 1 << 20).unwrap().trace;
    let mut again = Vec::new();
    write(&second, &mut again).unwrap();
    assert_eq!(String::from_utf8(file).unwrap(), String::from_utf8(again).unwrap());
    assert_eq!(first.trace.records.len(), second.records.len());
    for (a, b) in first.trace.records.iter().zip(&second.records) {
        assert_eq!(
            (a.time_ns, a.end_ns, a.thread, a.parent, a.phase),
            (b.time_ns, b.end_ns, b.thread, b.parent, b.phase)
        );
    }
}

#[test]
fn file_name_determines_compression() {
    let folder = std::env::temp_dir().join(format!("memtrack-optrace-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let trace = program().read(Mode::Tolerant).trace;
    let (gzip, zstd) = (&[0x1f, 0x8b][..], &[0x28, 0xb5, 0x2f, 0xfd][..]);
    for (name, head) in [
        ("a.optrace.jsonl", &b"{\"ev\""[..]),
        ("a.optrace.jsonl.gz", gzip),
        ("a.OPTRACE.JSONL.GZ", gzip),
        ("a.optrace.jsonl.zst", zstd),
        ("a.optrace.jsonl.zstd", zstd),
    ] {
        let path = folder.join(name);
        save(&trace, &path).unwrap();
        assert!(std::fs::read(&path).unwrap().starts_with(head));
        let file = std::fs::File::open(&path).unwrap();
        assert_eq!(read(file, Mode::Compat, 1 << 20).unwrap().trace.records.len(), trace.records.len());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
