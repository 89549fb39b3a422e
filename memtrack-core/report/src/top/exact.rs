//! Rows that depend on scopes alone. Their allocated bytes and blocks are the recorder's own sums, which are exact even
//! if few of the blocks were recorded individually. Rows that depend on stacks, inside or outside scopes, are sums over
//! the recorded blocks. `rows` uses these sums.

use super::By;
use memtrack_frames::attribution::Attributor;
use memtrack_model::event::{DeviceId, ScopeId, StackId};
use memtrack_model::snapshot::Snapshot;
use memtrack_symbols::Symbolizer;
use std::collections::HashMap;

/// The sums of one device's scopes.
pub(super) struct ExactSums {
    /// For each scope that determines a row by itself, the row's name and the scope's bytes and blocks.
    by_scope: HashMap<ScopeId, (String, [u64; 2])>,
    /// Bytes allocated in operator scopes.
    pub(super) annotated: u64,
    /// The total bytes and blocks of all scopes.
    pub(super) total: [u64; 2],
}

impl ExactSums {
    /// Creates the sums, or returns `None` if the recording has none or the rows do not depend on scopes.
    pub(super) fn of(
        snapshot: &Snapshot,
        by: By,
        device: DeviceId,
        attributor: &mut Attributor<'_>,
        symbols: &mut Symbolizer,
    ) -> Option<Self> {
        if !matches!(by, By::Operator | By::Module | By::Phase) {
            return None;
        }
        let mut sums = Self { by_scope: HashMap::new(), annotated: 0, total: [0; 2] };
        for row in snapshot.scope_sums_of(device)? {
            let sum = [row.allocated_bytes, row.allocations];
            add_saturating(&mut sums.total, sum);
            let place = snapshot.scopes.place(row.scope);
            if place.operator.is_some() {
                sums.annotated = sums.annotated.saturating_add(row.allocated_bytes);
            }
            let name = match by {
                By::Operator => {
                    place.operator.map(|_| attributor.operator(row.scope, StackId::NONE, symbols).0)
                }
                By::Module => (!place.modules.is_empty() || place.phase.is_some())
                    .then(|| attributor.module(row.scope, StackId::NONE, symbols)),
                _ => place.phase.map(|phase| phase.name().to_owned()),
            };
            if let Some(name) = name {
                add_saturating(&mut sums.by_scope.entry(row.scope).or_insert((name, [0; 2])).1, sum);
            }
        }
        Some(sums)
    }

    /// Returns whether the sums of this scope are included in a row.
    pub(super) fn includes(&self, scope: ScopeId) -> bool {
        self.by_scope.contains_key(&scope)
    }

    /// Returns the rows with their bytes and blocks, in no particular order.
    pub(super) fn row_sums(&self) -> HashMap<&str, [u64; 2]> {
        let mut rows: HashMap<&str, [u64; 2]> = HashMap::new();
        for (name, sum) in self.by_scope.values() {
            add_saturating(rows.entry(name).or_default(), *sum);
        }
        rows
    }
}

/// Adds bytes and blocks without overflowing, because a file from another source may contain arbitrary numbers.
fn add_saturating(sum: &mut [u64; 2], more: [u64; 2]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum = sum.saturating_add(more);
    }
}
