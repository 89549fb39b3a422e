//! The width of reports, and how many frames of a long stack they show.

#![allow(unsafe_code)]

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder::{Context, Options, record_alloc};
use memtrack_core::{scope, start_monitor_with, stop};
use memtrack_tests::{child, memtrack};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::Command;

/// Returns a function name that is too long for any line.
fn long_name() -> String {
    format!("at::native::kernel<{}>(at::Tensor const&)", ["std::vector<long>"; 20].join(", "))
}

/// Returns the report on a block with a long C++ stack, with the variable `COLUMNS` set as given.
fn report(columns: Option<&str>, arguments: &[&str]) -> String {
    let frame = |name: &str| json!({"name": name, "filename": "??", "line": 0});
    let forwarding = "c10::impl::wrap_kernel_functor_unboxed_<long>::call(long)";
    let long = long_name();
    let mut frames = vec![frame(&long), frame(forwarding)];
    frames.extend((0..9).map(|n| frame(&format!("app::layer{n}(long)"))));
    let event =
        json!({"action": "alloc", "addr": 4096, "size": 600, "stream": 0, "time_us": 1, "frames": frames});
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    std::fs::write(&path, json!({"segments": [], "device_traces": [[event]]}).to_string()).unwrap();
    let mut command = Command::new(memtrack());
    command.arg(arguments[0]).arg(&path).args(&arguments[1..]).env_remove("COLUMNS");
    if let Some(columns) = columns {
        command.env("COLUMNS", columns);
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap()
}

#[test]
fn a_report_written_to_a_file_is_as_wide_as_a_page() {
    for verb in ["top", "peak"] {
        let text = report(None, &[verb]);
        assert!(widest(&text) <= 120 && text.contains("at::native::kernel<…>(…)"), "{text}");
    }
    let table = report(Some("80"), &["top", "--by", "frame"]);
    assert!(widest(&table) <= 80 && table.contains("kernel<…>(…)"), "{table}");
}

#[test]
fn columns_are_omitted_before_names_shrink_below_thirty_characters() {
    let table = report(Some("60"), &["top", "--by", "frame"]);
    assert!(widest(&table) <= 60 && table.contains("at::native::kernel<…>(…)"), "{table}");
    assert!(table.contains("Requested    Share") && !table.contains("Largest"), "{table}");
    let at_peak = report(Some("60"), &["top", "--by", "frame", "--at", "peak"]);
    assert!(widest(&at_peak) <= 60 && at_peak.contains("at::native::kernel<…>(…)"), "{at_peak}");
}

#[test]
fn wide_and_json_show_full_names() {
    for arguments in [["top", "--wide"], ["peak", "--wide"], ["top", "--json"], ["peak", "--json"]] {
        assert!(report(Some("80"), &arguments).contains(&long_name()), "{arguments:?}");
    }
}

#[test]
fn hidden_frames_are_counted() {
    let text = report(None, &["peak"]);
    assert!(text.contains("app::layer5(long)") && !text.contains("app::layer6"), "{text}");
    assert!(text.contains("… 3 more, 1 internal frame"), "{text}");
    let text = report(None, &["peak", "--frames", "2"]);
    assert!(text.contains("app::layer0(long)\n     … 8 more, 1 internal frame"), "{text}");
    let all = report(None, &["peak", "--frames", "0"]);
    assert!(all.contains("app::layer8") && all.contains("c10::impl::") && !all.contains(" more"), "{all}");
    let value: Value = serde_json::from_str(&report(None, &["peak", "--json"])).unwrap();
    assert_eq!(value["devices"][0]["rows"][0]["stack"].as_array().unwrap().len(), 11);
}

#[test]
#[ignore = "is run by the tests below"]
fn a_program_that_prints_its_recording() {
    start_monitor_with(&Options::new().without_host_heap().context(Context::None)).unwrap();
    let operator = scope::operator(&long_name());
    record_alloc(DeviceId(0), StreamId(0), 1 << 20, 1 << 20);
    drop(operator);
    println!("\n{}", stop());
}

#[test]
fn a_printed_recording_is_as_wide_as_a_page_or_as_columns() {
    for (columns, width) in [(None, 120), (Some("70"), 70), (Some("3"), 80), (Some("1000"), 1000)] {
        let mut program = child::this_program(a_program_that_prints_its_recording);
        program.env_remove("COLUMNS");
        if let Some(columns) = columns {
            program.env("COLUMNS", columns);
        }
        let passed = child::assert_passed(&program.output().unwrap());
        let table = table(&passed.text);
        assert!(widest(&table) <= width, "{columns:?}: {table}");
        assert_eq!(table.contains(&long_name()), width == 1000, "{columns:?}: {table}");
    }
}

/// Returns the rows of the table with its header, which is as wide as the widest row.
fn table(text: &str) -> String {
    let rows =
        text.lines().skip_while(|line| !line.contains("Requested")).take_while(|line| !line.is_empty());
    let table: Vec<&str> = rows.collect();
    assert!(table.len() > 2 && table[0].contains("Share"), "{text}");
    table.join("\n")
}

#[test]
fn a_recording_printed_on_a_terminal_is_as_wide_as_the_terminal() {
    for (columns, is_whole) in [(80, false), (1000, true)] {
        let (mut screen, shown) = terminal(columns);
        let mut program = child::this_program(a_program_that_prints_its_recording);
        let mut running = program.env_remove("COLUMNS").stdout(shown).spawn().unwrap();
        // `program` also owns the program's end of the terminal; reading ends when no process has that end open.
        drop(program);
        let mut text = Vec::new();
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut part) {
            text.extend(&part[..count]);
        }
        assert!(running.wait().unwrap().success());
        let table = table(&String::from_utf8_lossy(&text).replace('\r', ""));
        assert!(widest(&table) <= usize::from(columns), "{table}");
        assert_eq!(table.contains(&long_name()), is_whole, "{table}");
    }
}

/// Opens a terminal with this many columns; returns the end that reads the output, and the end that programs write to.
fn terminal(columns: u16) -> (File, OwnedFd) {
    let (mut reader, mut tty) = (-1, -1);
    let size = libc::winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: all pointers are valid, or null where `openpty` allows it.
    let result =
        unsafe { libc::openpty(&mut reader, &mut tty, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both descriptors are open, and nothing else owns them.
    unsafe { (File::from_raw_fd(reader), OwnedFd::from_raw_fd(tty)) }
}
