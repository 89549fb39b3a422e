//! The tools that read what a program serves about itself: `go tool pprof`, promtool and Prometheus.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{Options, record_alloc, record_free};
use memtrack_core::serve::Server;
use memtrack_tests::alone;
use memtrack_tests::http::{get, send};
use memtrack_tests::time::wait_for;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// Serves a program that has allocated 100 blocks of 1,000 bytes and freed 40 of them, and four on another device.
fn serve() -> Server {
    memtrack_core::start_monitor_with(&Options::new().without_host_heap()).unwrap();
    (1..=100).for_each(allocate_block);
    (1..=40).for_each(|number| record_free(DeviceId(0), StreamId(0), number << 20, 1000));
    (1..=4).for_each(|number| record_alloc(DeviceId(1), StreamId(0), number << 20, 1 << 30));
    memtrack_core::serve("127.0.0.1:0").unwrap()
}

#[inline(never)]
fn allocate_block(number: u64) {
    record_alloc(DeviceId(0), StreamId(0), number << 20, 1000);
}

#[test]
#[cfg_attr(not(go), ignore = "opens the profiles, needs go")]
fn go_tool_pprof_opens_both_profiles() {
    alone!();
    let server = serve();
    let folder = tempfile::tempdir().unwrap();
    let pprof = |arguments: &[&str], path: &str| {
        let output = Command::new("go")
            .args(["tool", "pprof", "-tagfocus=device 0"])
            .args(arguments)
            .arg(format!("http://{}{path}", server.local_addr()))
            .env("PPROF_TMPDIR", folder.path())
            .env("HOME", folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let [text, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(output.status.success(), "{arguments:?} {path}: {text}{errors}");
        text
    };
    let row = |text: &str| {
        let row = text.lines().find(|line| line.contains("serve_tools::allocate_block"));
        row.and_then(|row| row.split_whitespace().nth(3)).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    for (path, kind, bytes) in [
        ("/debug/pprof/heap", "Type: inuse_space", "60000B"),
        ("/debug/pprof/allocs", "Type: alloc_space", "100000B"),
    ] {
        let text = pprof(&["-top", "-unit=B"], path);
        assert!(text.contains(kind), "{text}");
        assert_eq!(row(&text), bytes, "{text}");
    }
    for (sample, count) in [("inuse_objects", "60"), ("alloc_objects", "100")] {
        let index = format!("-sample_index={sample}");
        assert_eq!(row(&pprof(&["-top", &index], "/debug/pprof/heap")), count);
    }
    // Nothing changes meanwhile.
    let difference = pprof(&["-raw", "-seconds=1"], "/debug/pprof/heap");
    let (_, samples) = difference.split_once("Samples:").unwrap();
    assert!(samples.lines().nth(2).is_some_and(|line| line.starts_with("Locations")), "{difference}");
    let comments = pprof(&["-comments"], "/debug/pprof/heap");
    assert!(comments.contains("device 0: alloc: counted exactly: 97.7 KiB in 100 blocks"), "{comments}");
    memtrack_core::stop();
}

#[test]
#[cfg_attr(not(promtool), ignore = "checks the metrics, needs promtool")]
fn promtool_finds_no_mistake_in_the_metrics() {
    alone!();
    let server = serve();
    // As curl requests them.
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
    let metrics = send(server.local_addr(), request);
    assert_eq!(metrics.header("Content-Type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(metrics.metric("memtrack_live_bytes{device=\"0\"}"), Some(60_000.0));
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    promtool.stdin.take().unwrap().write_all(&metrics.body).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let printed = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    assert!(output.status.success() && printed.is_empty(), "{printed}\n{}", metrics.text());
    memtrack_core::stop();
}

/// A program that is killed when the test ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
#[cfg_attr(not(prometheus), ignore = "scrapes the metrics, needs prometheus")]
fn prometheus_scrapes_the_metrics_and_answers_queries() {
    alone!();
    let server = serve();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prometheus.yml");
    let target = server.local_addr();
    fs::write(
        &config,
        format!(
            "scrape_configs:\n- job_name: service\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  \
             static_configs:\n  - targets: ['{target}']\n"
        ),
    )
    .unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let prometheus = Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={free}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let _prometheus = Running(prometheus);
    wait_for("Prometheus listens", || TcpStream::connect(free).is_ok());
    let mut up = Vec::new();
    wait_for("Prometheus has scraped the program", || {
        up = query(free, "up");
        up == ["1"]
    });
    for (expression, expected) in [
        ("memtrack_live_bytes%7Bdevice=%220%22%7D", &["60000"][..]),
        ("sum(memtrack_live_bytes)", &["4295027296"]),
        ("memtrack_allocations_total%7Bdevice=%220%22%7D-memtrack_frees_total", &["60"]),
        ("max_over_time(memtrack_monitored%5B1m%5D)", &["1"]),
        ("count(memtrack_process_resident_bytes%3E1e6)", &["1"]),
    ] {
        assert_eq!(query(free, expression), expected, "{expression}");
    }
    let metadata = json(free, "/api/v1/metadata?metric=memtrack_allocated_bytes");
    let metadata = &metadata["data"]["memtrack_allocated_bytes"][0];
    assert_eq!((&metadata["type"], &metadata["unit"]), (&"counter".into(), &"bytes".into()), "{metadata}");
    memtrack_core::stop();
}

/// Returns the values of a PromQL expression.
fn query(prometheus: SocketAddr, expression: &str) -> Vec<String> {
    let answer = json(prometheus, &format!("/api/v1/query?query={expression}"));
    let Some(rows) = answer["data"]["result"].as_array() else { return Vec::new() };
    rows.iter().filter_map(|row| Some(row["value"][1].as_str()?.to_owned())).collect()
}

fn json(prometheus: SocketAddr, path: &str) -> Value {
    // Prometheus may send its answer in chunks, around the text.
    let response = get(prometheus, path);
    let text = String::from_utf8_lossy(&response.body);
    let object = text.find('{').zip(text.rfind('}')).map(|(begin, end)| &text[begin..=end]);
    object.and_then(|object| serde_json::from_str(object).ok()).unwrap_or_default()
}
