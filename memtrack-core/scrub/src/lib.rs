//! Snapshots for sharing. Before a snapshot is written, paths and the names of functions, scopes, threads, tasks and marks are
//! replaced with pseudonyms, and process IDs and the time of day with other numbers. Scrubbing is a function from
//! snapshot to snapshot, so it applies to every writer and every report. Sizes, relative times, line numbers and the
//! structure are kept, so reports are the same except for the names.
//!
//! The repository's docs/EXPORT.md lists the facts that a reader of a scrubbed snapshot can still infer.

mod frames;
mod native;
mod paths;
mod pseudonyms;
mod public;
mod pytorch;

use memtrack_file::operators::{Entry, LoggedTensor, OperatorLine, append, read_lines};
use memtrack_frames::framework_operators::matches;
use memtrack_model::NameFrames;
use memtrack_model::event::StackId;
use memtrack_model::optrace::OperatorTrace;
use memtrack_model::snapshot::{
    Clock, EventCategories, KnownNames, OperatorLines, OperatorLog, Snapshot, StackTable, StringTable,
};
use pseudonyms::Pseudonyms;
use std::collections::HashMap;
use std::path::Path;

/// The default key. Because it is well known, anyone can confirm a guessed name.
const DEFAULT_KEY: &str = "memtrack";

/// The start time of scrubbed snapshots, in nanoseconds since the Unix epoch: 1 January 2000.
const START_NS: u64 = 946_684_800_000_000_000;

/// A scrubber for snapshots, which replaces everything that identifies the user or the user's code.
///
/// ```
/// # use memtrack_model::Snapshot;
/// # use memtrack_scrub::Scrub;
/// # use memtrack_symbols::Symbolizer;
/// let mut snapshot = Snapshot::default();
/// snapshot.meta.program = "/home/ana/secret/train".into();
/// let symbols = &mut Symbolizer::of(&snapshot);
/// let scrubbed = Scrub::new().key("a long secret").keep("my_public_crate::*").snapshot(snapshot, symbols);
/// assert!(!scrubbed.meta.program.contains("secret"));
/// ```
#[derive(Clone, Debug)]
pub struct Scrub {
    keep: Vec<String>,
    pseudonyms: Pseudonyms,
}

impl Default for Scrub {
    fn default() -> Self {
        Self::new()
    }
}

impl Scrub {
    /// Creates a scrubber that keeps the names of well-known public libraries (PyTorch, candle, burn, Rust's and
    /// Python's standard libraries …) and replaces other names with pseudonyms. The pseudonyms are derived from a
    /// well-known key, so anyone can confirm a guessed name.
    #[must_use]
    pub fn new() -> Self {
        Self { keep: Vec::new(), pseudonyms: Pseudonyms::new(DEFAULT_KEY) }
    }

    /// Also keeps names that match `glob`: functions, files and everything below a folder, as in [`Rules`], as well as
    /// the names of scopes, threads, tasks and marks.
    ///
    /// [`Rules`]: memtrack_frames::ownership::Rules
    #[must_use]
    pub fn keep(mut self, glob: impl Into<String>) -> Self {
        self.keep.push(glob.into());
        self
    }

    /// Derives pseudonyms from `key`. With the same key, a name has the same pseudonym in every snapshot. Without the
    /// key, a guessed name cannot be confirmed.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.pseudonyms = Pseudonyms::new(key);
        self
    }

    /// Returns the snapshot with pseudonyms. The frames of a recording are first looked up in `names`. The result
    /// contains the scrubbed frames instead of addresses and binaries. A symbolizer that [`Symbolizer::of`] creates from
    /// the result returns the scrubbed frames. Scrubbing twice has the same result as scrubbing once.
    ///
    /// [`Symbolizer::of`]: memtrack_symbols::Symbolizer::of
    #[must_use]
    pub fn snapshot(&mut self, snapshot: Snapshot, names: &mut dyn NameFrames) -> Snapshot {
        if snapshot.pytorch.is_some() {
            self.scrub_pytorch(snapshot)
        } else {
            self.scrub_recording(snapshot, names)
        }
    }

    /// Moves the times in an operator trace to the start time of scrubbed snapshots, if they are times of day.
    /// Everything else is kept, because the names are scrubbed in the snapshot that is made from the trace.
    pub fn times(&self, trace: &mut OperatorTrace) {
        let Some(first) =
            trace.records.first().map(|record| record.time_ns).filter(|_| trace.header.unix_time)
        else {
            return;
        };
        // Shift by a whole number of microseconds, so that the times are rounded as before.
        let offset = first.div_euclid(1000).saturating_mul(1000).saturating_sub(START_NS as i64);
        for record in &mut trace.records {
            record.time_ns = record.time_ns.saturating_sub(offset);
            record.end_ns = record.end_ns.map(|end| end.saturating_sub(offset));
        }
    }

    /// Returns the path of a file with its private parts replaced, for use in titles.
    #[must_use]
    pub fn file(&mut self, path: &Path) -> String {
        self.scrub_path(&path.to_string_lossy())
    }

    /// Returns the number of pseudonyms that are longer than usual because another name already had the same first
    /// digits.
    #[must_use]
    pub fn collisions(&self) -> usize {
        self.pseudonyms.collisions
    }

    fn scrub_recording(&mut self, mut snapshot: Snapshot, names: &mut dyn NameFrames) -> Snapshot {
        // Number the frames, because addresses and build IDs identify the binaries.
        let mut numbers: HashMap<u64, u64> = HashMap::new();
        let mut stacks = StackTable::default();
        let mut known = KnownNames::default();
        for stack in 1..snapshot.stacks.len() {
            let addresses = snapshot.stacks.get(StackId(stack as u32));
            let numbered: Vec<u64> = addresses
                .iter()
                .map(|&address| {
                    let next = numbers.len() as u64 + 1;
                    *numbers.entry(address).or_insert_with(|| {
                        let frames =
                            names.frames(address).iter().map(|frame| self.scrub_frame(frame)).collect();
                        known.frames.insert(next, frames);
                        next
                    })
                })
                .collect();
            stacks.push(&numbered);
        }
        snapshot.stacks = stacks;
        snapshot.names = known;
        snapshot.modules.clear();
        // Drop these tables: a valid recording does not have them, and in a damaged recording no row refers to them.
        (snapshot.strings, snapshot.frames, snapshot.named) =
            (StringTable::default(), Default::default(), Default::default());
        self.scrub_common(&mut snapshot);
        snapshot.clock = shift_clock(snapshot.clock);
        snapshot
    }

    /// Scrubs the parts that recordings and PyTorch's snapshots have in common.
    fn scrub_common(&mut self, snapshot: &mut Snapshot) {
        let meta = &mut snapshot.meta;
        meta.program = self.scrub_path(&meta.program);
        meta.pid = self.pseudonyms.scrub_number(meta.pid.into()) as u32;
        if !meta.memtrack_version.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit()) {
            meta.memtrack_version.clear();
        }
        if !matches!(meta.context.as_str(), "none" | "state" | "alloc" | "all") {
            meta.context.clear();
        }
        for thread in &mut snapshot.threads {
            thread.name = self.scrub_label("thread", &thread.name);
            thread.os_id = self.pseudonyms.scrub_number(thread.os_id);
        }
        for scope in &mut snapshot.scopes.rows {
            scope.name = self.scrub_label("scope", &scope.name);
        }
        for name in &mut snapshot.marks.names {
            *name = self.scrub_label("mark", name);
        }
        for place in &mut snapshot.tasks.places {
            place.name = self.scrub_label("task", &place.name);
            place.file = self.scrub_path(&place.file);
        }
        snapshot.operators = self.scrub_operators(&snapshot.operators);
        if let Some(categories) = snapshot.categories.take() {
            let names = categories.names.iter().map(|name| self.scrub_label("name", name)).collect();
            let _ = snapshot.categories.set(EventCategories { names, of_event: categories.of_event });
        }
    }

    /// Returns whether one of the user's globs keeps `name`.
    fn keeps_label(&self, name: &str) -> bool {
        self.keep.iter().any(|glob| matches(glob, name))
    }

    /// Scrubs a name that the program chose, part by part. For example, `layers.0.attention` has three parts. Numbers
    /// are kept.
    fn scrub_label(&mut self, kind: &'static str, name: &str) -> String {
        if name.is_empty() || public::is_common(name) || self.keeps_label(name) {
            return name.to_owned();
        }
        if is_pytorch_operator(name) {
            return name.to_owned();
        }
        let part = |part: &str| {
            let is_number = (1..=4).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
            if is_number || public::is_common(part) || public::is_class(part) || is_step(part) {
                return part.to_owned();
            }
            self.pseudonyms.pseudonym(kind, part)
        };
        name.split('.').map(part).collect::<Vec<_>>().join(".")
    }

    /// Scrubs the names of modules, parameters and states in the operator log. Unknown lines are omitted.
    fn scrub_operators(&mut self, log: &OperatorLog) -> OperatorLog {
        let mut pieces = Vec::with_capacity(log.pieces.len());
        for piece in &log.pieces {
            let mut out = Vec::with_capacity(piece.lines.len());
            for line in read_lines(piece.base_ticks, &piece.lines) {
                let new = self.scrub_operator_line(&line.entry);
                append(&mut out, piece.base_ticks, line.ticks, line.thread, new.bytes());
            }
            if !out.is_empty() {
                pieces.push(OperatorLines { base_ticks: piece.base_ticks, lines: out });
            }
        }
        OperatorLog { pieces, left_out: log.left_out }
    }

    fn scrub_operator_line(&mut self, entry: &Entry<'_>) -> OperatorLine {
        let mut scrub_owned = |owned: &memtrack_file::operators::Registration<'_>| {
            (owned.owner, self.scrub_label("class", owned.class), self.scrub_label("state", owned.name))
        };
        let (mut line, tensors): (OperatorLine, Vec<&LoggedTensor>) = match entry {
            Entry::Enter(scope) => (OperatorLine::enter(*scope), Vec::new()),
            Entry::Leave(scope) => (OperatorLine::leave(*scope), Vec::new()),
            Entry::Inputs(tensors) => (OperatorLine::inputs(), tensors.iter().collect()),
            Entry::Outputs(tensors) => (OperatorLine::outputs(), tensors.iter().collect()),
            Entry::Parameter(owned, tensor, gradient) => {
                let (owner, class, name) = scrub_owned(owned);
                (
                    OperatorLine::parameter(owner, &class, &name),
                    [tensor].into_iter().chain(gradient).collect(),
                )
            }
            Entry::Buffer(owned, tensor) => {
                let (owner, class, name) = scrub_owned(owned);
                (OperatorLine::buffer(owner, &class, &name), vec![tensor])
            }
            Entry::State(owned, parameter, state) => {
                let (owner, class, name) = scrub_owned(owned);
                (OperatorLine::state(owner, &class, &name), vec![parameter, state])
            }
            Entry::Gradient(parameter, gradient) => {
                (OperatorLine::gradient(), parameter.iter().chain([gradient]).collect())
            }
        };
        for tensor in tensors {
            line.with(&tensor.info, tensor.written);
        }
        line
    }
}

/// Returns whether a name is one of PyTorch's operators, such as `aten::mm` or `nccl::all_reduce`.
fn is_pytorch_operator(name: &str) -> bool {
    let Some((root, rest)) = name.split_once("::") else { return false };
    matches!(root, "aten" | "prim" | "c10d" | "nccl")
        && rest.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_' || byte.is_ascii_digit())
}

/// Returns whether a name denotes a step, such as `ProfilerStep#3`, which PyTorch's profiler writes, `step 3` or
/// `iteration_12`. Reports find steps by these names.
fn is_step(name: &str) -> bool {
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = name.len() - stem.len();
    let stem = stem.strip_suffix(['#', '_', '-', ' ']).unwrap_or(stem);
    number <= 9 && matches!(stem, "ProfilerStep" | "step" | "iteration")
}

/// Moves the clock to the start time of scrubbed snapshots. The shift is a whole number of microseconds, so that
/// seconds are rounded as before.
fn shift_clock(clock: Clock) -> Clock {
    if clock == Clock::default() {
        return clock;
    }
    let first = START_NS + clock.first.1 % 1000;
    let since = clock.last.1.saturating_sub(clock.first.1);
    Clock { first: (clock.first.0, first), last: (clock.last.0, first.saturating_add(since)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::{DeviceId, ScopeId, ThreadId};
    use memtrack_model::operators::{Dtype, TensorInfo};

    #[test]
    fn log_of_operators_keeps_its_tensors_and_loses_its_names() {
        let tensor = TensorInfo::new(7, DeviceId::HOST, Dtype::Bf16, &[2, 3][..]).storage(0x7f00, 4096);
        let mut written = [
            OperatorLine::parameter(9, "SecretLayer", "blocks.3.secret"),
            OperatorLine::buffer(9, "Linear", "secret_mean"),
            OperatorLine::state(4, "SecretAdam", "exp_avg"),
            OperatorLine::inputs(),
            OperatorLine::enter(ScopeId(5)),
        ];
        for (line, tensors) in written.iter_mut().zip([2, 1, 2, 3, 0]) {
            (0..tensors).for_each(|number| assert!(line.with(&tensor, number == 0)));
        }
        let mut bytes = Vec::new();
        for (ticks, line) in (1_000u64..).zip(&written) {
            append(&mut bytes, 900, ticks, ThreadId(1), line.bytes());
        }
        let pieces = vec![OperatorLines { base_ticks: 900, lines: bytes }];
        let log = OperatorLog { pieces, left_out: 3 };
        let mut scrub = Scrub::new();
        let scrubbed = scrub.scrub_operators(&log);
        assert_eq!(scrub.scrub_operators(&scrubbed), scrubbed, "twice is once");
        let text = String::from_utf8_lossy(&scrubbed.pieces[0].lines).into_owned();
        assert!(
            !text.to_lowercase().contains("secret") && text.contains("exp_avg") && text.contains("Linear"),
            "{text}"
        );
        let read = |log: &OperatorLog| -> Vec<_> {
            let piece = &log.pieces[0];
            let tensors = |entry: &Entry<'_>| match entry {
                Entry::Parameter(owned, tensor, gradient) => {
                    (owned.owner, vec![tensor.clone(); 1 + gradient.iter().count()])
                }
                Entry::Buffer(owned, tensor) => (owned.owner, vec![tensor.clone()]),
                Entry::State(owned, one, other) => (owned.owner, vec![one.clone(), other.clone()]),
                Entry::Inputs(tensors) | Entry::Outputs(tensors) => (0, tensors.clone()),
                _ => (0, Vec::new()),
            };
            read_lines(piece.base_ticks, &piece.lines)
                .map(|line| (line.ticks, line.thread, tensors(&line.entry)))
                .collect()
        };
        assert_eq!(read(&log), read(&scrubbed));
        assert_eq!((read(&log).len(), scrubbed.left_out), (5, 3));
    }
}
