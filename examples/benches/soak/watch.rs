//! The watcher: starts the service, reads its rows, and in the end says whether all stayed flat and whether the recording
//! holds what happened. It has the tracking allocator too and starts nothing.

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

/// Why nothing can be said.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long the service may take from one row to the next beyond what it pauses between them, and to end.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long it is waited for at a time. Pauses are counted, not time: somebody may stop both processes for a while.
const PAUSE: Duration = Duration::from_secs(1);

/// Returns whether all is as it should be.
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
    let answers = judge::judge(&rows, plan.judges_times);
    let newest = rows.last().copied().unwrap_or_default();
    println!("{} laps in {:.0} s, {} rows", newest[Column::Lap], newest[Column::Seconds], rows.len());
    println!("{}", judge::head());
    answers.iter().for_each(|answer| println!("{answer}"));
    let holds_all = holds_what_happened(&service::recording(&folder), device_blocks)?;
    println!("{}", folder.join("soak.svg").display());
    Ok(holds_all && answers.iter().all(judge::Answer::holds))
}

/// What the service prints, line by line, read by a thread of its own.
fn lines_of(service: &mut Child) -> Receiver<String> {
    let (tell, lines) = channel();
    if let Some(output) = service.stdout.take() {
        let read =
            move || BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| tell.send(line));
        thread::spawn(read);
    }
    lines
}

/// All rows, and how many blocks of the device the service reported.
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
                let row = Row::read(&line).ok_or(format!("the service said '{line}'"))?;
                if rows.len().is_multiple_of(30) {
                    println!("{}", so_far(&row));
                }
                writeln!(table, "{row}")?;
                rows.push(row);
            }
            // A process that was forked may hold the pipe longer than the service lives.
            Err(why) => {
                if why == RecvTimeoutError::Disconnected {
                    thread::sleep(PAUSE);
                }
                waits += PAUSE;
                if let Some(status) = service.try_wait()? {
                    let ended = format!("the service ended with {status} after {} rows", rows.len());
                    return Ok((rows, blocks.filter(|_| status.success()).ok_or(ended)?));
                }
                if waits > plan.lasts / 100 + PATIENCE {
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

/// Ends a service that does not move, so that it leaves a core file where that is wanted.
#[allow(unsafe_code)]
fn hangs(service: &mut Child, rows: usize) -> Failure {
    // SAFETY: our child, which was not waited for.
    unsafe { libc::kill(service.id() as libc::pid_t, libc::SIGABRT) };
    let ended = service.wait();
    format!("the service hangs after {rows} rows, and was aborted ({ended:?})").into()
}

/// Whether the recording opens whole, and has counted every block.
fn holds_what_happened(path: &Path, device_blocks: u64) -> Result<bool, Failure> {
    let (snapshot, report) = Snapshot::load(path)?;
    let device = snapshot.devices.iter().find(|device| device.device == DeviceId(0));
    let (blocks, frees) = device.map_or((0, 0), |device| (device.allocations, device.frees));
    let live = snapshot.blocks.iter().filter(|block| block.device == DeviceId(0)).count();
    println!(
        "the recording: {} events in {} parts, before them {} gone; {blocks} blocks of the device, {frees} freed, {live} live",
        snapshot.events.len(),
        report.parts,
        snapshot.meta.earlier_parts,
    );
    println!("what found no room: {:?}", snapshot.folded);
    let holds = !report.damaged && blocks == device_blocks && frees == device_blocks && live == 0;
    if !holds {
        println!("NOT what happened: {device_blocks} blocks of the device; {report:?}");
    }
    Ok(holds)
}
