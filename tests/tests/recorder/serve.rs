//! The program's memory over HTTP: who is answered, how many at a time, and what the responses contain.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::exports::heap::REST;
use memtrack_core::recorder::{Options, record_alloc, record_free};
use memtrack_core::serve::{ServeOptions, Server, respond};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::recording::load_from;
use memtrack_tests::alone;
use memtrack_tests::child::run_well;
use memtrack_tests::http::{HttpResponse, get, read, send};
use memtrack_tests::pprof::{Profile, Sample};
use memtrack_tests::time::wait_for;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");
const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);

/// Starts monitoring the devices alone, whose blocks only the test allocates.
fn monitor(options: Options) {
    memtrack_core::start_monitor_with(&options.without_host_heap()).unwrap();
}

fn serve() -> Server {
    memtrack_core::serve("127.0.0.1:0").unwrap()
}

fn alloc(number: u64, size_bytes: u64) {
    record_alloc(DEVICE, STREAM, 0x10_0000 * (number + 1), size_bytes);
}

fn free(number: u64, size_bytes: u64) {
    record_free(DEVICE, STREAM, 0x10_0000 * (number + 1), size_bytes);
}

fn profile(response: &HttpResponse) -> Profile {
    assert_eq!(response.status, 200, "{:?}", String::from_utf8_lossy(&response.body));
    assert_eq!(response.header("Content-Type"), Some("application/octet-stream"));
    Profile::parse(&response.body)
}

/// Returns whether the sample stands for allocations whose stacks are not known.
fn is_rest(profile: &Profile, sample: &Sample) -> bool {
    profile.functions(sample).first().is_some_and(|function| function.0 == REST)
}

#[test]
fn a_profile_has_the_blocks_that_the_program_holds() {
    alone!();
    monitor(Options::new());
    let server = serve();
    (0..10).for_each(|number| alloc(number, 1000 + number));
    (0..4).for_each(|number| free(number, 1000 + number));
    for (path, first) in [("/debug/pprof/heap", "inuse_space"), ("/debug/pprof/allocs?gc=1", "alloc_space")] {
        let profile = profile(&get(server.local_addr(), path));
        assert_eq!(profile.sums()["device 0"], [10, 10_045, 6, 6_039]);
        assert!(!profile.sample.iter().any(|sample| is_rest(&profile, sample)));
        assert_eq!(profile.text(profile.default_sample_type), first);
        let functions = profile.functions(&profile.sample[0]);
        assert!(functions.iter().any(|function| function.0.ends_with("serve::alloc")), "{functions:?}");
    }
    memtrack_core::stop();
}

#[test]
fn totals_are_exact_although_the_ring_has_dropped_events() {
    alone!();
    monitor(Options::new().max_entries(100));
    let server = serve();
    for round in 0..10_000 {
        alloc(round, 100);
        if round >= 50 {
            free(round - 50, 100);
        }
    }
    let profile = profile(&get(server.local_addr(), "/debug/pprof/heap"));
    assert_eq!(profile.sums()["device 0"], [10_000, 1_000_000, 50, 5_000]);
    let rest: Vec<&Sample> = profile.sample.iter().filter(|sample| is_rest(&profile, sample)).collect();
    let [rest] = rest[..] else { panic!("{} samples without a stack", rest.len()) };
    // Chunks that are being filled are kept too, so somewhat more than the bound is known.
    assert!(rest.value[0] > 5_000 && rest.value[2..] == [0, 0], "{:?}", rest.value);
    let comments = profile.comments();
    assert!(
        comments.contains(&"device 0: alloc: counted exactly: 976.6 KiB in 10,000 blocks"),
        "{comments:?}"
    );
    memtrack_core::stop();
}

#[test]
fn a_difference_has_what_was_allocated_meanwhile() {
    alone!();
    monitor(Options::new());
    let address = serve_forever();
    (0..100).for_each(|number| alloc(number, 7));
    let done = AtomicBool::new(false);
    let (response, allocated) = thread::scope(|scope| {
        let request = scope.spawn(|| {
            let response = get(address, "/debug/pprof/heap?seconds=1");
            done.store(true, Ordering::Release);
            response
        });
        let mut number = 100;
        while !done.load(Ordering::Acquire) {
            alloc(number, 1000);
            number += 1;
            thread::sleep(Duration::from_millis(1));
        }
        (request.join().unwrap(), number - 100)
    });
    let profile = profile(&response);
    // The blocks of 7 bytes are older. How many of the others are counted depends on when the snapshots were taken.
    let [blocks, bytes, blocks_in_use, bytes_in_use] = profile.sums()["device 0"];
    assert!(blocks > 0 && blocks <= allocated as i64, "{blocks} of {allocated}");
    assert_eq!([bytes, blocks_in_use, bytes_in_use], [blocks * 1000, blocks, blocks * 1000]);
    assert!(profile.duration_nanos >= 1_000_000_000);
    memtrack_core::stop();
}

/// Serves until the process ends.
fn serve_forever() -> SocketAddr {
    let server = serve();
    let address = server.local_addr();
    std::mem::forget(server);
    address
}

#[test]
fn metrics_have_the_sums() {
    alone!();
    monitor(Options::new().max_entries(100));
    let server = serve();
    (0..1000).for_each(|number| alloc(number, 10));
    (0..300).for_each(|number| free(number, 10));
    let metrics = get(server.local_addr(), "/metrics");
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!((metrics.status, metrics.header("Content-Type")), (200, Some(content_type)));
    for (name, value) in [
        ("live_bytes", 7000.0),
        ("live_blocks", 700.0),
        ("allocated_bytes_total", 10_000.0),
        ("freed_bytes_total", 3000.0),
        ("allocations_total", 1000.0),
        ("frees_total", 300.0),
        ("events_recorded_total", 1300.0),
    ] {
        assert_eq!(metrics.metric(&format!("memtrack_{name}{{device=\"0\"}}")), Some(value), "{name}");
    }
    assert_eq!(metrics.metric("memtrack_monitored"), Some(1.0));
    for positive in ["process_resident_bytes", "process_virtual_bytes", "own_bytes", "start_time_seconds"] {
        assert!(metrics.metric(&format!("memtrack_{positive}")).unwrap() > 0.0, "{positive}");
    }
    assert!(metrics.metric("memtrack_events_dropped_total{device=\"0\"}").unwrap() >= 0.0);
    assert!(metrics.text().ends_with("# EOF\n"));
    memtrack_core::stop();
    let metrics = get(server.local_addr(), "/metrics");
    assert_eq!(metrics.metric("memtrack_monitored"), Some(0.0));
    assert_eq!(metrics.metric("memtrack_live_bytes{device=\"0\"}"), None);
}

#[test]
fn the_recording_and_the_page_can_be_fetched() {
    alone!();
    monitor(Options::new());
    let server = serve();
    alloc(1, 4711);
    let file = get(server.local_addr(), "/snapshot.memtrack");
    let (snapshot, report): (Snapshot, _) = load_from(&file.body[..]).unwrap();
    assert!(report.complete && snapshot.blocks.iter().any(|block| block.size_bytes == 4711));
    let page = get(server.local_addr(), "/");
    assert_eq!((page.status, page.header("Content-Type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.text().contains("id=\"memtrack-head\""));
    memtrack_core::stop();
}

#[test]
fn only_requests_that_name_the_server_are_answered() {
    alone!();
    let server = ServeOptions::new().allow_host("metrics.example").serve("127.0.0.1:0").unwrap();
    let address = server.local_addr();
    let with_host =
        |host: &str| send(address, &format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n")).status;
    for host in ["localhost", "127.0.0.1", &address.to_string(), "metrics.example", "metrics.example:80"] {
        assert_eq!(with_host(host), 200, "{host}");
    }
    for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "", "[::2]"] {
        assert_eq!(with_host(host), 421, "{host}");
    }
    let twice = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    assert_eq!(send(address, twice).status, 421);
    assert_eq!(send(address, "GET /metrics HTTP/1.1\r\n\r\n").status, 421);
}

#[test]
fn bad_requests_get_clear_words() {
    alone!();
    let server = serve();
    let address = server.local_addr();
    for (request, status, words) in [
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "only GET and HEAD"),
        ("nonsense\r\n\r\n", 400, "no HTTP request"),
        ("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "/debug/pprof/heap"),
        ("GET /debug/pprof/heap?seconds=0 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "from 1 to 300"),
        ("GET /debug/pprof/heap?debug=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "go tool pprof"),
        ("GET /debug/pprof/heap HTTP/1.1\r\nHost: localhost\r\n\r\n", 503, "start_monitor()"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 503, "start_on_request"),
    ] {
        let response = send(address, request);
        assert_eq!(response.status, status, "{request}");
        assert!(response.text().contains(words), "{request}: {}", response.text());
    }
    let long = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {}", "a".repeat(40_000));
    assert_eq!(send(address, &long).status, 431);
    let head = send(address, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert!(head.header("Content-Length").unwrap().parse::<usize>().unwrap() > 100);
}

#[test]
fn an_address_that_cannot_be_served_on_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = memtrack_core::serve(&address).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    let text = error.to_string();
    assert!(text.starts_with(&format!("cannot serve on {address}: ")) && text.contains("port 0"), "{text}");
    for (address, words) in [("6060", "write it as"), ("203.0.113.1:0", "this machine does not have")] {
        let error = memtrack_core::serve(address).unwrap_err().to_string();
        assert!(error.contains(address) && error.contains(words), "{error}");
    }
}

#[test]
fn a_stopped_server_frees_its_port() {
    for _ in 0..20 {
        let server = serve();
        let address = server.local_addr();
        assert_eq!(get(address, "/metrics").status, 200);
        server.stop();
        assert!(TcpStream::connect(address).is_err());
        TcpListener::bind(address).unwrap();
    }
}

#[test]
fn ten_scrapers_are_answered_at_once() {
    alone!();
    monitor(Options::new());
    let server = serve();
    alloc(1, 1234);
    let address = server.local_addr();
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..30 {
                    let metrics = get(address, "/metrics");
                    assert_eq!(metrics.status, 200);
                    assert_eq!(metrics.metric("memtrack_live_bytes{device=\"0\"}"), Some(1234.0));
                }
            });
        }
    });
    memtrack_core::stop();
}

#[test]
fn a_flood_of_profiles_is_refused_and_metrics_are_still_answered() {
    alone!();
    monitor(Options::new());
    let address = serve_forever();
    // Four requests for profiles are answered at a time, and these take longer than the test.
    let (mut waiting, mut refused) = (Vec::new(), None);
    wait_for("a request is refused", || {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = b"GET /debug/pprof/heap?seconds=300 HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        match stream.peek(&mut [0]) {
            Ok(1) => refused = Some(stream),
            _ => waiting.push(stream),
        }
        refused.is_some()
    });
    let refused = refused.unwrap();
    refused.set_read_timeout(None).unwrap();
    let refusal = read(refused);
    assert!(waiting.len() >= 4, "{}", waiting.len());
    assert_eq!(refusal.status, 503);
    assert_eq!(refusal.header("Retry-After"), Some("1"));
    assert!(refusal.text().contains("too many requests"), "{}", refusal.text());
    assert_eq!(get(address, "/metrics").status, 200);
    drop(waiting);
    memtrack_core::stop();
}

#[test]
fn clients_that_send_nothing_leave_room_for_others_until_all_connections_are_taken() {
    alone!();
    let address = serve_forever();
    let silent = || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /metrics HT").unwrap();
        stream
    };
    let mut held: Vec<TcpStream> = (0..40).map(|_| silent()).collect();
    assert_eq!(get(address, "/metrics").status, 200);
    // Beyond 64 connections, the refusal comes at once, before the request has been read.
    let mut refused = None;
    wait_for("all connections are taken", || {
        let mut stream = silent();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut first = [0; 12];
        match stream.read(&mut first) {
            Ok(read) if read > 0 => refused = Some(first),
            _ => held.push(stream),
        }
        refused.is_some()
    });
    assert_eq!(&refused.unwrap(), b"HTTP/1.1 503");
    drop(held);
    wait_for("there is room again", || {
        TcpStream::connect(address).is_ok_and(|mut stream| {
            let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
            stream.write_all(request).is_ok() && read(stream).status == 200
        })
    });
}

#[test]
fn the_first_request_starts_monitoring_and_it_ends_when_idle() {
    alone!();
    let options = Options::new().without_host_heap();
    let start = || ServeOptions::new().start_on_request(options.clone(), Duration::from_millis(20));
    let server = start().serve("127.0.0.1:0").unwrap();
    let address = server.local_addr();
    let monitored = || get(address, "/metrics").metric("memtrack_monitored").unwrap() == 1.0;
    alloc(1, 10);
    assert!(!monitored(), "metrics do not start monitoring");
    for _ in 0..3 {
        assert_eq!(get(address, "/debug/pprof/heap").status, 200);
        wait_for("monitoring has ended", || !monitored());
    }
    // The program's own monitoring is used, and goes on.
    monitor(Options::new());
    alloc(2, 20);
    assert_eq!(profile(&get(address, "/debug/pprof/heap")).sums()["device 0"], [1, 20, 1, 20]);
    drop(server);
    assert!(memtrack_core::snapshot().is_some());
    assert_eq!(memtrack_core::stop().snapshot().blocks.len(), 1);
    // Dropping what has started monitoring stops it.
    let endpoints =
        ServeOptions::new().start_on_request(options.clone(), Duration::from_secs(3600)).endpoints();
    assert_eq!(endpoints.respond("/debug/pprof/allocs").status, 200);
    assert!(memtrack_core::snapshot().is_some());
    drop(endpoints);
    assert!(memtrack_core::snapshot().is_none());
}

#[test]
fn a_program_can_serve_the_responses_itself() {
    alone!();
    assert_eq!(respond("/debug/pprof/heap").status, 503);
    monitor(Options::new());
    alloc(3, 300);
    let response = respond("/debug/pprof/heap");
    assert_eq!((response.status, response.content_type), (200, "application/octet-stream"));
    assert_eq!(Profile::parse(&response.into_body()).sums()["device 0"], [1, 300, 1, 300]);
    assert_eq!(respond("/rest").status, 404);
    memtrack_core::stop();
}

#[test]
fn the_servers_memory_is_not_the_programs() {
    run_well(CHILD, &["serve_heap"], Path::new("."));
}

#[test]
fn a_forked_child_does_not_keep_the_port() {
    run_well(CHILD, &["serve_fork"], Path::new("."));
}

#[test]
fn a_program_ends_while_requests_are_being_answered() {
    run_well(CHILD, &["serve_exit"], Path::new("."));
}
