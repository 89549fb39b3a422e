//! Who holds the memory, said in the program's log: when it runs out, before anything else is done, and at a dump. What is
//! said is put together above ([`told_by`]); here is when, how often, and with which bounds.
//!
//! First comes a line that needs neither memory nor locks, since the program may be gone in the next moment. Then, if there
//! is room for it, the paragraph: of a snapshot without events, whose functions are named for [`NAMING`] at most. It is
//! made after the hook and under no lock; the session's is only tried, because a thread that runs out of memory may hold
//! locks of the loader's or of the program's that others wait for.

use super::ending::session_within;
use super::pace::Pace;
use super::session::has_memory;
use super::{Hook, OutOfMemory, RECORDER, clock};
use crate::host::reserve;
use crate::scope::{self, ScopeKind, ScopeNode};
use crate::stack::own_stack;
use crate::{message, reentry};
use memtrack_model::event::{DeviceId, EventFlags, ScopeId, StreamId};
use memtrack_model::snapshot::Snapshot;
use memtrack_model::units::Bytes;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Times that memory ran out that are told at once; later ones take a fiftieth of the time.
const AT_ONCE: u64 = 3;
/// How long functions may be named.
pub const NAMING: Duration = Duration::from_millis(500);
/// How long the session is waited for when a device is out of memory, while another thread may take a snapshot.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same in the middle of a program's request for memory.
const HEAP_PATIENCE: Duration = Duration::from_millis(50);
/// How long the stream is waited for.
const STREAM_PATIENCE: Duration = Duration::from_secs(1);
/// What naming functions takes of a thread's stack, in bytes, with room to spare.
const STACK_BYTES: u64 = 768 << 10;
/// Scopes that are added up where there is no memory for more.
const SCOPES: usize = 256;

/// What is asked of whoever puts the paragraph together.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Telling<'a> {
    /// What could not be had, if memory ran out.
    pub refused: Option<&'a OutOfMemory>,
    /// The moment, in ticks, that growth is counted from, and what it was; none: the paragraph's own choice.
    pub since: Option<(u64, &'static str)>,
}

/// Puts the paragraph together: whole lines, each with `memtrack: ` before it. Empty where there is nothing to say.
pub type Teller = fn(&Snapshot, Telling<'_>) -> String;

static TELLER: OnceLock<Teller> = OnceLock::new();

/// Has the paragraph put together by `teller`; the first one that is named stays. Without one it is not said.
pub fn told_by(teller: Teller) {
    // Which one it was does not matter: they say the same.
    let _ = TELLER.set(teller);
}

/// What a session has said of who holds memory.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// How often memory ran out and it was said.
    times: u64,
    /// How often it was not since the last time.
    left_out: u64,
    pace: Pace,
    /// The last time, in ticks, and what it was.
    last: Option<(u64, &'static str)>,
}

/// A device ran out of memory.
pub(super) fn at_oom(oom: &OutOfMemory) {
    let _inside = reentry::enter();
    tell(oom, PATIENCE, || has_memory().is_ok());
}

/// The host's heap refused a request.
pub(super) fn at_refusal(requested_bytes: u64) {
    let has_stack = Hook::enter().is_some_and(|hook| hook.has_stack(STACK_BYTES));
    let _inside = reentry::enter();
    let oom = OutOfMemory::new(DeviceId::HOST, StreamId(0), requested_bytes, 0, 0);
    // As much as a snapshot and the names of some functions take, whatever happened before.
    let has_memory = || {
        let wanted_bytes = 2 * usize::try_from(crate::host::own_bytes()).unwrap_or(0) + (64 << 20);
        !reserve::ran_out() && reserve::can_take(wanted_bytes)
    };
    match has_stack {
        true => tell(&oom, HEAP_PATIENCE, has_memory),
        false => own_stack::run(|| tell(&oom, HEAP_PATIENCE, || false)),
    }
}

fn tell(oom: &OutOfMemory, patience: Duration, has_room: impl FnOnce() -> bool) {
    let begun = Instant::now();
    let Some(left_out) = claim(patience) else { return };
    let now = clock::ticks();
    let more = More(left_out);
    message::say_at_once(format_args!("{oom}{}{more}", Inside(scope::current_node())));
    let held = if has_room() { held(patience) } else { None };
    match (held, TELLER.get()) {
        (Some((snapshot, since)), Some(teller)) => {
            message::say_lines(&teller(&snapshot, Telling { refused: Some(oom), since }));
        }
        (None, _) => largest_scopes(oom.device),
        _ => {}
    }
    // What led here is in the file, whatever becomes of the program now.
    if oom.device.is_accelerator() {
        RECORDER.get().stream_parts_within(STREAM_PATIENCE);
    }
    if let Some(mut session) = session_within(patience)
        && let Some(running) = session.as_mut()
    {
        running.told.pace.done(begun.elapsed());
        running.told.last = Some((now, "memory last ran out"));
    }
}

/// Whether it is to be said now that memory ran out, and how often it was not since the last time.
fn claim(patience: Duration) -> Option<u64> {
    let mut session = session_within(patience)?;
    let running = session.as_mut().filter(|running| running.options.tells_who_holds())?;
    let told = &mut running.told;
    if told.times >= AT_ONCE && !told.pace.is_due() {
        told.left_out += 1;
        return None;
    }
    told.times += 1;
    Some(std::mem::take(&mut told.left_out))
}

/// What is held, and when it was last said.
fn held(patience: Duration) -> Option<(Snapshot, Option<(u64, &'static str)>)> {
    TELLER.get()?;
    let session = session_within(patience)?;
    let running = session.as_ref()?;
    Some((RECORDER.get().holdings(&running.options, &running.baseline), running.told.last))
}

/// Says who holds the memory of a snapshot that is about to be dumped, if the session's options say so. The caller holds no
/// lock.
pub fn at_dump(snapshot: &Snapshot) {
    let _inside = reentry::enter();
    let since = {
        let Some(mut session) = session_within(PATIENCE) else { return };
        let Some(running) = session.as_mut().filter(|running| running.options.tells_who_holds()) else {
            return;
        };
        let now = clock::ticks();
        running.told.last.replace((now, "the last dump"))
    };
    if let Some(teller) = TELLER.get() {
        message::say_lines(&teller(snapshot, Telling { refused: None, since }));
    }
}

impl Told {
    /// Says how often memory ran out that was not told, once. The caller holds no lock.
    pub(super) fn tell_left_out(self) {
        if self.left_out > 0 {
            let times = self.left_out;
            let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
            message::say(format_args!("requests were refused {times} more; these were not reported"));
        }
    }
}

/// How often it was not said.
struct More(u64);

impl fmt::Display for More {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str("; and once before, which was not reported"),
            times => write!(f, "; and {times} times before, which were not reported"),
        }
    }
}

/// Where the thread is: the names of its scopes, outermost first, without memory.
struct Inside(Option<&'static ScopeNode>);

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(_) => write!(f, ", in {}", Path(self.0)),
        }
    }
}

/// Scopes that a path shows at most, the innermost.
const DEEPEST: usize = 16;

/// A scope's path, as `encoder.attn.matmul`.
struct Path(Option<&'static ScopeNode>);

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = [""; DEEPEST];
        let mut count = 0;
        for node in scope::outwards(self.0).filter(|node| node.kind != ScopeKind::Root).take(DEEPEST) {
            names[count] = node.name();
            count += 1;
        }
        for (place, name) in names[..count].iter().rev().enumerate() {
            if place > 0 {
                f.write_str(".")?;
            }
            // Names are the program's, and may be anything.
            name.chars()
                .try_for_each(|c| fmt::Write::write_char(f, if c.is_control() { '\u{fffd}' } else { c }))?;
        }
        Ok(())
    }
}

/// Says which scopes hold the most of a device: all that can be said without memory. Sampled blocks are left out, so it
/// is what is followed one by one.
fn largest_scopes(device: DeviceId) {
    let mut sums = [(ScopeId::NONE, 0_u64); SCOPES];
    let mut all = 0_u64;
    let recorder = RECORDER.get();
    recorder.live.each(|of, live| {
        if of != device || live.pending_free || live.flags.contains(EventFlags::SAMPLED) {
            return;
        }
        all = all.saturating_add(live.size_bytes);
        let start = live.scope.index() % SCOPES;
        let mut places = (0..SCOPES).map(|step| (start + step) % SCOPES);
        // More scopes than fit are rare, and not told: what is said of the others stays true.
        if let Some(place) = places.find(|&place| sums[place].1 == 0 || sums[place].0 == live.scope) {
            sums[place] = (live.scope, sums[place].1.saturating_add(live.size_bytes));
        }
    });
    sums.sort_unstable_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    message::say_at_once(format_args!(
        "there is too little room to say by which lines; {} in blocks that are followed one by one:",
        Bytes(all)
    ));
    for &(scope, bytes) in sums.iter().take(3).filter(|(_, bytes)| *bytes > 0) {
        match scope::node_of(scope) {
            Some(node) => message::say_at_once(format_args!("  {} in {}", Bytes(bytes), Path(Some(node)))),
            None => message::say_at_once(format_args!("  {} outside of scopes", Bytes(bytes))),
        }
    }
}
