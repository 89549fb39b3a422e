//! The running scopes of each thread, as nested intervals. Only events have scopes, so a scope's interval goes from the
//! first to the last event that its thread recorded in it.

use super::{MonotonicClock, Times};
use memtrack_model::Snapshot;
use memtrack_model::event::{DeviceId, ScopeId, ThreadId};
use memtrack_model::snapshot::ScopeKind;
use std::collections::HashMap;

/// A lane of nested intervals. It is a thread or, in PyTorch's format, which has no threads, the trace of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lane {
    /// A thread in a recording.
    Thread(ThreadId),
    /// The trace of a device.
    Trace(DeviceId),
}

/// The start or end of a scope. In each lane, these are in chronological order, and an inner scope ends before an outer
/// one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ScopeEvent {
    /// A scope is entered.
    Begin { lane: Lane, scope: ScopeId, ns: u64 },
    /// A scope is left.
    End { lane: Lane, scope: ScopeId, from_ns: u64, ns: u64 },
}

/// The state of a lane while the events are being visited.
#[derive(Default)]
struct LaneState {
    open: Vec<(ScopeId, u64)>,
    clock: MonotonicClock,
    last_ns: u64,
}

/// Calls `visit` for all starts and ends of scopes. For a recording, these are the scopes of all threads. For PyTorch's
/// format, these are the scopes of `devices`.
pub(crate) fn for_each_scope_event<E>(
    snapshot: &Snapshot,
    times: &Times<'_>,
    devices: &[DeviceId],
    mut visit: impl FnMut(ScopeEvent) -> Result<(), E>,
) -> Result<(), E> {
    if snapshot.scopes.rows.len() <= 1 {
        return Ok(());
    }
    let events = &snapshot.events;
    let mut lanes: HashMap<Lane, LaneState> = HashMap::new();
    for row in 0..events.len() {
        let lane = match snapshot.pytorch {
            None => Lane::Thread(events.thread[row]),
            Some(_) if devices.contains(&events.device[row]) => Lane::Trace(events.device[row]),
            Some(_) => continue,
        };
        let running = lanes.entry(lane).or_default();
        let ns = running.clock.advance_to(times.ns(events.ticks[row]));
        let scope = events.scope[row];
        if running.open.last().map_or(ScopeId::NONE, |open| open.0) != scope {
            let path = snapshot.scopes.path(scope);
            let same = running.open.iter().zip(&path).take_while(|(open, scope)| open.0 == **scope).count();
            close_scopes(running, lane, same, &mut visit)?;
            for &scope in &path[same..] {
                running.open.push((scope, ns));
                visit(ScopeEvent::Begin { lane, scope, ns })?;
            }
        }
        running.last_ns = ns;
    }
    let mut rest: Vec<(Lane, LaneState)> = lanes.into_iter().collect();
    rest.sort_unstable_by_key(|(lane, _)| *lane);
    rest.iter_mut().try_for_each(|(lane, running)| close_scopes(running, *lane, 0, &mut visit))
}

/// Ends the open scopes that are deeper than `depth`.
fn close_scopes<E>(
    running: &mut LaneState,
    lane: Lane,
    depth: usize,
    visit: &mut impl FnMut(ScopeEvent) -> Result<(), E>,
) -> Result<(), E> {
    while running.open.len() > depth
        && let Some((scope, from_ns)) = running.open.pop()
    {
        visit(ScopeEvent::End { lane, scope, from_ns, ns: running.last_ns })?;
    }
    Ok(())
}

/// Returns the name of a kind of scope. A root counts as a module.
pub(crate) const fn kind_name(kind: ScopeKind) -> &'static str {
    match kind {
        ScopeKind::Root => ScopeKind::Module.name(),
        kind => kind.name(),
    }
}

pub(crate) fn lane_name(snapshot: &Snapshot, lane: Lane) -> String {
    match lane {
        Lane::Trace(device) => format!("{}: what was running", snapshot.device_name(device)),
        Lane::Thread(thread) if thread.is_none() => "unknown thread".to_owned(),
        Lane::Thread(thread) => match snapshot.threads.get(thread.index()) {
            Some(known) if known.name.is_empty() => format!("thread {}", known.os_id),
            Some(known) => format!("{} (thread {})", known.name, known.os_id),
            None => format!("thread {}", thread.0),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::Event;
    use memtrack_model::snapshot::Scope;
    use std::convert::Infallible;

    #[test]
    fn scope_lasts_from_first_to_last_event_on_thread() {
        let mut snapshot = Snapshot::default();
        for (parent, name) in [(0, "model"), (1, "matmul"), (0, "backward")] {
            let scope = Scope { parent: ScopeId(parent), name: name.into(), ..Scope::default() };
            snapshot.scopes.rows.push(scope);
        }
        // The thread and the scope of each event, in chronological order.
        let events = [(0, 1), (0, 2), (1, 2), (0, 1), (0, 0), (1, 2), (0, 3), (1, 0), (0, 1)];
        for (ticks, (thread, scope)) in events.into_iter().enumerate() {
            let (ticks, thread, scope) = (ticks as u64, ThreadId(thread), ScopeId(scope));
            snapshot.events.push(&Event { ticks, thread, scope, ..Event::BLANK });
        }
        let mut ended = Vec::new();
        let mut depths: HashMap<Lane, Vec<ScopeId>> = HashMap::new();
        let times = Times::of(&snapshot);
        let Ok(()) = for_each_scope_event(&snapshot, &times, &[], |event| {
            match event {
                ScopeEvent::Begin { lane, scope, .. } => depths.entry(lane).or_default().push(scope),
                ScopeEvent::End { lane, scope, from_ns, ns } => {
                    assert_eq!(
                        depths.get_mut(&lane).and_then(Vec::pop),
                        Some(scope),
                        "the inner one ends first"
                    );
                    let Lane::Thread(thread) = lane else { panic!("a recording has threads") };
                    ended.push((thread.0, from_ns, ns, scope.0));
                }
            }
            Ok::<(), Infallible>(())
        });
        ended.sort_unstable();
        let expected = [(0, 0, 3, 1), (0, 1, 1, 2), (0, 6, 6, 3), (0, 8, 8, 1), (1, 2, 5, 1), (1, 2, 5, 2)];
        assert_eq!(ended, expected);
    }
}
