//! Prints a report of what holds the memory to the program's stderr, both when memory runs out (before anything else
//! happens) and at a dump. The report is formatted by a function that a higher layer registers ([`set_formatter`]); this
//! module decides when, how often, and within which limits the report is printed.
//!
//! First comes a line that needs neither memory nor locks, since the program may end at any moment. Then, if there is
//! memory for it, the report follows. It is made from a snapshot without events, and symbolizing its functions takes at
//! most [`SYMBOL_TIME`]. It is made after the hook has ended and while no lock is held. It waits for the session's lock
//! only briefly, because a thread that runs out of memory may hold locks of the dynamic linker or of the program that
//! other threads wait for.

use super::exit::lock_session_within;
use super::pace::Pace;
use super::session::has_memory;
use super::{Hook, OutOfMemory, RECORDER};
use crate::clock;
use crate::host::reserve;
use crate::scope::{self, ScopeKind, ScopeNode};
use crate::stack::separate_stack;
use crate::{message, reentry};
use memtrack_model::event::{DeviceId, EventFlags, ScopeId, StreamId};
use memtrack_model::snapshot::Snapshot;
use memtrack_model::units::Bytes;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The number of out-of-memory reports that are always printed. Later reports may take a fiftieth of the program's time.
const UNTHROTTLED_REPORTS: u64 = 3;
/// The maximum time for symbolizing functions.
pub const SYMBOL_TIME: Duration = Duration::from_millis(500);
/// How long to wait for the session's lock when a device is out of memory: another thread may be taking a snapshot.
const SESSION_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait for the session's lock inside a program's `malloc`.
const HEAP_SESSION_TIMEOUT: Duration = Duration::from_millis(50);
/// How long to wait for the stream's lock.
const STREAM_TIMEOUT: Duration = Duration::from_secs(1);
/// The stack needed to symbolize functions, with a margin.
const STACK_BYTES: u64 = 768 << 10;
/// The maximum number of scopes whose memory is added up when there is no memory for the report.
const MAX_SCOPES: usize = 256;

/// The context of a report.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReportContext<'a> {
    /// The request that failed, or `None` if the report is made at a dump.
    pub refused: Option<&'a OutOfMemory>,
    /// The moment from which growth is reported, in ticks, and its name; `None` if the formatter chooses the moment.
    pub since: Option<(u64, &'static str)>,
}

/// Formats a report: whole lines, each with the prefix `memtrack: `. Empty if there is nothing to report.
pub type FormatReport = fn(&Snapshot, ReportContext<'_>) -> String;

static FORMATTER: OnceLock<FormatReport> = OnceLock::new();

/// Registers the function that formats the report; later registrations have no effect. Without one, no report is
/// printed.
pub fn set_formatter(formatter: FormatReport) {
    // It does not matter which one is registered: all produce the same output.
    let _ = FORMATTER.set(formatter);
}

/// The reports that a session has printed.
#[derive(Debug, Default)]
pub(super) struct PrintedReports {
    /// The number of out-of-memory errors that were reported.
    times: u64,
    /// The number of out-of-memory errors since the last report that were not reported.
    skipped: u64,
    pace: Pace,
    /// The moment of the last report, in ticks, and its name.
    last: Option<(u64, &'static str)>,
}

/// Reports that a device ran out of memory.
pub(super) fn at_oom(oom: &OutOfMemory) {
    let _inside = reentry::enter();
    report(oom, SESSION_TIMEOUT, || has_memory().is_ok());
}

/// Reports that the host's heap refused a request.
pub(super) fn at_refusal(requested_bytes: u64) {
    let has_stack = Hook::enter().is_some_and(|hook| hook.has_stack(STACK_BYTES));
    let _inside = reentry::enter();
    let oom = OutOfMemory::new(DeviceId::HOST, StreamId(0), requested_bytes, 0, 0);
    // Enough for a snapshot and some symbolized functions.
    let has_memory = || {
        let wanted_bytes = 2 * usize::try_from(super::own_bytes()).unwrap_or(0) + (64 << 20);
        !reserve::ran_out() && reserve::is_available(wanted_bytes)
    };
    match has_stack {
        true => report(&oom, HEAP_SESSION_TIMEOUT, has_memory),
        false => separate_stack::run(|| report(&oom, HEAP_SESSION_TIMEOUT, || false)),
    }
}

fn report(oom: &OutOfMemory, timeout: Duration, has_room: impl FnOnce() -> bool) {
    let begun = Instant::now();
    let Some(skipped) = begin_report(timeout) else { return };
    let now = clock::ticks();
    let more = SkippedBefore(skipped);
    message::print_without_allocating(format_args!("{oom}{}{more}", CurrentScope(scope::current_node())));
    let holdings = if has_room() { holdings(timeout) } else { None };
    match (holdings, FORMATTER.get()) {
        (Some((snapshot, since)), Some(formatter)) => {
            message::print_lines(&formatter(&snapshot, ReportContext { refused: Some(oom), since }));
        }
        (None, _) => print_largest_scopes(oom.device),
        _ => {}
    }
    // Write the events so far to the file, in case the program ends now.
    if oom.device.is_accelerator() {
        RECORDER.get().stream_all_chunks_within(STREAM_TIMEOUT);
    }
    if let Some(mut session) = lock_session_within(timeout)
        && let Some(running) = session.as_mut()
    {
        running.reports.pace.done(begun.elapsed());
        running.reports.last = Some((now, "memory last ran out"));
    }
}

/// Decides whether this out-of-memory error is reported. If so, returns the number of errors since the last report that
/// were not reported.
fn begin_report(timeout: Duration) -> Option<u64> {
    let mut session = lock_session_within(timeout)?;
    let running = session.as_mut().filter(|running| running.options.reports_on_oom())?;
    let reports = &mut running.reports;
    if reports.times >= UNTHROTTLED_REPORTS && !reports.pace.is_due() {
        reports.skipped += 1;
        return None;
    }
    reports.times += 1;
    Some(std::mem::take(&mut reports.skipped))
}

/// Returns a snapshot of the live memory without events, and the moment and name of the last report.
fn holdings(timeout: Duration) -> Option<(Snapshot, Option<(u64, &'static str)>)> {
    FORMATTER.get()?;
    let session = lock_session_within(timeout)?;
    let running = session.as_ref()?;
    Some((RECORDER.get().snapshot_without_events(&running.options, &running.baseline), running.reports.last))
}

/// Prints what holds the memory in a snapshot that is about to be dumped, if the session's options request it. The
/// caller must hold no lock.
pub fn at_dump(snapshot: &Snapshot) {
    let _inside = reentry::enter();
    let since = {
        let Some(mut session) = lock_session_within(SESSION_TIMEOUT) else { return };
        let Some(running) = session.as_mut().filter(|running| running.options.reports_on_oom()) else {
            return;
        };
        let now = clock::ticks();
        running.reports.last.replace((now, "the last dump"))
    };
    if let Some(formatter) = FORMATTER.get() {
        message::print_lines(&formatter(snapshot, ReportContext { refused: None, since }));
    }
}

impl PrintedReports {
    /// Prints how often memory ran out without a report. The caller must hold no lock.
    pub(super) fn print_skipped(self) {
        if self.skipped > 0 {
            let times = self.skipped;
            let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
            message::print(format_args!("requests were refused {times} more, which is not reported"));
        }
    }
}

/// Formats the number of skipped reports.
struct SkippedBefore(u64);

impl fmt::Display for SkippedBefore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str("; and once before, which was not reported"),
            times => write!(f, "; and {times} times before, which were not reported"),
        }
    }
}

/// Formats the thread's current scope: the names on its path, outermost first. Does not allocate.
struct CurrentScope(Option<&'static ScopeNode>);

impl fmt::Display for CurrentScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(_) => write!(f, ", in {}", Path(self.0)),
        }
    }
}

/// Returns the thread's current scope as [`CurrentScope`] formats it; empty outside of scopes.
pub(super) fn scope_text() -> String {
    CurrentScope(scope::current_node()).to_string()
}

/// The maximum number of scopes printed in a path: the innermost ones.
const MAX_PATH_NAMES: usize = 16;

/// Formats a scope's path, such as `encoder.attn.matmul`.
struct Path(Option<&'static ScopeNode>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = [""; MAX_PATH_NAMES];
        let mut count = 0;
        for node in scope::outwards(self.0).filter(|node| node.kind != ScopeKind::Root).take(MAX_PATH_NAMES) {
            names[count] = node.name();
            count += 1;
        }
        for (place, name) in names[..count].iter().rev().enumerate() {
            if place > 0 {
                f.write_str(".")?;
            }
            // Names come from the program, and may contain anything.
            name.chars()
                .try_for_each(|c| fmt::Write::write_char(f, if c.is_control() { '\u{fffd}' } else { c }))?;
        }
        Ok(())
    }
}

/// Prints which scopes hold the most memory of a device: the only report possible without memory. Sampled blocks are
/// omitted, so the sums cover only the blocks that are tracked individually.
fn print_largest_scopes(device: DeviceId) {
    let mut sums = [(ScopeId::NONE, 0_u64); MAX_SCOPES];
    let mut all = 0_u64;
    let recorder = RECORDER.get();
    recorder.live.for_each(|block_device, live| {
        if block_device != device || live.pending_free || live.flags.contains(EventFlags::SAMPLED) {
            return;
        }
        all = all.saturating_add(live.size_bytes);
        let start = live.scope.index() % MAX_SCOPES;
        let mut places = (0..MAX_SCOPES).map(|step| (start + step) % MAX_SCOPES);
        // If there are more than [`MAX_SCOPES`] scopes, which is rare, the scopes found last are omitted; the sums of
        // the others stay correct.
        if let Some(place) = places.find(|&place| sums[place].1 == 0 || sums[place].0 == live.scope) {
            sums[place] = (live.scope, sums[place].1.saturating_add(live.size_bytes));
        }
    });
    sums.sort_unstable_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    message::print_without_allocating(format_args!(
        "there is not enough memory to list lines; {} in blocks that are tracked individually:",
        Bytes(all)
    ));
    for &(scope, bytes) in sums.iter().take(3).filter(|(_, bytes)| *bytes > 0) {
        match scope::node_of(scope) {
            Some(node) => {
                message::print_without_allocating(format_args!("  {} in {}", Bytes(bytes), Path(Some(node))))
            }
            None => message::print_without_allocating(format_args!("  {} outside of scopes", Bytes(bytes))),
        }
    }
}
