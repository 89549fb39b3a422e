//! `view`, `trace-plot`, `segment-plot` and `profile-plot`: the page as a file, on standard output, and served over HTTP.
#![cfg(unix)]

use memtrack_tests::{fixture, memtrack, oracle};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

fn sample() -> PathBuf {
    fixture("snapshots/samples/basic-1.pickle")
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(memtrack()).args(arguments).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

/// Parses the JSON head of a page.
fn head(page: &str) -> Value {
    let (_, after) = page.split_once("id=\"memtrack-head\">").expect("a head");
    serde_json::from_str(after.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn each_verb_writes_one_page_and_replaces_none() {
    let folder = tempfile::tempdir().unwrap();
    let sample = sample();
    let file = sample.to_str().unwrap();
    for (arguments, view) in [
        (&["trace-plot", file][..], "timeline"),
        (&["trace_plot", file, "--segments"], "segments"),
        (&["trace-plot", file, "-f"], "timeline"),
        (&["segment-plot", file], "state"),
        (&["profile-plot", file], "timeline"),
        (&["view", file, "--show", "flame"], "flame"),
    ] {
        let output = run(folder.path(), arguments);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{arguments:?}");
        let path = folder.path().join("output.html");
        let page = fs::read_to_string(&path).unwrap();
        let head = head(&page);
        assert_eq!((head["view"].as_str(), head["name"].as_str()), (Some(view), Some("basic-1.pickle")));
        assert_eq!(head["kept"], arguments.contains(&"-f"));
        let again = run(folder.path(), arguments);
        assert_eq!(again.status.code(), Some(2), "{arguments:?}");
        assert_eq!(run(folder.path(), &[arguments, &["--force"]].concat()).status.code(), Some(0));
        let piped = run(folder.path(), &[arguments, &["-o", "-"]].concat());
        assert_eq!(String::from_utf8(piped.stdout).unwrap(), page);
        fs::remove_file(path).unwrap();
    }
}

/// Returns a snapshot as PyTorch writes it for a memory profile of the CPU: its only segment is the address range of the blocks.
fn profile(segment_fields: &Value) -> Value {
    let alloc = |address: u64, size: u64, category: &str| json!({"action": "alloc", "addr": address, "size": size, "stream": 0, "frames": [], "category": category});
    let free = |action: &str| json!({"action": action, "addr": 4608, "size": 512, "stream": 0, "frames": []});
    let mut segment = json!({"device": 0, "address": 4096, "total_size": 1 << 20, "stream": 0, "blocks": [
        {"size": 512, "requested_size": 512, "state": "active_allocated", "frames": []},
        {"size": (1 << 20) - 512, "state": "inactive"},
    ]});
    segment.as_object_mut().unwrap().extend(segment_fields.as_object().unwrap().clone());
    json!({"segments": [segment], "device_traces": [[alloc(4096, 512, "parameter"), alloc(4608, 512, "activation"),
        free("free_requested"), free("free_completed")]]})
}

#[test]
fn a_profile_is_shown_by_category_and_its_address_range_is_not_called_reserved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("profile.json");
    let head_of = |arguments: &[&str]| {
        let arguments = [arguments, &[path.to_str().unwrap(), "-o", "-"]].concat();
        head(&String::from_utf8(run(folder.path(), &arguments).stdout).unwrap())
    };
    fs::write(&path, profile(&json!({})).to_string()).unwrap();
    let shown = head_of(&["profile-plot"]);
    assert_eq!(shown["view"], "categories");
    assert_eq!(head_of(&["view", "--show", "categories"])["view"], "categories");
    assert_eq!(head_of(&["view"])["view"], "timeline");
    let device = &shown["devices"][0];
    assert_eq!(device["categories"], json!(["parameter", "activation"]));
    let mentions_reserved = |head: &Value| {
        let sentences = head["devices"][0]["first"].as_array().unwrap();
        assert!(sentences.iter().any(|line| line["title"] == "Peak"), "{sentences:?}");
        sentences.iter().any(|line| {
            let text = line["text"].as_str().unwrap();
            line["title"] == "Reserved" || text.contains("reserved") || text.contains("stuck")
        })
    };
    assert_eq!((&device["reserved"], mentions_reserved(&shown)), (&json!(false), false));
    // Segments of a caching allocator have these fields, whether or not the events have categories.
    fs::write(&path, profile(&json!({"allocated_size": 512, "segment_type": "small"})).to_string()).unwrap();
    let shown = head_of(&["profile-plot"]);
    assert_eq!((&shown["devices"][0]["reserved"], mentions_reserved(&shown)), (&json!(true), true));
}

/// Returns a snapshot in which a forward pass allocates one block, and an unknown function another.
fn plain(forward_mib: u64, other_mib: u64) -> Value {
    let frame = |name: &str, file: &str| json!({"name": name, "filename": file, "line": 39});
    let library = "/usr/lib/python3/site-packages/torch/functional.py";
    let forward = json!([
        frame("einsum", library),
        frame("forward", "/app/model.py"),
        frame("_call_impl", "/usr/lib/python3/site-packages/torch/nn/modules/module.py")
    ]);
    let other = json!([frame("load", "/app/data.py")]);
    let (first, second) = (forward_mib << 20, other_mib << 20);
    let block = |size: u64, frames: &Value| json!({"size": size, "requested_size": size, "state": "active_allocated", "frames": frames});
    let alloc = |address: u64, size: u64, frames: &Value, time: u64| json!({"action": "alloc", "addr": address, "size": size, "stream": 0, "time_us": time, "frames": frames});
    json!({
        "segments": [{"device": 0, "address": 4096, "total_size": first + second, "stream": 0, "segment_type": "large",
            "blocks": [block(first, &forward), block(second, &other)]}],
        "device_traces": [[alloc(4096, first, &forward, 1000), alloc(4096 + first, second, &other, 2000)]],
    })
}

#[test]
fn a_plain_snapshot_is_coloured_by_inferred_categories_that_cover_most_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.json");
    let file = path.to_str().unwrap();
    let device_of = |verb: &str| {
        let output = run(folder.path(), &[verb, file, "-o", "-"]);
        head(&String::from_utf8(output.stdout).unwrap())["devices"][0].clone()
    };
    let sentence = |device: &Value| {
        let first = device["first"].as_array().unwrap().iter();
        first
            .filter(|sentence| sentence["title"] == "Peak by category")
            .map(|sentence| sentence["text"].clone())
            .next()
    };
    for (forward_mib, other_mib, color) in [(16, 4, "category"), (4, 16, "stack")] {
        fs::write(&path, plain(forward_mib, other_mib).to_string()).unwrap();
        // The report of `memtrack categories` on the same file.
        let answer = run(folder.path(), &["categories", file, "--json"]);
        let answer: Value = serde_json::from_slice(&answer.stdout).unwrap();
        let peak = &answer["devices"][0]["moments"][0];
        assert_eq!(peak["moment"], "peak");
        let rows = peak["categories"].as_array().unwrap();
        let activation =
            rows.iter().find(|row| row["category"] == "ACTIVATION").expect("a forward pass was seen");
        assert_eq!(activation["requested_bytes"], forward_mib << 20);
        for verb in ["view", "trace-plot", "profile-plot"] {
            let device = device_of(verb);
            assert_eq!(
                (device["inferred"].as_bool(), device["color"].as_str()),
                (Some(true), Some(color)),
                "{verb}"
            );
            assert_eq!(device["categories"], json!(["activation"]));
            let text = (color == "category").then(|| {
                json!("activation 16.0 MiB (80.0 %), no category 4.0 MiB (20.0 %); inferred, the file has no categories")
            });
            assert_eq!(sentence(&device), text);
        }
    }
    // Categories that are already in the file are not inferred.
    fs::write(&path, profile(&json!({})).to_string()).unwrap();
    let device = device_of("view");
    assert_eq!((device["inferred"].as_bool(), device["color"].as_str()), (Some(false), Some("category")));
}

#[test]
fn a_page_refers_to_no_other_address() {
    let folder = tempfile::tempdir().unwrap();
    let sample = sample();
    let page = run(folder.path(), &["view", sample.to_str().unwrap(), "-o", "-"]).stdout;
    let page = String::from_utf8(page).unwrap();
    let policy =
        page.split_once("Content-Security-Policy\" content=\"").unwrap().1.split_once('"').unwrap().0;
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("http") && !policy.contains("connect-src") && !policy.contains('*'), "{policy}");
    // The only URLs are XML namespaces, which are not fetched.
    let rest = page.replace("http://www.w3.org/", "");
    assert!(
        !rest.contains("src=\"") && !rest.contains("href=\"http"),
        "the page refers to something outside"
    );
}

#[test]
fn the_head_contains_the_summary_of_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let sample = sample();
    let file = sample.to_str().unwrap();
    let page = String::from_utf8(run(folder.path(), &["view", file, "-o", "-"]).stdout).unwrap();
    let summary = String::from_utf8(run(folder.path(), &["summary", file]).stdout).unwrap();
    let head = head(&page);
    let sentences = head["devices"][0]["first"].as_array().unwrap();
    let peak = sentences.iter().find(|line| line["title"] == "Peak").unwrap();
    assert!(summary.contains(peak["text"].as_str().unwrap()), "{peak} is not in\n{summary}");
    assert_eq!(peak["show"]["view"], "timeline");
    let made_of = sentences.iter().find(|line| line["title"] == "Made of").unwrap();
    assert!(
        made_of["text"].as_str().unwrap().contains("10 blocks, which are from train.py:2 buf"),
        "{made_of}"
    );
    assert_eq!(made_of["show"]["query"], "train\\.py:2");
    let first_hint = sentences.iter().position(|line| line["title"] == "Look first at").unwrap();
    // A line without a title continues the previous line.
    let others = sentences[first_hint + 1..].iter().take_while(|line| line["title"] == "").count();
    assert!(others > 0, "{sentences:?}");
    for (place, line) in sentences[first_hint..=first_hint + others].iter().enumerate() {
        let text = format!("{}. {}", place + 1, line["text"].as_str().unwrap());
        assert!(summary.contains(&text) && line["show"].is_object(), "{line}\n{summary}");
    }
}

#[test]
fn hostile_names_are_escaped() {
    let folder = tempfile::tempdir().unwrap();
    let evil =
        "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u{1b}[31m\u{0}\u{2028}\"'&<!--";
    let event = json!({"action": "alloc", "addr": 4096, "size": 512, "stream": 0, "user_metadata": evil,
        "frames": [{"name": evil, "filename": evil, "line": 1}]});
    let snapshot = json!({"segments": [], "device_traces": [[event]], "allocator_settings": {evil: evil}});
    let path = folder.path().join("<b>&evil.json");
    fs::write(&path, snapshot.to_string()).unwrap();
    let page = run(folder.path(), &["view", path.to_str().unwrap(), "-o", "-"]).stdout;
    let page = String::from_utf8(page).unwrap();
    assert!(!page.contains("alert(1)</script>") && !page.contains("<img") && !page.contains("<b>&evil"));
    assert_eq!(head(&page)["settings"][evil], evil);
    assert!(page.contains("<title>&lt;b&gt;&amp;evil.json · memtrack</title>"));
    // No segment contains the block, so it is not live after any event.
    let first = &head(&page)["devices"][0]["first"][0];
    let text = "1 block (512 B) allocated in the trace, neither freed in it nor held by a segment";
    assert_eq!((&first["title"], &first["text"]), (&json!("Not shown"), &json!(text)));
}

#[test]
fn an_empty_snapshot_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["empty", "empty_no_devices", "empty_segment_list"] {
        let file = oracle("snapshots/synth").join(format!("{name}.pickle"));
        let output = run(folder.path(), &["view", file.to_str().unwrap(), "-o", "-"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(head(&String::from_utf8(output.stdout).unwrap())["devices"], json!([]));
    }
}

/// A command that serves a page, killed when the test ends.
struct Serving {
    child: Child,
    port: u16,
    path: String,
}

impl Serving {
    fn start() -> Self {
        let sample = sample();
        let mut child = Command::new(memtrack())
            .args(["view", sample.to_str().unwrap(), "--serve"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let rest = line.trim().strip_prefix("http://127.0.0.1:").expect("an address of this machine");
        let (port, path) = rest.split_once('/').unwrap();
        Self { child, port: port.parse().unwrap(), path: format!("/{path}") }
    }

    /// Sends a request and returns the status and the body of the response.
    fn request(&self, text: &str) -> (u16, Vec<u8>) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        let end = response.windows(4).position(|window| window == b"\r\n\r\n").expect("a whole head") + 4;
        let head = String::from_utf8_lossy(&response[..end]).into_owned();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), response.split_off(end))
    }

    fn get(&self, path: &str, host: &str) -> (u16, Vec<u8>) {
        self.request(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_served_page_needs_its_secret_path_and_host() {
    let serving = Serving::start();
    let (own_host, path) = (format!("127.0.0.1:{}", serving.port), serving.path.clone());
    assert!(path.len() >= 32 + 2, "{path} has no random word");
    let (status, page) = serving.get(&path, &own_host);
    assert_eq!(status, 200);
    let page = String::from_utf8(page).unwrap();
    let head = head(&page);
    assert!(
        head["served"] == true
            && page.contains("connect-src 'self'")
            && !page.contains("id=\"memtrack-section-")
    );
    let sections = head["sections"].as_array().unwrap();
    for (number, section) in sections.iter().enumerate() {
        let (status, packed) = serving.get(&format!("{path}section/{number}"), &own_host);
        let mut unpacked = Vec::new();
        flate2::read::DeflateDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
        assert_eq!((status, json!(unpacked.len())), (200, section["bytes"].clone()));
    }
    let beyond = format!("{path}section/{}", sections.len());
    for (path, host, expected) in [
        (&*path, "evil.example", 421),
        (&*path, "127.0.0.1", 421),
        ("/", &*own_host, 404),
        ("/0123456789abcdef0123456789abcdef/", &*own_host, 404),
        (&*beyond, &*own_host, 404),
        (&*format!("{path}section/x"), &*own_host, 404),
        (&*format!("{path}../../etc/passwd"), &*own_host, 404),
    ] {
        assert_eq!(serving.get(path, host).0, expected, "{path} of {host}");
    }
    assert_eq!(serving.request(&format!("POST {path} HTTP/1.1\r\nHost: {own_host}\r\n\r\n")).0, 405);
    assert_eq!(serving.request(&format!("GET {path} HTTP/1.1\r\n\r\n")).0, 421, "no host at all");
    assert_eq!(serving.request("nonsense\r\n\r\n").0, 400);
    assert_eq!(serving.request(&format!("GET {path} HTTP/1.1\r\nX: {}", "a".repeat(20_000))).0, 431);
    let (status, content) =
        serving.request(&format!("HEAD {path} HTTP/1.1\r\nHost: localhost:{}\r\n\r\n", serving.port));
    assert_eq!((status, content.len()), (200, 0));
}
