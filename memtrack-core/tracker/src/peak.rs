//! The peak of allocated bytes in a recording. Like all tracker values, it is relative to the moment when monitoring
//! started.

use memtrack_blocks::lifetimes::{Lifetime, lifetimes};
use memtrack_blocks::peak::Peak;
use memtrack_model::event::{DeviceId, ScopeId};
use memtrack_model::snapshot::{ScopeKind, Snapshot};

/// The peak of a device's allocated bytes in a recording, with its time and the operators that enclose it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReachedPeak {
    /// A lower bound on the peak, in bytes. It is negative if more memory from before the recording was freed than new
    /// memory was allocated.
    pub least_bytes: f64,
    /// An upper bound on the peak, in bytes. It equals the lower bound if the peak is exact, and is infinite if no
    /// upper bound is known.
    pub most_bytes: f64,
    /// The time of the peak, in ticks of the recorder's clock.
    pub ticks: u64,
    /// The operators, backward passes and optimizer steps that enclose the peak, innermost first.
    pub operators: Vec<ScopeId>,
}

impl ReachedPeak {
    /// Creates a peak between these bounds, in bytes, outside any operator.
    #[must_use]
    pub fn at(least_bytes: f64, most_bytes: f64, ticks: u64) -> Self {
        Self { least_bytes, most_bytes, ticks, operators: Vec::new() }
    }

    /// Finds the peak of `device`. Returns `None` if the peak came before the first event, or if the recording has no
    /// exact counts for the device.
    pub fn of(snapshot: &Snapshot, device: DeviceId) -> Option<Self> {
        let counts = snapshot.exact_counts(device)?;
        let lifetimes = lifetimes(snapshot, device);
        let peak = Peak::of(snapshot, device, &lifetimes);
        let (row, ticks) = (peak.row?, peak.ticks?);
        let bytes_of = |is_counted: &dyn Fn(&Lifetime) -> bool| -> f64 {
            lifetimes.iter().filter(|block| is_counted(block)).map(|block| block.bytes as f64).sum()
        };
        // A report counts memory from before the recording as live until it is freed. A tracker starts at zero instead,
        // so its value falls below zero when such memory is freed.
        let shift = match (peak.estimated, counts.dropped) {
            (false, _) => {
                let net = counts.allocated_bytes.wrapping_sub(counts.freed_bytes) as i64;
                net as f64 - bytes_of(&|block| block.to.is_none())
            }
            (true, 0) => -bytes_of(&|block| block.from.is_none() && block.to.is_some() && !block.known),
            (true, _) => 0.0,
        };
        // If events are missing, the peak may have been higher at one of them.
        let most = if counts.dropped > 0 { f64::INFINITY } else { peak.error.high };
        let mut operators = Vec::new();
        let (scopes, mut at) = (&snapshot.scopes.rows, snapshot.events.scope[row]);
        while !at.is_none() && at.index() < scopes.len() && operators.len() < scopes.len() {
            let scope = &scopes[at.index()];
            if matches!(scope.kind, ScopeKind::Operator | ScopeKind::Backward | ScopeKind::Optimizer) {
                operators.push(at);
            }
            at = scope.parent;
        }
        Some(Self { least_bytes: peak.error.low + shift, most_bytes: most + shift, ticks, operators })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrack_model::event::{Action, Event};
    use memtrack_model::snapshot::{DeviceStatistics, Scope};

    /// Creates a recording in which an older block is freed before another block is allocated inside nested operators.
    fn recording_with_older_block() -> Snapshot {
        let mut snapshot = Snapshot::default();
        for (parent, kind, name) in
            [(0, ScopeKind::Root, "net"), (1, ScopeKind::Operator, "loss"), (2, ScopeKind::Operator, "mm")]
        {
            snapshot.scopes.rows.push(Scope { parent: ScopeId(parent), kind, name: name.into() });
        }
        let event = |ticks, address, size_bytes, action, scope| Event {
            ticks,
            address,
            size_bytes,
            action,
            scope: ScopeId(scope),
            device: DeviceId::HOST,
            ..Event::BLANK
        };
        for event in [
            event(1, 8, 100, Action::Free, 0),
            event(2, 16, 4000, Action::Alloc, 3),
            event(3, 16, 4000, Action::Free, 3),
            event(4, 24, 10, Action::Alloc, 2),
        ] {
            snapshot.events.push(&event);
        }
        let mut counts = DeviceStatistics::of(DeviceId::HOST);
        (counts.allocated_bytes, counts.freed_bytes) = (4010, 4100);
        (counts.allocations, counts.frees) = (2, 2);
        snapshot.devices = vec![counts];
        snapshot
    }

    #[test]
    fn peak_is_relative_to_beginning_and_has_enclosing_operators() {
        let peak = ReachedPeak::of(&recording_with_older_block(), DeviceId::HOST).unwrap();
        assert_eq!((peak.least_bytes, peak.most_bytes, peak.ticks), (3900.0, 3900.0, 2));
        assert_eq!(peak.operators, [ScopeId(3), ScopeId(2)]);
    }

    #[test]
    fn without_oldest_events_peak_is_lower_bound() {
        let mut snapshot = recording_with_older_block();
        snapshot.devices[0].dropped = 7;
        let peak = ReachedPeak::of(&snapshot, DeviceId::HOST).unwrap();
        assert_eq!((peak.least_bytes, peak.most_bytes), (3900.0, f64::INFINITY));
    }
}
