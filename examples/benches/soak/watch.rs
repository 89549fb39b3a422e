//! The watcher: starts the service, reads its rows, and finally checks that all measurements stayed flat and that the
//! recording is complete. The watcher also has the tracking allocator, but records nothing.

use crate::rows::{Column, NAMES, Row};
use crate::{Plan, judge, picture, service};
use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// An error that prevents the checks.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The maximum time from one row to the next, beyond the interval between rows, and for the service to exit.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The duration of one wait. The timeout counts waits, not time, because both processes may be suspended for a while.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs the service and returns whether all checks passed.
pub fn watch(plan: &Plan) -> Result<bool, Failure> {
    let folder = std::path::absolute(&plan.folder)?;
    let recordings = service::recordings(&folder);
    if recordings.exists() {
        fs::remove_dir_all(&recordings)?;
    }
    fs::create_dir_all(&recordings)?;
    let mut service = Command::new(std::env::current_exe()?)
        .args(["--serve", "--seconds", &plan.lasts.as_secs_f64().to_string(), "--output"])
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let lines = lines_of(&mut service);
    let (rows, device_blocks) = read(&lines, plan, &mut service)?;
    fs::write(folder.join("soak.svg"), picture::svg(&rows))?;
    let results = judge::judge(&rows, plan.checks_times);
    let newest = rows.last().copied().unwrap_or_default();
    println!("{} laps in {:.0} s, {} rows", newest[Column::Lap], newest[Column::Seconds], rows.len());
    println!("{}", judge::head());
    results.iter().for_each(|result| println!("{result}"));
    let is_complete = recording_is_complete(&service::recording(&folder), device_blocks)?;
    println!("{}", folder.join("soak.svg").display());
    Ok(is_complete && results.iter().all(judge::CheckResult::holds))
}

/// Returns a channel of the lines that the service prints; a separate thread reads them.
fn lines_of(service: &mut Child) -> Receiver<String> {
    let (sender, lines) = channel();
    if let Some(output) = service.stdout.take() {
        let read = move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        };
        thread::spawn(read);
    }
    lines
}

/// Reads all rows, and the number of the device's blocks that the service reported.
fn read(lines: &Receiver<String>, plan: &Plan, service: &mut Child) -> Result<(Vec<Row>, u64), Failure> {
    let mut table = File::create(plan.folder.join("rows.csv"))?;
    writeln!(table, "{}", NAMES.join(","))?;
    let mut rows: Vec<Row> = Vec::new();
    let (mut blocks, mut waits) = (None, Duration::ZERO);
    loop {
        match lines.recv_timeout(PAUSE) {
            Ok(line) => {
                waits = Duration::ZERO;
                if let Some(count) = line.strip_prefix(service::END) {
                    blocks = Some(count.parse()?);
                    continue;
                }
                let row = Row::read(&line).ok_or(format!("the service printed '{line}'"))?;
                if rows.len().is_multiple_of(30) {
                    println!("{}", so_far(&row));
                }
                writeln!(table, "{row}")?;
                rows.push(row);
            }
            // A forked process may keep the pipe open after the service has ended.
            Err(why) => {
                if why == RecvTimeoutError::Disconnected {
                    thread::sleep(PAUSE);
                }
                waits += PAUSE;
                if let Some(status) = service.try_wait()? {
                    let ended = format!("the service ended with {status} after {} rows", rows.len());
                    return Ok((rows, blocks.filter(|_| status.success()).ok_or(ended)?));
                }
                if waits > plan.lasts / 100 + TIMEOUT {
                    return Err(hangs(service, rows.len()));
                }
            }
        }
    }
}

fn so_far(row: &Row) -> String {
    let mib = |column| row[column] / f64::from(1 << 20);
    format!(
        "{:6.0} s, lap {}: {:.1} MiB of memtrack's own, {:.1} MiB on disk, {:.0} ns an event",
        row[Column::Seconds],
        row[Column::Lap],
        mib(Column::OwnBytes),
        mib(Column::FileBytes),
        row[Column::DeviceEvent],
    )
}

/// Aborts a service that makes no progress, so that it can leave a core file.
#[allow(unsafe_code)]
fn hangs(service: &mut Child, rows: usize) -> Failure {
    // SAFETY: the service is a child of this process and has not been waited for, so its pid has not been reused.
    unsafe { libc::kill(service.id() as libc::pid_t, libc::SIGABRT) };
    let ended = service.wait();
    format!("the service hangs after {rows} rows, and was aborted ({ended:?})").into()
}

/// Returns whether the recording is undamaged and contains every block.
fn recording_is_complete(path: &Path, device_blocks: u64) -> Result<bool, Failure> {
    let (snapshot, report) = Snapshot::load(path)?;
    let device = snapshot.devices.iter().find(|device| device.device == DeviceId(0));
    let (blocks, frees) = device.map_or((0, 0), |device| (device.allocations, device.frees));
    let live = snapshot.blocks.iter().filter(|block| block.device == DeviceId(0)).count();
    println!(
        "the recording: {} events in {} parts, {} earlier parts removed; {blocks} blocks of the device, {frees} freed, {live} live",
        snapshot.events.len(),
        report.parts,
        snapshot.meta.earlier_parts,
    );
    println!("beyond the bounds: {:?}", snapshot.folded);
    let holds = !report.damaged && blocks == device_blocks && frees == device_blocks && live == 0;
    if !holds {
        println!("INCOMPLETE: the service reported {device_blocks} blocks of the device; {report:?}");
    }
    Ok(holds)
}
