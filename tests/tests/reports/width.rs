//! How wide reports are, and how much of long stacks they show.

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

/// A function that no line has room for.
fn long_name() -> String {
    format!("at::native::kernel<{}>(at::Tensor const&)", ["std::vector<long>"; 20].join(", "))
}

/// The answer about a block with a long C++ stack, with the environment's `COLUMNS` as given.
fn report(columns: Option<&str>, arguments: &[&str]) -> String {
    let frame = |name: &str| json!({"name": name, "filename": "??", "line": 0});
    let passing_on = "c10::impl::wrap_kernel_functor_unboxed_<long>::call(long)";
    let long = long_name();
    let mut frames = vec![frame(&long), frame(passing_on)];
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
fn a_report_that_goes_to_a_file_is_as_wide_as_a_page() {
    for verb in ["top", "peak"] {
        let text = report(None, &[verb]);
        assert!(widest(&text) <= 120 && text.contains("at::native::kernel<…>(…)"), "{text}");
    }
    let table = report(Some("80"), &["top", "--by", "frame"]);
    assert!(widest(&table) <= 80 && table.contains("kernel<…>(…)"), "{table}");
}

#[test]
fn columns_are_left_out_before_names_are_cut_to_less_than_thirty_letters() {
    let table = report(Some("60"), &["top", "--by", "frame"]);
    assert!(widest(&table) <= 60 && table.contains("at::native::kernel<…>(…)"), "{table}");
    assert!(table.contains("Requested    Share") && !table.contains("Largest"), "{table}");
    let at_peak = report(Some("60"), &["top", "--by", "frame", "--at", "peak"]);
    assert!(widest(&at_peak) <= 60 && at_peak.contains("at::native::kernel<…>(…)"), "{at_peak}");
}

#[test]
fn wide_and_json_show_names_whole() {
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
fn a_recording_that_is_printed_is_as_wide_as_a_page_or_as_columns_says() {
    for (columns, width) in [(None, 120), (Some("70"), 70), (Some("3"), 80), (Some("1000"), 1000)] {
        let mut program = child::this_program(a_program_that_prints_its_recording);
        program.env_remove("COLUMNS");
        if let Some(columns) = columns {
            program.env("COLUMNS", columns);
        }
        let said = child::assert_passed(&program.output().unwrap());
        let table = table(&said.text);
        assert!(widest(&table) <= width, "{columns:?}: {table}");
        assert_eq!(table.contains(&long_name()), width == 1000, "{columns:?}: {table}");
    }
}

/// The rows of the table, whose header the widest row is as wide as.
fn table(text: &str) -> String {
    let rows =
        text.lines().skip_while(|line| !line.contains("Requested")).take_while(|line| !line.is_empty());
    let table: Vec<&str> = rows.collect();
    assert!(table.len() > 2 && table[0].contains("Share"), "{text}");
    table.join("\n")
}

#[test]
fn a_recording_that_is_printed_on_a_terminal_is_as_wide_as_it() {
    for (columns, is_whole) in [(80, false), (1000, true)] {
        let (mut seen, shown) = terminal(columns);
        let mut program = child::this_program(a_program_that_prints_its_recording);
        let mut running = program.env_remove("COLUMNS").stdout(shown).spawn().unwrap();
        // It has the programs' side of the terminal, too: reading ends when nobody has it any more.
        drop(program);
        let mut text = Vec::new();
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = seen.read(&mut part) {
            text.extend(&part[..count]);
        }
        assert!(running.wait().unwrap().success());
        let table = table(&String::from_utf8_lossy(&text).replace('\r', ""));
        assert!(widest(&table) <= usize::from(columns), "{table}");
        assert_eq!(table.contains(&long_name()), is_whole, "{table}");
    }
}

/// A terminal with so many columns: what is shown on it, and its side for programs.
fn terminal(columns: u16) -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: all pointers are valid or null, as it may be.
    let made =
        unsafe { libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null(), &size) };
    assert_eq!(made, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: both are open, and nobody else's.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}
