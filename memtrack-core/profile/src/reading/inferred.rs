//! Adds the inferred categories as columns to a snapshot's tables. The columns are meant for the viewer, which
//! shows every block.

use super::BlockCategories;
use super::rule::Rule;
use crate::Category;
use memtrack_model::NameFrames;
use memtrack_model::snapshot::{InferredCategories, Snapshot};

/// Returns the inferred categories of the blocks on all devices. Devices whose categories are given in the
/// file are skipped. `names` symbolizes stack frames, as `Symbolizer::of(snapshot)` does.
pub fn inferred(snapshot: &Snapshot, names: &mut dyn NameFrames) -> InferredCategories {
    let mut found = InferredCategories {
        names: Category::labels(),
        of_event: vec![0; snapshot.events.len()],
        of_block: vec![0; snapshot.blocks.len()],
    };
    for device in snapshot.device_ids() {
        let blocks = BlockCategories::infer(snapshot, names, device);
        if blocks.decisions.iter().flatten().any(|(_, rule)| *rule == Rule::Given) {
            continue;
        }
        for (lifetime, read) in blocks.lifetimes.iter().zip(&blocks.decisions) {
            let Some((category, _)) = read.filter(|(category, _)| *category != Category::Unknown) else {
                continue;
            };
            let block = lifetime.block.and_then(|row| found.of_block.get_mut(row as usize));
            let place = match lifetime.from.or(lifetime.to) {
                Some(row) => found.of_event.get_mut(row),
                None => block,
            };
            if let Some(place) = place {
                *place = 1 + category as u8;
            }
        }
    }
    found
}
