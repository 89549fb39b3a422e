//! `memtrack simulate` as a user runs it.

use memtrack_tests::oracle;
use memtrack_tests::verbs::piped;
use std::fs;
use std::io::Write;
use std::process::Output;

fn simulate(arguments: &[&str], input: &str) -> Output {
    piped(&[&["simulate"], arguments].concat(), input.as_bytes())
}

const SMALL: &str = r#"{"op":"config","total_bytes":33554432}
{"op":"alloc","id":"a","size":1000}

{"op":"alloc","id":"b","size":99999999}
{"op":"free","id":"a"}
{"op":"free","id":"c"}
"#;

/// Some of the limits cut a line in two. The error must not be about invalid JSON in that line.
#[test]
fn the_error_about_a_workload_beyond_the_limit_names_the_option() {
    for limit in ["10", "39", "40", "100"] {
        let output = simulate(&["-", "--max-input", limit], SMALL);
        assert_eq!(output.status.code(), Some(3), "{limit}");
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("raise --max-input"), "{limit}: {error}");
    }
}

#[test]
fn failures_are_results() {
    let output = simulate(&["-"], SMALL);
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 6, "a line each, without the empty one, and the end");
    assert_eq!(
        lines[1],
        r#"{"i":1,"op":"alloc","id":"a","seg":0,"off":0,"size":1024,"events":[[0,"segment_alloc",0,0,2097152,0,0],[0,"alloc",0,0,1000,0,0]]}"#
    );
    assert!(lines[2].contains(r#""oom":true,"message":"CUDA out of memory. Tried to allocate 96.00 MiB."#));
    assert_eq!(lines[4], r#"{"i":4,"op":"free","id":"c","noop":true}"#);
    assert!(lines[5].starts_with(r#"{"i":5,"op":"end","#));
}

#[test]
fn results_go_to_a_file_that_is_not_replaced_without_force() {
    let folder = tempfile::tempdir().unwrap();
    let (workload, result) = (folder.path().join("w.jsonl"), folder.path().join("r.jsonl"));
    fs::write(&workload, SMALL).unwrap();
    let [workload, target] = [&workload, &result].map(|path| path.to_str().unwrap());
    assert_eq!(simulate(&[workload, "-o", target], "").status.code(), Some(0));
    assert_eq!(fs::read(&result).unwrap(), simulate(&["-"], SMALL).stdout);
    let again = simulate(&[workload, "-o", target], "");
    assert_eq!(again.status.code(), Some(2));
    assert_eq!(simulate(&[workload, "-o", target, "--force"], "").status.code(), Some(0));
}

#[test]
fn compressed_workloads_are_decompressed() {
    use flate2::Compression;
    use flate2::write::GzEncoder;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.jsonl.gz");
    let plain = fs::read(oracle("allocator").join("ties.workload.jsonl")).unwrap();
    let mut packer = GzEncoder::new(fs::File::create(&path).unwrap(), Compression::default());
    packer.write_all(&plain).unwrap();
    packer.finish().unwrap();
    let packed = simulate(&[path.to_str().unwrap()], "");
    assert_eq!(packed.stdout, simulate(&["-"], std::str::from_utf8(&plain).unwrap()).stdout);
}

const ALLOC: &str = r#"{"op":"alloc","id":1,"size":1}"#;

#[test]
fn unknown_fields_and_settings_are_ignored_with_a_warning() {
    let mut input =
        r#"{"op":"config","total_bytes":33554432,"capacity":1,"settings":"expandable_segments_reserve:40X"}"#
            .to_owned();
    input += "\n{\"op\":\"alloc\",\"id\":1,\"size\":1,\"strem\":3}\n";
    // `delete_pool` may contain a device. It has no effect, but causes no warning.
    input += "{\"op\":\"begin_pool\",\"pool\":1}\n{\"op\":\"end_pool\",\"pool\":1}\n";
    input += "{\"op\":\"delete_pool\",\"pool\":1,\"device\":0}\n";
    let output = simulate(&["-"], &input);
    assert_eq!(output.status.code(), Some(0));
    let hints = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        hints,
        "memtrack: -: line 1: settings: Ignoring invalid expandable-segment reserve value '40X' in \
         PYTORCH_CUDA_ALLOC_CONF (expected a positive, finite fraction like 0.5 or an absolute size like 40G); using \
         default.\n\
         memtrack: -: line 1: the field \"capacity\" means nothing here\n\
         memtrack: -: line 2: the field \"strem\" means nothing here\n"
    );
    let good = input
        .replace(",\"capacity\":1", "")
        .replace(",\"strem\":3", "")
        .replace("reserve:40X", "reserve:0.9");
    let clean = simulate(&["-"], &good);
    assert!(clean.stderr.is_empty());
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().replace("reserve:40X", "reserve:0.9"),
        String::from_utf8(clean.stdout).unwrap(),
        "the results are the same"
    );
    // The number of warnings about unknown fields is limited.
    let lines: String =
        (0..50).map(|id| format!("{{\"op\":\"alloc\",\"id\":{id},\"size\":1,\"x\":1}}\n")).collect();
    let output = simulate(&["-"], &format!("{{\"op\":\"config\",\"total_bytes\":33554432}}\n{lines}"));
    let hints = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), hints.lines().count()), (Some(0), 11), "{hints}");
}

#[test]
fn invalid_workloads_are_refused_with_the_line() {
    let config = r#"{"op":"config","total_bytes":1000}"#;
    for (input, why) in [
        (String::new(), "it is empty"),
        ("{}".into(), "line 1: missing field"),
        (r#"{"op":"alloc","id":1,"size":1}"#.into(), "line 1: "),
        (r#"{"op":"config","total_bytes":-5}"#.into(), "line 1: "),
        (r#"{"op":"config","total_bytes":5,"devices":0}"#.into(), "devices must be from 1 to 63"),
        (
            r#"{"op":"config","total_bytes":5,"settings":"a:1"}"#.into(),
            "line 1: settings: Unrecognized key 'a'",
        ),
        (format!("{config}\n{{\"op\":\"dance\"}}"), "line 2: unknown variant `dance`"),
        (format!("{config}\n{{\"op\":\"alloc\",\"size\":1}}"), "line 2: missing field `id`"),
        (format!("{config}\n{{\"op\":\"alloc\",\"id\":1,\"size\":\"big\"}}"), "line 2: "),
        (
            format!("{config}\n{{\"op\":\"alloc\",\"id\":1,\"size\":1,\"stream\":99999999}}"),
            "streams go up to",
        ),
        (format!("{config}\nnot json"), "line 2: expected ident (column 2)"),
        (
            format!("{config}\n{{\"op\":\"alloc\",\"id\":1,\"size\":1,\"size\":2}}"),
            "line 2: duplicate field `size`",
        ),
        (
            format!("{config}\n{ALLOC}\n{{\"op\":\"free\",\"id\":1}}\n\n{ALLOC}"),
            "line 5: the alloc in line 2 has the id 1 already; ids must be unique",
        ),
        (
            r#"{"op":"config","total_bytes":5,"settings":"backend:cudaMallocAsync"}"#.into(),
            "line 1: settings: only backend:native can be simulated",
        ),
        (format!("{config}\n{}", "x".repeat(2 << 20)), "longer than 1 MiB"),
    ] {
        let output = simulate(&["-"], &input);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{input:.60}: {error}");
        assert!(error.contains(why), "{input:.60}: {error}");
        assert!(!error.contains(" at line "), "the position is printed once: {error}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(simulate(&["/no/such/file"], "").status.code(), Some(3));
}

#[test]
fn odd_sizes_fail_like_tensors_of_those_sizes() {
    let mut input = "{\"op\":\"config\",\"total_bytes\":1000000000}\n".to_owned();
    for size in ["-1", "9223372036854775807", "18446744073709551615", "1e3"] {
        input += &format!("{{\"op\":\"alloc\",\"id\":{size},\"size\":{size}}}\n");
    }
    input += "{\"op\":\"end_pool\",\"pool\":1}\n{\"op\":\"delete_pool\",\"pool\":1}\n";
    input +=
        "{\"op\":\"alloc\",\"id\":\"x\",\"size\":1,\"device\":9}\n{\"op\":\"set_fraction\",\"fraction\":1}\n";
    let output = simulate(&["-"], &input);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    for (line, part) in lines[1..].iter().zip([
        "negative dimension -1: [-1]",
        "more than 1EB memory",
        "Overflow when unpacking long long",
        "Overflow when unpacking long long",
        "KeyError",
        "KeyError",
        "invalid device ordinal: 9",
        "TypeError: Invalid type for fraction argument, must be `float`",
    ]) {
        assert!(line.contains(part), "{line}");
    }
}
