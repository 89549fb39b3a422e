//! Tests that files that are not traces, or that are contradictory, are rejected with a line number.

use super::program::{Program, Reads};
use crate::optrace::{Mode, TraceError, read};
use std::io::Write;

const HEADER: &str = r#"{"ev":"header","format":"memtrack-optrace","version":1,"time":"unix_ns"}"#;

fn file(lines: &[&str]) -> String {
    let count = lines.len();
    format!("{HEADER}\n{}\n{{\"ev\":\"footer\",\"records\":{count}}}\n", lines.join("\n"))
}

#[track_caller]
fn assert_rejected(content: &str, mode: Mode, with: &str) {
    let error = read(content.as_bytes(), mode, 1 << 30).unwrap_err().to_string();
    assert!(error.contains(with), "{error}");
}

const OP: &str =
    r#"{"ev":"op","id":0,"parent":null,"ts":1,"thread":1,"name":"f","kind":"op","schema":true,"args":[]}"#;
const TENSOR: &str = r#"{"ev":"tensor","t":0,"impl":"a","storage":"0x10","dev":"cpu","dtype":"f32","sizes":[1],"strides":[1],"layout":"strided"}"#;

#[test]
fn files_that_are_not_traces_are_rejected() {
    for (content, with) in [
        ("", "empty"),
        ("\n\n", "empty"),
        ("hello\n", "line 1: this is not an operator trace"),
        ("{\"segments\": []}\n", "line 1: this is not an operator trace"),
        (&format!("{TENSOR}\n"), "line 1: this is not an operator trace"),
        (
            "{\"ev\":\"header\",\"format\":\"memtrack-optrace\",\"version\":2}\n",
            "version 2, and this memtrack reads version 1",
        ),
        ("{\"ev\":\"header\",\"format\":\"memtrack-optrace\",\"version\":\"one\"}\n", "version \"one\""),
    ] {
        for mode in [Mode::Compat, Mode::Tolerant] {
            assert_rejected(content, mode, with);
        }
    }
}

#[test]
fn errors_name_line_that_contradicts_format() {
    let other = TENSOR.replace("0x10", "0x20");
    let renamed = OP.replace("\"f\"", "\"g\"");
    let early = OP.replace("\"id\":0", "\"id\":1").replace("\"parent\":null", "\"parent\":1");
    for (lines, with) in [
        (vec![TENSOR, "{\"ev\":\"op\",", OP], "line 3: column 11: this is not JSON"),
        (vec![TENSOR, "[1, 2]"], "line 3: column"),
        (vec![TENSOR, &other], "line 3: tensor 0 is defined twice"),
        (vec![OP, &renamed], "line 3: id 0 is defined twice"),
        (vec![&early], "line 2: id 1 is inside of itself"),
        (
            vec![r#"{"ev":"alloc","ts":1,"thread":1,"dev":"cpu","ptr":"0x1"}"#],
            "line 2: an `alloc` record needs `bytes`",
        ),
        (
            vec![r#"{"ev":"alloc","ts":1,"thread":1,"dev":"cpu","ptr":"0x1","bytes":0}"#],
            "line 2: `bytes` is 0",
        ),
        (
            vec![r#"{"ev":"alloc","ts":1,"thread":1,"dev":"cpu","ptr":"12","bytes":1}"#],
            "line 2: '12' is not an address",
        ),
        (vec![r#"{"ev":"alloc","ts":"now","thread":1,"dev":"cpu","ptr":"0x1","bytes":1}"#], "line 2: column"),
        (vec![r#"{"ev":"alloc","ts":1.5,"thread":1,"dev":"cpu","ptr":"0x1","bytes":1}"#], "line 2: column"),
        (vec![OP, HEADER, "{\"ev\":\"header\"}"], "a second header"),
    ] {
        assert_rejected(&file(&lines), Mode::Tolerant, with);
        assert_rejected(&file(&lines), Mode::Compat, "line ");
    }
}

#[test]
fn records_inside_each_other_are_rejected() {
    let record = |id: u32, parent: u32| {
        format!(
            r#"{{"ev":"op","id":{id},"parent":{parent},"ts":1,"thread":1,"name":"f","kind":"op","schema":true,"args":[]}}"#
        )
    };
    let content = file(&[&record(0, 2), &record(1, 0), &record(2, 1)]);
    assert_rejected(&content, Mode::Tolerant, "in a cycle");
    assert_rejected(&content, Mode::Compat, "line 2: parent 2 is used before it is defined");
}

#[test]
fn repairable_damage_is_rejected_only_in_compat_mode() {
    let late = OP.replace("\"id\":0", "\"id\":1").replace("\"ts\":1", "\"ts\":0");
    let undefined = OP.replace("\"args\":[]", "\"args\":[{\"t\":7,\"w\":false}]");
    for (lines, with) in [
        (vec![OP, &*late], "line 3: the time 0 lies before"),
        (vec![&*undefined], "line 2: tensor 7 is used before it is defined"),
        (vec![OP, OP], "line 3: id 0 is defined twice"),
        (vec![r#"{"ev":"end","id":4,"ts":1}"#], "line 2: the end of 4"),
    ] {
        assert_rejected(&file(&lines), Mode::Compat, with);
        let repaired = read(file(&lines).as_bytes(), Mode::Tolerant, 1 << 30).unwrap();
        assert!(!repaired.repairs.is_empty());
    }
    let cut = format!("{HEADER}\n{OP}\n");
    assert_rejected(&cut, Mode::Compat, "the trace is cut");
    assert_eq!(read(cut.as_bytes(), Mode::Tolerant, 1 << 30).unwrap().trace.records.len(), 1);
}

#[test]
fn unknown_records_and_fields_are_skipped() {
    let strange = OP.replace("\"args\":[]", "\"args\":[],\"x_own\":{\"deep\":[1]}");
    let content = file(&[r#"{"ev":"weather","id":"cold","ts":[]}"#, &strange]);
    let read = read(content.as_bytes(), Mode::Compat, 1 << 30).unwrap();
    assert_eq!(read.trace.records.len(), 1);
}

#[test]
fn truncated_compressed_trace_is_read_up_to_its_end() {
    let mut program = Program::default();
    program.tensor(0, 0x100, 8);
    for _ in 0..2000 {
        program.op("f", &[Reads(0)], |_| {});
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(program.file().as_bytes()).unwrap();
    let packed = gzip.finish().unwrap();
    let whole = read(&packed[..], Mode::Compat, 1 << 30).unwrap().trace.records.len();
    assert_eq!(whole, 2000);
    let half = &packed[..packed.len() / 2];
    assert!(matches!(read(half, Mode::Compat, 1 << 30), Err(TraceError::Io(_))));
    let cut = read(half, Mode::Tolerant, 1 << 30).unwrap();
    assert!((100..2000).contains(&cut.trace.records.len()), "{}", cut.trace.records.len());
    assert!(cut.repairs.to_string().contains("the trace is cut"));
}

#[test]
fn sizes_of_line_and_of_trace_are_limited() {
    let content = format!("{HEADER}\n{{\"ev\":\"mark\",\"ts\":1,\"name\":\"{}\"}}\n", "x".repeat(17 << 20));
    assert_rejected(&content, Mode::Tolerant, "line 2: longer than 16 MiB");
    let short = file(&[OP, OP.replace("\"id\":0", "\"id\":1").as_str()]);
    let error = read(short.as_bytes(), Mode::Tolerant, 200).unwrap_err().to_string();
    assert!(error.contains("--max-input"), "{error}");
    assert!(read(short.as_bytes(), Mode::Tolerant, short.len() as u64).is_ok());
}

#[test]
fn reading_stops_if_file_unpacks_to_or_takes_far_more_than_its_size() {
    let packed = |content: &mut dyn Iterator<Item = Vec<u8>>| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(format!("{HEADER}\n").as_bytes()).unwrap();
        content.for_each(|part| gzip.write_all(&part).unwrap());
        gzip.finish().unwrap()
    };
    let blank = packed(&mut std::iter::repeat_n(vec![b'\n'; 1 << 20], 22));
    assert!(blank.len() < 100_000, "{}", blank.len());
    let error = read(&blank[..], Mode::Tolerant, 64 << 30).unwrap_err().to_string();
    assert!(error.contains("unpacks to more than 200 times"), "{error}");
    let nulls = |id: u32, count: usize| {
        let args = vec!["null"; count].join(",");
        OP.replace("\"id\":0", &format!("\"id\":{id}")).replace("\"args\":[]", &format!("\"args\":[{args}]"))
            + "\n"
    };
    let many = packed(&mut (0..20).map(|id| nulls(id, 90_000).into_bytes()));
    let error = read(&many[..], Mode::Tolerant, 64 << 30).unwrap_err().to_string();
    assert!(error.contains("too much memory for its size"), "{error}");
    let one = packed(&mut std::iter::once(nulls(0, 100_001).into_bytes()));
    let error = read(&one[..], Mode::Tolerant, 64 << 30).unwrap_err().to_string();
    assert!(error.contains("more than 100,000 arguments"), "{error}");
}
