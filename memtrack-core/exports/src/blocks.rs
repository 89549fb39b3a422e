//! CSV: a row for each block, in the order of their allocation, those that are older than the trace last. Columns
//! keep their names and their order; new ones come at the end. Unknown values are empty.
//!
//! **Why the crate csv?** Texts of programs contain quotes and line ends. (csv 1.4, MIT or Unlicense.)

use crate::ExportOptions;
use memtrack_model::Snapshot;
use memtrack_model::event::{Action, DeviceId, StackId};
use memtrack_report::analysis::attribution::{Attributor, Source};
use memtrack_report::analysis::lifetimes::{Lifetime, lifetimes};
use memtrack_report::analysis::origin::{Origin, Origins};
use memtrack_report::analysis::ownership::{Owners, short};
use memtrack_report::analysis::patterns::Patterns;
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;
use std::io::{self, Write};
use std::rc::Rc;

/// The columns. Events are numbered as in the device's trace, times are nanoseconds since the start of the recording
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
    let mut named = OriginTexts {
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
            let names = named.of(snapshot, lifetime, origins.origin(lifetime), symbols);
            let ends = trace.ends(snapshot, lifetime);
            let thread =
                lifetime.from.map(|row| snapshot.events.thread[row]).filter(|thread| !thread.is_none());
            let thread = thread.and_then(|thread| snapshot.threads.get(thread.index()));
            let category = lifetime.category(snapshot).unwrap_or_default();
            let address = format!("{:#x}", lifetime.address(snapshot));
            let stream = format!("{:#x}", lifetime.stream(snapshot).0);
            // With a decimal point in every row: a reader that infers types from the first rows (DuckDB from 20,480)
            // would read a column that begins with whole ones as integers, and silently round the rest.
            let (size, blocks) = (lifetime.size_bytes.to_string(), format!("{:?}", lifetime.blocks));
            let ends = ends.map(|(event, ns)| (number(event), number(ns)));
            let [allocated, requested, completed] = &ends;
            table.write_record([
                &ordinal[..],
                &device_name,
                &address,
                &size,
                &blocks,
                truth(lifetime.estimated),
                &stream,
                truth(lifetime.from.is_none()),
                &allocated.0,
                &allocated.1,
                &requested.0,
                &requested.1,
                &completed.0,
                &completed.1,
                thread.map_or("", |thread| &thread.name),
                &names.operator,
                &names.module,
                &names.phase,
                &category,
                &names.line,
                &names.called,
            ])?;
        }
    }
    table.flush()
}

const fn truth(is_true: bool) -> &'static str {
    if is_true { "true" } else { "false" }
}

fn number(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}

/// The known origin of a block.
#[derive(Default)]
struct OriginText {
    operator: String,
    module: String,
    phase: String,
    line: String,
    called: String,
}

/// The origins of blocks, found once for each scope and stack.
struct OriginTexts<'a> {
    attributor: Attributor<'a>,
    owners: Owners<'a>,
    known: HashMap<(u32, Origin), Rc<OriginText>, foldhash::fast::RandomState>,
}

impl OriginTexts<'_> {
    fn of(
        &mut self,
        snapshot: &Snapshot,
        lifetime: &Lifetime,
        origin: Origin,
        symbols: &mut Symbolizer,
    ) -> Rc<OriginText> {
        let place = (lifetime.scope.0, origin);
        if let Some(names) = self.known.get(&place) {
            return Rc::clone(names);
        }
        let mut names = OriginText::default();
        let stack = if let Origin::Allocated(stack) = origin { stack } else { StackId::NONE };
        if !stack.is_none() {
            let owned = self.owners.owner(&snapshot.frame_keys(stack), symbols);
            names.line = owned.mine.as_ref().map(short).unwrap_or_default();
            names.called = owned.called.as_ref().map(short).unwrap_or_default();
        }
        // The scope of a free is its own, not the block's.
        if lifetime.known {
            let (operator, source) = self.attributor.operator(lifetime.scope, stack, symbols);
            if source != Source::Unattributed {
                names.operator = operator;
            }
            if !snapshot.scopes.place(lifetime.scope).modules.is_empty() {
                names.module = self.attributor.module(lifetime.scope, stack, symbols);
            }
            if let Some(phase) = self.attributor.phase(lifetime.scope, stack, symbols) {
                names.phase = phase.name().to_owned();
            }
        }
        let names = Rc::new(names);
        self.known.insert(place, Rc::clone(&names));
        names
    }
}

/// An event by its number, and its time.
type End = (Option<u64>, Option<u64>);

/// The events of a device by their numbers.
struct Trace {
    /// By row; 0 in rows of other devices.
    numbers: Vec<u64>,
    /// For requests to free, by row, the row that completed it.
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
                // The request at that address was never completed in the trace.
                Action::Alloc => {
                    waiting.remove(&address);
                }
                // In PyTorch's form, which determines the numbers of events, it is a request and its completion.
                Action::Free => next += 1,
                _ => {}
            }
            next += 1;
        }
        trace
    }

    /// Returns the allocation, the request of the free, and its completion.
    fn ends(&self, snapshot: &Snapshot, lifetime: &Lifetime) -> [End; 3] {
        let start = snapshot.clock.first.1;
        let end = |row: usize, later: u64| {
            let ns = || snapshot.clock.time_ns(snapshot.events.ticks[row]).saturating_sub(start);
            (Some(self.numbers[row] + later), snapshot.has_time(row).then(ns))
        };
        let allocated = lifetime.from.map_or((None, None), |row| end(row, 0));
        let (requested, completed) = match lifetime.to.map(|row| (row, snapshot.events.action[row])) {
            Some((row, Action::Free)) => (end(row, 0), end(row, 1)),
            Some((row, Action::FreeRequested)) => {
                (end(row, 0), self.completed.get(&row).map_or((None, None), |&row| end(row, 0)))
            }
            Some((row, Action::FreeCompleted)) => ((None, None), end(row, 0)),
            // Another block took its address, so the time of its free is unknown.
            _ => ((None, None), (None, None)),
        };
        [allocated, requested, completed]
    }
}
