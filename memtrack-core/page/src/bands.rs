//! Represents the scopes in a recording and the ranges of PyTorch's profiler as intervals of events.

use crate::columns::Columns;
use crate::head::Marker;
use crate::texts::Texts;
use crate::trace::Trace;
use memtrack_model::event::{DeviceId, ScopeId};
use memtrack_model::snapshot::pytorch::{Key, PyTorch};
use memtrack_model::snapshot::{ScopeKind, Snapshot, StringId};
use std::collections::HashMap;

/// The value in the column `kind` for a band that is a profiler range. The smaller values are those of [`ScopeKind`].
const PROFILER_KIND: u64 = 5;

/// The maximum number of markers for a device. A marker shows where a forward pass, a backward pass or an optimizer
/// step starts, so a training run has a few for each step.
const MAX_MARKERS: usize = 10_000;

/// The maximum number of nested profiler ranges. Ranges that are nested more deeply are omitted.
const MAX_DEPTH: usize = 256;

/// An interval of events during which a scope was open on a thread, or during which a profiler range lasted.
struct Band {
    from: u32,
    to: u32,
    depth: usize,
    thread: u32,
    name: u32,
    kind: u64,
}

/// A scope that is open on a thread.
struct OpenScope {
    scope: ScopeId,
    from: u32,
}

/// The scopes that are open on a thread.
#[derive(Default)]
struct OpenScopes {
    open: Vec<OpenScope>,
    /// The thread's latest event so far, as its index in the device's trace.
    last: u32,
}

/// The bands and markers of a device.
pub(crate) struct Bands {
    bands: Vec<Band>,
    pub(crate) markers: Vec<Marker>,
}

impl Bands {
    pub(crate) fn of(trace: &Trace<'_>, texts: &mut Texts<'_>) -> Self {
        let snapshot = trace.snapshot;
        let mut bands = Self { bands: Vec::new(), markers: Vec::new() };
        let mut threads: HashMap<u32, OpenScopes, foldhash::fast::RandomState> = HashMap::default();
        if snapshot.scopes.rows.len() > 1 {
            for (event, row, _) in trace.events() {
                let thread = snapshot.events.thread[row].0;
                let scopes = threads.entry(thread).or_default();
                bands.enter(snapshot, scopes, thread, event, snapshot.events.scope[row], texts);
                scopes.last = event;
            }
        }
        for (thread, mut scopes) in threads {
            bands.close(snapshot, &mut scopes, thread, 0, texts);
        }
        bands
    }

    /// Makes `scope` the innermost open scope of a thread. Open scopes that do not contain it end with the thread's
    /// previous event.
    fn enter(
        &mut self,
        snapshot: &Snapshot,
        scopes: &mut OpenScopes,
        thread: u32,
        event: u32,
        scope: ScopeId,
        texts: &mut Texts<'_>,
    ) {
        if scopes.open.last().map_or(ScopeId::NONE, |open| open.scope) == scope {
            return;
        }
        let path = snapshot.scopes.path(scope);
        let same = scopes.open.iter().zip(&path).take_while(|(open, scope)| open.scope == **scope).count();
        self.close(snapshot, scopes, thread, same, texts);
        for &scope in &path[same..] {
            scopes.open.push(OpenScope { scope, from: event });
            let name = match snapshot.scopes.rows[scope.index()].kind {
                ScopeKind::Root => "fw_start",
                ScopeKind::Backward => "fw_bw_boundary",
                ScopeKind::Optimizer => "optimizer",
                ScopeKind::Operator | ScopeKind::Module => continue,
            };
            if self.markers.len() < MAX_MARKERS {
                self.markers.push(Marker { event, name });
            }
        }
    }

    /// Ends the innermost open scopes until only `depth` of them are open.
    fn close(
        &mut self,
        snapshot: &Snapshot,
        scopes: &mut OpenScopes,
        thread: u32,
        depth: usize,
        texts: &mut Texts<'_>,
    ) {
        while scopes.open.len() > depth {
            let Some(open) = scopes.open.pop() else { return };
            let scope = &snapshot.scopes.rows[open.scope.index()];
            self.bands.push(Band {
                from: open.from,
                to: scopes.last,
                depth: scopes.open.len(),
                thread,
                name: texts.intern(&scope.name),
                kind: scope.kind as u64,
            });
        }
    }

    /// Adds the profiler's ranges for `device`. A range has only a start and an end time, so its events are found by
    /// their times.
    pub(crate) fn annotate(
        &mut self,
        trace: &Trace<'_>,
        pytorch: &PyTorch,
        device: DeviceId,
        texts: &mut Texts<'_>,
    ) {
        let snapshot = trace.snapshot;
        if !snapshot.has_times() {
            return;
        }
        let notes = &pytorch.annotations;
        let mut order: Vec<usize> = (0..notes.len()).collect();
        order.retain(|&row| {
            let of = notes.number(row, Key::Device) as i64;
            !notes.has(row, Key::Device) || of < 0 || u16::try_from(of) == Ok(device.0)
        });
        order.sort_by_key(|&row| notes.number(row, Key::TimeUs));
        // Times in a trace may go back a little, but the binary search needs ascending times.
        let mut newest = 0;
        let times: Vec<u64> = trace
            .rows()
            .map(|row| {
                newest = snapshot.events.ticks[row].max(newest);
                newest
            })
            .collect();
        let mut open: Vec<(StringId, u64)> = Vec::new();
        for row in order {
            let (name, time) = (notes.text(row, Key::Name), notes.number(row, Key::TimeUs));
            match snapshot.strings.bytes(notes.text(row, Key::Stage)) {
                b"START" if open.len() < MAX_DEPTH => open.push((name, time)),
                b"END" => {
                    // Ranges from different threads need not be nested, so the one that ends here need not be the
                    // innermost.
                    let Some(depth) = open.iter().rposition(|(known, _)| *known == name) else { continue };
                    let (_, begin) = open.remove(depth);
                    let from = times.partition_point(|&at| at < begin);
                    let to = times.partition_point(|&at| at <= time);
                    // A range that contains no event cannot be shown as an interval of events.
                    if from < to {
                        let name = texts.add_string(name);
                        let (from, to) = (from as u32, to as u32 - 1);
                        self.bands.push(Band { from, to, depth, thread: 0, name, kind: PROFILER_KIND });
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the bands as columns.
    pub(crate) fn into_columns(mut self) -> Columns {
        self.bands.sort_by_key(|band| (band.from, band.depth));
        let bands = &self.bands;
        let mut columns = Columns::default();
        columns.add_deltas("from", bands.iter().map(|band| band.from.into()));
        columns.add_deltas("to", bands.iter().map(|band| band.to.into()));
        columns.add_varints("depth", bands.iter().map(|band| band.depth as u64));
        columns.add_varints("thread", bands.iter().map(|band| band.thread));
        columns.add_varints("name", bands.iter().map(|band| band.name));
        columns.add_varints("kind", bands.iter().map(|band| band.kind));
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::{Event, ThreadId};
    use memtrack_model::snapshot::Scope;
    use memtrack_symbols::Symbolizer;

    #[test]
    fn band_lasts_from_first_to_last_event_in_scope() {
        let mut snapshot = Snapshot::default();
        for (parent, kind, name) in [
            (0, ScopeKind::Root, "model"),
            (1, ScopeKind::Operator, "matmul"),
            (0, ScopeKind::Backward, "backward"),
        ] {
            snapshot.scopes.rows.push(Scope { parent: ScopeId(parent), kind, name: name.into() });
        }
        // The thread and the scope of each event.
        let events = [(0, 1), (0, 2), (1, 2), (0, 1), (0, 0), (1, 2), (0, 3), (1, 0), (0, 1)];
        for (thread, scope) in events {
            let (thread, scope) = (ThreadId(thread), ScopeId(scope));
            snapshot.events.push(&Event { thread, scope, ..Event::BLANK });
        }
        let mut symbols = Symbolizer::of(&snapshot);
        let mut texts = Texts::of(&snapshot, &mut symbols);
        let bands = Bands::of(&Trace::of_all(&snapshot)[&Event::BLANK.device], &mut texts);
        let markers: Vec<_> = bands.markers.iter().map(|marker| (marker.event, marker.name)).collect();
        let expected = [(0, "fw_start"), (2, "fw_start"), (6, "fw_bw_boundary"), (8, "fw_start")];
        assert_eq!(markers, expected);
        let names = [texts.intern("model"), texts.intern("matmul"), texts.intern("backward")];
        let mut actual: Vec<_> = bands
            .bands
            .iter()
            .map(|band| {
                let name = names.iter().position(|&name| name == band.name).unwrap();
                (band.thread, band.from, band.to, band.depth, name)
            })
            .collect();
        actual.sort_unstable();
        let expected = [
            (0, 0, 3, 0, 0),
            (0, 1, 1, 1, 1),
            (0, 6, 6, 0, 2),
            (0, 8, 8, 0, 0),
            (1, 2, 5, 0, 0),
            (1, 2, 5, 1, 1),
        ];
        assert_eq!(actual, expected);
    }
}
