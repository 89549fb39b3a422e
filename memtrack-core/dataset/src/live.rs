//! The table of the memory that was live at the peak and at the end, by stack. Unlike in the table of groups, each
//! stack has its own rows.

use crate::stacks::Stacks;
use crate::table::{Column, Kind, Rows, Table};
use memtrack_blocks::lifetimes::{Lifetime, lifetimes};
use memtrack_blocks::peak::Peak;
use memtrack_model::event::StackId;
use memtrack_model::snapshot::Snapshot;
use std::collections::BTreeMap;

/// The memory that was live at the peak and at the end, by the stack that allocated it.
pub static LIVE: Table = Table {
    name: "live",
    columns: &[
        Column::new("device", Kind::Int),
        Column::new("moment", Kind::Text),
        Column::new("stack", Kind::Int).delta(),
        Column::new("bytes", Kind::Long),
        Column::new("blocks", Kind::Double),
        Column::new("estimated", Kind::Flag),
    ],
};

/// The total bytes and number of blocks of a stack, and whether any of the blocks was sampled.
#[derive(Default)]
struct StackTotals {
    bytes: u64,
    blocks: f64,
    estimated: bool,
}

/// Returns the table, and marks its stacks as used.
pub(crate) fn build_table(snapshot: &Snapshot, stacks: &mut Stacks<'_>) -> Rows {
    let mut rows = Rows::of(&LIVE);
    let ordinals = snapshot.ordinals();
    for device in snapshot.device_ids() {
        let lifetimes = lifetimes(snapshot, device);
        let peak = Peak::of(snapshot, device, &lifetimes).row;
        let mut add = |moment: &str, is_live: &dyn Fn(&Lifetime) -> bool| {
            let mut by_stack: BTreeMap<StackId, StackTotals> = BTreeMap::new();
            for lifetime in lifetimes.iter().filter(|one| is_live(one)) {
                let sum = by_stack.entry(lifetime.stack).or_default();
                sum.bytes = sum.bytes.saturating_add(lifetime.bytes);
                sum.blocks += lifetime.blocks;
                sum.estimated |= lifetime.estimated;
            }
            for (stack, sum) in by_stack {
                stacks.mark_used(stack);
                rows.push([
                    u64::from(ordinals.of(device)).into(),
                    moment.into(),
                    u64::from(stack.0).into(),
                    sum.bytes.into(),
                    sum.blocks.into(),
                    sum.estimated.into(),
                ]);
            }
        };
        add("peak", &|one| one.is_live_after(peak));
        add("end", &|one| one.to.is_none());
    }
    rows
}
