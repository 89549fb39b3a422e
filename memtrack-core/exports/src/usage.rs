//! Adds up, by origin, the memory that was allocated on a device and the memory that was in use at given moments. These
//! totals are the contents of profiles.

use memtrack_blocks::estimate::{Estimate, Precision, Sum};
use memtrack_blocks::lifetimes::{Lifetime, lifetimes};
use memtrack_blocks::moment::Moment;
use memtrack_blocks::origin::{Origin, Origins};
use memtrack_blocks::peak::Peak;
use memtrack_model::Snapshot;
use memtrack_model::event::{DeviceId, ScopeId, StreamId};
use std::collections::HashMap;

/// The properties that all blocks in a row share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Group {
    pub(crate) origin: Origin,
    pub(crate) scope: ScopeId,
    pub(crate) stream: StreamId,
}

/// A number of blocks and their requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) blocks: f64,
    pub(crate) bytes: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, blocks: f64, bytes: u64) {
        self.blocks += blocks;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// The blocks in one group. Blocks that are older than the trace do not count as allocated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UsageRow {
    pub(crate) group: Group,
    pub(crate) allocated: Counts,
    /// The blocks in use at each of the moments that were passed to [`Usage::of`].
    pub(crate) in_use: Vec<Counts>,
}

/// A total over all rows, and its error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Total {
    pub(crate) counts: Counts,
    pub(crate) bytes_error: Estimate,
    pub(crate) blocks_error: Estimate,
}

impl Total {
    /// Formats the total as `6.37 GiB in 885 blocks`, and adds the errors if it is an estimate.
    pub(crate) fn to_text(self) -> String {
        let blocks = self.counts.blocks.round() as u64;
        let bytes = self.bytes_error.as_bytes(self.counts.bytes);
        format!("{bytes} in {}", self.blocks_error.as_counted(blocks, "block"))
    }

    /// Returns whether the total is an estimate.
    pub(crate) fn is_estimate(&self) -> bool {
        !self.bytes_error.is_exact() || !self.blocks_error.is_exact()
    }
}

/// The memory of one device.
#[derive(Clone, Debug)]
pub(crate) struct Usage {
    /// The rows, ordered by the first block in each group.
    pub(crate) rows: Vec<UsageRow>,
    pub(crate) allocated: Total,
    /// The total memory in use at each of the moments that were passed to [`Usage::of`].
    pub(crate) in_use: Vec<Total>,
}

impl Usage {
    /// Adds up the blocks of `device`, in total and for each of `moments`. Scopes and streams distinguish groups only
    /// if `by_labels` is set.
    pub(crate) fn of(snapshot: &Snapshot, device: DeviceId, moments: &[Moment], by_labels: bool) -> Self {
        let lifetimes = lifetimes(snapshot, device);
        let precision = Precision::of(snapshot, device, &lifetimes);
        let origins = Origins::of(snapshot, &lifetimes);
        let after = |moment: &Moment| match moment {
            Moment::Peak => Peak::of(snapshot, device, &lifetimes).row,
            moment => moment.row(),
        };
        let after: Vec<Option<usize>> = moments.iter().map(after).collect();
        let mut indices: HashMap<Group, usize, foldhash::fast::RandomState> = HashMap::default();
        let mut rows: Vec<UsageRow> = Vec::new();
        let mut sums = vec![TotalSums::default(); moments.len() + 1];
        for lifetime in &lifetimes {
            // If only the free of a block is known, the lifetime has the scope of the free rather than that of the
            // allocation.
            let scope = if by_labels && lifetime.known { lifetime.scope } else { ScopeId::NONE };
            let stream = if by_labels { lifetime.stream(snapshot) } else { StreamId::default() };
            let group = Group { origin: origins.origin(lifetime), scope, stream };
            let (is_allocated, in_use) =
                (lifetime.from.is_some(), after.iter().map(|&row| lifetime.is_live_after(row)));
            let counted: Vec<bool> = std::iter::once(is_allocated).chain(in_use).collect();
            if !counted.contains(&true) {
                continue;
            }
            let index = *indices.entry(group).or_insert_with(|| {
                let in_use = vec![Counts::default(); moments.len()];
                rows.push(UsageRow { group, allocated: Counts::default(), in_use });
                rows.len() - 1
            });
            let row = &mut rows[index];
            let counts = std::iter::once(&mut row.allocated).chain(&mut row.in_use);
            for ((counts, sum), _) in counts.zip(&mut sums).zip(counted).filter(|(_, counted)| *counted) {
                counts.add(lifetime.blocks, lifetime.bytes);
                sum.add(lifetime);
            }
        }
        let mut totals = sums.iter().map(|sum| sum.total(&precision));
        let allocated = totals.next().unwrap_or_default();
        let in_use = totals.collect();
        Self { rows, allocated, in_use }
    }
}

/// The sums from which a [`Total`] is computed.
#[derive(Clone, Copy, Default)]
pub(crate) struct TotalSums {
    counts: Counts,
    bytes: Sum,
    blocks: Sum,
}

impl TotalSums {
    pub(crate) fn add(&mut self, lifetime: &Lifetime) {
        self.counts.add(lifetime.blocks, lifetime.bytes);
        self.bytes.add(lifetime.size_bytes as f64, lifetime.blocks);
        self.blocks.add(1.0, lifetime.blocks);
    }

    pub(crate) fn total(&self, precision: &Precision) -> Total {
        Total {
            counts: self.counts,
            bytes_error: precision.bytes(&self.bytes),
            blocks_error: precision.blocks(&self.blocks),
        }
    }
}
