//! Infers the purpose of memory without an operator trace, using stacks, scopes, sizes and the order of
//! events. The result is an interpretation, not a measurement. Each block gets its category from the first
//! [`Rule`] that applies. Every rule has a name and a stated [`Confidence`], and blocks to which no rule
//! applies are counted as unknown.
//!
//! `frames` interprets stacks, `order` finds the phases of the training steps, `decide` and `follow` apply
//! the rules, and `totals` computes sums.

mod decide;
mod follow;
mod frames;
mod order;
mod rule;
#[cfg(test)]
mod tests;
mod text;
mod totals;

pub use rule::{Confidence, Rule};
pub use totals::{CategoryReading, CategoryRow, MomentReading, RuleRow, Totals, UnclassifiedRow};

use crate::Category;
use decide::Classifier;
use memtrack_blocks::lifetimes::{Lifetime, lifetimes};
use memtrack_model::NameFrames;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::pytorch::Key;
use memtrack_model::snapshot::{InferredCategories, Since, Snapshot};
use order::{Facts, Order, group_into_storages};

/// The inferred categories of all blocks on a device.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BlockCategories {
    /// The lifetimes of the blocks. In a profiler's snapshot, each write to a tensor starts a new lifetime.
    pub lifetimes: Vec<Lifetime>,
    /// For each lifetime, the category and the rule from which it follows, or `None` if no rule applies.
    pub decisions: Vec<Option<(Category, Rule)>>,
    /// Whether any of the device's events has a stack.
    pub has_stacks: bool,
    /// Whether any block was allocated in a scope that reveals its phase, or in an operator's scope.
    pub has_scopes: bool,
    /// Whether the file shows each of the forward, backward and optimizer phases, in this order.
    phases: [bool; 3],
}

impl BlockCategories {
    /// Infers the categories of the blocks on `device`. `names` symbolizes stack frames, as
    /// `Symbolizer::of(snapshot)` does.
    pub fn infer(snapshot: &Snapshot, names: &mut dyn NameFrames, device: DeviceId) -> Self {
        Self::infer_with(snapshot, names, device, |_| true)
    }

    /// Like [`Self::infer`], but applies only the rules for which `is_enabled` returns true. This makes it
    /// possible to evaluate individual rules.
    pub fn infer_with(
        snapshot: &Snapshot,
        names: &mut dyn NameFrames,
        device: DeviceId,
        is_enabled: impl Fn(Rule) -> bool,
    ) -> Self {
        use memtrack_model::Phase::{Backward, Forward, Optimizer};
        let lifetimes = lifetimes(snapshot, device);
        let facts = Facts::read(snapshot, names, device, &lifetimes);
        let storages = group_into_storages(snapshot, &facts, &lifetimes);
        let order = Order::of(snapshot, &facts, device, &storages);
        let mut decisions: Vec<Option<(Category, Rule)>> = vec![None; lifetimes.len()];
        let classifier = Classifier::new(snapshot, &facts, &order, &storages, device, &is_enabled);
        // If a memtrack recording states the category of any block, it states all categories that are known,
        // so there is nothing left to infer.
        let is_given = snapshot.seconds_since() == Since::Start
            && lifetimes.iter().any(|lifetime| stated_category(snapshot, lifetime).is_some());
        if (facts.has_stacks || facts.has_scopes) && !is_given {
            for (storage, decision) in storages.iter().zip(classifier.decide()) {
                storage.lifetimes.iter().for_each(|&at| decisions[at] = decision);
            }
        }
        if is_enabled(Rule::Given) {
            for (read, lifetime) in decisions.iter_mut().zip(&lifetimes) {
                if let Some(category) = stated_category(snapshot, lifetime) {
                    *read = Some((category, Rule::Given));
                }
            }
        }
        Self {
            lifetimes,
            decisions,
            has_stacks: facts.has_stacks,
            has_scopes: facts.has_scopes,
            phases: [Forward, Backward, Optimizer].map(|phase| classifier.has_phase(phase)),
        }
    }
}

/// Returns the category that the file states for a lifetime's allocation event, or `None` if it states none
/// or `unknown`.
fn stated_category(snapshot: &Snapshot, lifetime: &Lifetime) -> Option<Category> {
    let row = lifetime.from?;
    let of_recording = || Category::from_name(snapshot.categories.get()?.of_event(row)?);
    let of_profile = || {
        let details = &snapshot.pytorch.as_deref()?.events;
        let text = details.has(row, Key::Category).then(|| details.text(row, Key::Category))?;
        Category::from_name(&snapshot.strings.get(text))
    };
    of_recording().or_else(of_profile).filter(|&category| category != Category::Unknown)
}

/// Returns the inferred categories of the blocks on all devices, as columns for a snapshot's tables. The viewer, which
/// shows every block, needs them. Devices whose categories are given in the
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
