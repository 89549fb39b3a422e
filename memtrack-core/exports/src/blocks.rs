//! Writes CSV with a row for each block, in allocation order, except that blocks older than the trace come last. The
//! names and the order of the columns never change, and new columns are added at the end. Unknown values are empty.
//!
//! **Why the csv crate?** Texts from programs may contain quotes and line feeds. (csv 1.4, MIT or Unlicense.)

use crate::labels::Labels;
use crate::options::ExportOptions;
use memtrack_blocks::lifetimes::{Lifetime, lifetimes};
use memtrack_blocks::origin::{Origin, Origins};
use memtrack_frames::attribution::Attributor;
use memtrack_frames::framework_operators::Patterns;
use memtrack_frames::ownership::{Owners, short};
use memtrack_model::Snapshot;
use memtrack_model::event::{Action, DeviceId};
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;
use std::io::{self, Write};
use std::rc::Rc;

/// The columns. Events are numbered as in the device's trace. Times are in nanoseconds since the start of the recording
/// or, for a PyTorch snapshot, since its first event.
pub(crate) const COLUMNS: [&str; 21] = [
    "device",
    "device_name",
    "address",
    "requested_bytes",
    "blocks",
    "estimated",
    "stream",
    "older_than_trace",
    "allocated_event",
    "allocated_ns",
    "free_requested_event",
    "free_requested_ns",
    "free_completed_event",
    "free_completed_ns",
    "thread",
    "operator",
    "module",
    "phase",
    "category",
    "line",
    "called",
];

/// Writes the table.
pub(crate) fn write(
    snapshot: &Snapshot,
    symbols: &mut Symbolizer,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut table = csv::Writer::from_writer(out);
    table.write_record(COLUMNS)?;
    let patterns = Patterns::default();
    let mut origin_texts = OriginTexts {
        attributor: Attributor::new(snapshot, &patterns),
        owners: Owners::new(&options.rules),
        known: HashMap::default(),
    };
    for &(device, _) in &options.devices {
        let lifetimes = lifetimes(snapshot, device);
        let origins = Origins::of(snapshot, &lifetimes);
        let trace = Trace::of(snapshot, device);
        let (ordinal, device_name) = (snapshot.ordinal(device).to_string(), snapshot.device_name(device));
        for lifetime in &lifetimes {
            let names = origin_texts.get_or_build(snapshot, lifetime, origins.origin(lifetime), symbols);
            let events = trace.lifetime_events(snapshot, lifetime);
            let thread =
                lifetime.from.map(|row| snapshot.events.thread[row]).filter(|thread| !thread.is_none());
            let thread = thread.and_then(|thread| snapshot.threads.get(thread.index()));
            let category = lifetime.category(snapshot).unwrap_or_default();
            let address = format!("{:#x}", lifetime.address(snapshot));
            let stream = format!("{:#x}", lifetime.stream(snapshot).0);
            // The number of blocks has a decimal point in every row. Otherwise, a reader that infers types from the
            // first rows (DuckDB uses 20,480) would read a column that starts with whole numbers as integers, and
            // silently round the rest.
            let (size, blocks) = (lifetime.size_bytes.to_string(), format!("{:?}", lifetime.blocks));
            let events = events.map(|(event, ns)| (format_number(event), format_number(ns)));
            let [allocated, requested, completed] = &events;
            table.write_record([
                &ordinal[..],
                &device_name,
                &address,
                &size,
                &blocks,
                format_bool(lifetime.estimated),
                &stream,
                format_bool(lifetime.from.is_none()),
                &allocated.0,
                &allocated.1,
                &requested.0,
                &requested.1,
                &completed.0,
                &completed.1,
                thread.map_or("", |thread| &thread.name),
                names.labels.operator.as_deref().unwrap_or_default(),
                names.labels.module.as_deref().unwrap_or_default(),
                names.labels.phase.unwrap_or_default(),
                &category,
                &names.line,
                &names.called,
            ])?;
        }
    }
    table.flush()
}

const fn format_bool(is_true: bool) -> &'static str {
    if is_true { "true" } else { "false" }
}

fn format_number(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// The texts that describe a block's origin. Unknown ones are empty.
#[derive(Default)]
struct OriginText {
    labels: Labels,
    line: String,
    called: String,
}

/// A cache of origin texts, keyed by scope and stack.
struct OriginTexts<'a> {
    attributor: Attributor<'a>,
    owners: Owners<'a>,
    known: HashMap<(u32, Origin), Rc<OriginText>, foldhash::fast::RandomState>,
}

impl OriginTexts<'_> {
    fn get_or_build(
        &mut self,
        snapshot: &Snapshot,
        lifetime: &Lifetime,
        origin: Origin,
        symbols: &mut Symbolizer,
    ) -> Rc<OriginText> {
        let key = (lifetime.scope.0, origin);
        if let Some(names) = self.known.get(&key) {
            return Rc::clone(names);
        }
        let mut names = OriginText::default();
        if let Origin::Allocated(stack) = origin
            && !stack.is_none()
        {
            let owned = self.owners.owner(&snapshot.frame_keys(stack), symbols);
            names.line = owned.mine.as_ref().map(short).unwrap_or_default();
            names.called = owned.called.as_ref().map(short).unwrap_or_default();
        }
        // If only the free of a block is known, the lifetime has the scope of the free rather than that of the
        // allocation.
        if lifetime.known {
            names.labels = Labels::of(&mut self.attributor, snapshot, lifetime.scope, origin, symbols);
        }
        let names = Rc::new(names);
        self.known.insert(key, Rc::clone(&names));
        names
    }
}

/// The number of an event, and its time in ns, each `None` if it is unknown.
type EventTime = (Option<u64>, Option<u64>);

/// The numbers of a device's events.
struct Trace {
    /// For each row, the number of the event, or 0 if the row belongs to another device.
    numbers: Vec<u64>,
    /// A map from the row of a requested free to the row of its completion.
    completed: HashMap<usize, usize, foldhash::fast::RandomState>,
}

impl Trace {
    fn of(snapshot: &Snapshot, device: DeviceId) -> Self {
        let mut trace = Self { numbers: vec![0; snapshot.events.len()], completed: HashMap::default() };
        let mut next = 0;
        let mut waiting: HashMap<u64, usize, foldhash::fast::RandomState> = HashMap::default();
        for row in snapshot.events.rows_of(device) {
            trace.numbers[row] = next;
            let address = snapshot.events.address[row];
            match snapshot.events.action[row] {
                Action::FreeRequested => {
                    waiting.insert(address, row);
                }
                Action::FreeCompleted => {
                    if let Some(request) = waiting.remove(&address) {
                        trace.completed.insert(request, row);
                    }
                }
                // A new block takes the address, so the free that was requested there has completed, but the trace does
                // not contain its completion.
                Action::Alloc => {
                    waiting.remove(&address);
                }
                // Events are numbered as in PyTorch's format, in which a free is two events: a request and its
                // completion.
                Action::Free => next += 1,
                _ => {}
            }
            next += 1;
        }
        trace
    }

    /// Returns the events of a lifetime: the allocation, the free request, and the completion of the free.
    fn lifetime_events(&self, snapshot: &Snapshot, lifetime: &Lifetime) -> [EventTime; 3] {
        let start = snapshot.clock.first.1;
        let event = |row: usize, later: u64| {
            let ns = || snapshot.clock.time_ns(snapshot.events.ticks[row]).saturating_sub(start);
            (Some(self.numbers[row] + later), snapshot.has_time(row).then(ns))
        };
        let allocated = lifetime.from.map_or((None, None), |row| event(row, 0));
        let (requested, completed) = match lifetime.to.map(|row| (row, snapshot.events.action[row])) {
            Some((row, Action::Free)) => (event(row, 0), event(row, 1)),
            Some((row, Action::FreeRequested)) => {
                (event(row, 0), self.completed.get(&row).map_or((None, None), |&row| event(row, 0)))
            }
            Some((row, Action::FreeCompleted)) => ((None, None), event(row, 0)),
            // Another block was allocated at the same address, so the time of the free is unknown.
            _ => ((None, None), (None, None)),
        };
        [allocated, requested, completed]
    }
}
