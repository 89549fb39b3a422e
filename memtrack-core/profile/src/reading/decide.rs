//! Applies the rules that depend only on a storage's own stack, scope and lifetime. The rules that depend on
//! the decisions for other storages are in `follow`.

use super::frames::{Clue, StackFacts};
use super::order::{Facts, Order, Storage, is_on_autograd_thread};
use super::rule::Rule;
use crate::Category;
use memtrack_model::Phase;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;

/// A category and the rule from which it follows.
pub(super) type Decision = (Category, Rule);

/// The place in the program where a block was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FreeSite {
    Never,
    /// In the given phase of the training step.
    In(Phase),
    /// In `zero_grad`, which frees gradients.
    ZeroGrad,
    /// Where autograd's graph is dropped outside the backward pass.
    Graph,
    /// Anywhere else, or at an unknown place.
    Elsewhere,
}

/// Classifies a device's storages using the rules.
pub(super) struct Classifier<'a> {
    snapshot: &'a Snapshot,
    pub(super) facts: &'a Facts,
    pub(super) order: &'a Order,
    pub(super) storages: &'a [Storage],
    /// The device, which determines how sizes are compared. CUDA blocks are allocated in multiples of 512
    /// bytes, and some files contain the rounded sizes.
    device: DeviceId,
    /// The phases that appear in the stacks and scopes of blocks allocated before the first event.
    phases_before_events: [bool; 3],
    /// Returns whether a rule is applied.
    pub(super) is_enabled: &'a dyn Fn(Rule) -> bool,
}

impl<'a> Classifier<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        facts: &'a Facts,
        order: &'a Order,
        storages: &'a [Storage],
        device: DeviceId,
        is_enabled: &'a dyn Fn(Rule) -> bool,
    ) -> Self {
        let mut phases_before_events = [false; 3];
        for storage in storages.iter().filter(|storage| storage.from.is_none()) {
            if let Some(phase) = facts.scope(storage.scope).or(facts.stack(storage.stack).phase) {
                phases_before_events[phase as usize] = true;
            }
        }
        Self { snapshot, facts, order, storages, device, phases_before_events, is_enabled }
    }

    /// Returns the decision for each storage, or `None` if no rule applies.
    pub(super) fn decide(&self) -> Vec<Option<Decision>> {
        let own = |storage: &Storage| {
            let mut enabled = Rule::ALL.iter().copied().filter_map(|rule| self.decision(rule));
            enabled.find(|&(_, rule)| self.applies(rule, storage))
        };
        let mut decided: Vec<Option<Decision>> = self.storages.iter().map(own).collect();
        self.decide_gradients_by_size(&mut decided);
        self.decide_early_by_size(&mut decided);
        self.decide_remaining_old(&mut decided);
        self.decide_replacements(&mut decided);
        decided
    }

    /// Returns the decision that follows from a rule, unless the rule is disabled.
    pub(super) fn decision(&self, rule: Rule) -> Option<Decision> {
        (self.is_enabled)(rule).then(|| (rule.category(), rule))
    }

    /// Returns whether a rule applies to the storage, ignoring all other storages.
    fn applies(&self, rule: Rule, storage: &Storage) -> bool {
        let stack = self.facts.stack(storage.stack);
        let scope = self.facts.scope(storage.scope);
        let phase = stack.phase.filter(|_| scope.is_none());
        let is_outside = scope.is_none() && stack.phase.is_none() && stack.has_frames;
        let is_autograd_thread =
            storage.from.is_some() && scope.is_none() && is_on_autograd_thread(self.facts, stack);
        let site = || self.free_site(storage);
        match rule {
            // If the stacks of frees are not recorded, this rule does not apply to optimizer steps, because it would
            // match most of a step's temporary memory.
            Rule::SameCall => {
                let is_step = scope.or(phase) == Some(Phase::Optimizer) && !self.facts.frees_have_stacks;
                !is_step && self.is_freed_by_its_call(storage, stack)
            }
            Rule::AccumulateGrad => stack.has(Clue::AccumulatesGradient),
            Rule::ReducedGradient => stack.has(Clue::ReducesGradients),
            Rule::GatheredParameter => stack.has(Clue::GathersParameters),
            Rule::BackwardSeed => stack.has(Clue::SeedsBackward),
            Rule::StateInit => stack.has(Clue::InitialisesState) && self.outlives_phase(storage),
            Rule::KeptByStep => phase == Some(Phase::Optimizer) && self.outlives_phase(storage),
            Rule::FreedInStep => phase == Some(Phase::Optimizer) && !self.outlives_phase(storage),
            Rule::Recomputed => scope.is_none() && stack.is_recomputed,
            Rule::GradientKept => phase == Some(Phase::Backward) && self.outlives_phase(storage),
            Rule::Backward => phase == Some(Phase::Backward),
            Rule::NoFramesKept => is_autograd_thread && self.outlives_phase(storage),
            Rule::NoFramesInBackward => is_autograd_thread,
            Rule::ModuleMoved => is_outside && stack.has(Clue::MovesModule) && self.outlives_setup(storage),
            Rule::WeightsLoaded => {
                phase.is_none() && stack.has(Clue::LoadsWeights) && self.outlives_setup(storage)
            }
            // `outlives_setup` is not required here, because modules that were moved elsewhere before the
            // first step should also match.
            Rule::ModuleBuilt => is_outside && stack.has(Clue::BuildsModule),
            Rule::OptimizerBuilt => {
                is_outside && stack.has(Clue::BuildsOptimizer) && self.outlives_setup(storage)
            }
            Rule::InputLoaded => is_outside && stack.has(Clue::LoadsData),
            Rule::ScopeOptimizerKept => scope == Some(Phase::Optimizer) && self.outlives_phase(storage),
            Rule::ScopeOptimizer => scope == Some(Phase::Optimizer) && !self.outlives_phase(storage),
            Rule::ScopeBackwardKept => scope == Some(Phase::Backward) && self.outlives_phase(storage),
            Rule::ScopeBackward => scope == Some(Phase::Backward) && !self.outlives_phase(storage),
            Rule::ScopeTemporary => {
                matches!(scope, None | Some(Phase::Forward)) && self.is_freed_in_its_operator(storage)
            }
            Rule::ScopeForward => scope == Some(Phase::Forward),
            Rule::HeldByGraph => {
                matches!(scope.or(phase), None | Some(Phase::Forward)) && site() == FreeSite::Graph
            }
            Rule::SavedForBackward => {
                phase == Some(Phase::Forward) && site() == FreeSite::In(Phase::Backward)
            }
            Rule::Forward => phase == Some(Phase::Forward),
            Rule::Functional => is_outside && stack.has(Clue::CallsFunctional),
            Rule::ObjectBuilt => {
                let builds = is_outside && stack.has(Clue::BuildsObject) && self.outlives_setup(storage);
                builds && self.precedes_phase(storage, Phase::Forward)
            }
            Rule::InputMade => {
                let builds =
                    [Clue::BuildsObject, Clue::BuildsOptimizer, Clue::MovesModule, Clue::LoadsWeights];
                let is_made = is_outside && stack.has(Clue::MakesTensor) && !stack.has_any(&builds);
                // Weights may be copied to the device in the same way.
                let may_be_weights =
                    || stack.has(Clue::CopiesTensor) && self.is_used_by_several_steps(storage);
                is_made && self.is_before_forward(storage) && !may_be_weights()
            }
            Rule::HeldForBackward => {
                is_outside
                    && self.precedes_phase_directly(storage, Phase::Backward)
                    && site() == FreeSite::In(Phase::Backward)
            }
            Rule::BeforeBackward => is_outside && self.precedes_phase_directly(storage, Phase::Backward),
            Rule::FreedByZeroGrad => self.is_old(storage) && site() == FreeSite::ZeroGrad,
            Rule::OldFreedInBackward => self.is_old(storage) && site() == FreeSite::In(Phase::Backward),
            Rule::WrittenInBackward => self.is_old(storage) && self.is_written_in(storage, Phase::Backward),
            Rule::WrittenInForward => self.is_old(storage) && self.is_written_in(storage, Phase::Forward),
            // These rules are not applied here: the file states the category (`Given`), or the rule depends on the
            // decisions for other storages and is applied afterwards.
            Rule::Given
            | Rule::ReplacedInStep
            | Rule::ReplacedGuess
            | Rule::GradientBySize
            | Rule::OldFreedInStep
            | Rule::SizeOfGradient
            | Rule::SizeOfGradientAgain
            | Rule::EarlySizeOfGradient
            | Rule::EarlySizeAgain
            | Rule::WrittenInStep
            | Rule::FrozenParameter
            | Rule::OldAndUntouched
            | Rule::OldInInference => false,
        }
    }

    pub(super) fn is_written_in(&self, storage: &Storage, phase: Phase) -> bool {
        storage.written.iter().any(|&row| self.order.run(row).phase == Some(phase))
    }

    /// Returns whether the storage was allocated in an operator's scope and freed before the thread allocated
    /// anything outside that operator.
    fn is_freed_in_its_operator(&self, storage: &Storage) -> bool {
        let (Some(from), Some(to)) = (storage.from, storage.to) else { return false };
        self.facts.operator(storage.scope).is_some() && self.order.is_within_one_operator(from, to)
    }

    /// Returns whether the storage was live both before the first step and after the last one.
    pub(super) fn outlives_all_steps(&self, storage: &Storage) -> bool {
        let is_early = storage.from.is_none_or(|from| self.order.phases_around(from).0.is_none());
        let phases = [Phase::Forward, Phase::Backward, Phase::Optimizer];
        let last = phases.into_iter().filter_map(|phase| self.order.last_run(phase)).max();
        is_early && storage.to.is_none_or(|to| last.is_none_or(|last| self.order.run_number(to) > last))
    }

    /// Returns whether the file has several steps and the storage outlives all of them. A single step's input
    /// data does not live that long.
    pub(super) fn is_used_by_several_steps(&self, storage: &Storage) -> bool {
        self.order.backward_passes > 1 && self.outlives_all_steps(storage)
    }

    /// Returns whether the storage is older than the file, which means that its allocation was not recorded.
    pub(super) fn is_old(&self, storage: &Storage) -> bool {
        storage.from.is_none() && !self.facts.stack(storage.stack).has_frames
    }

    /// Returns whether the storage outlived the phase that allocated it.
    fn outlives_phase(&self, storage: &Storage) -> bool {
        // If the storage is older than the trace, it was allocated in an earlier phase.
        let Some(from) = storage.from else { return true };
        if let (Some(to), true) = (storage.to, self.facts.frees_have_stacks) {
            let freed = self.facts.stack(self.snapshot.events.stack[to]);
            if freed.has_frames && self.order.run(from).phase == Some(Phase::Backward) {
                return freed.phase != Some(Phase::Backward) || self.order.outlives_run(from, storage.to);
            }
        }
        self.order.outlives_run(from, storage.to)
    }

    /// Returns whether the storage outlived the setup during which it was allocated, i.e. whether a phase
    /// started before it was freed.
    fn outlives_setup(&self, storage: &Storage) -> bool {
        match (storage.from, storage.to) {
            (Some(from), Some(to)) => self.order.has_run_begun_between(from, to),
            _ => true,
        }
    }

    /// Returns whether this phase runs at some point after the storage's allocation.
    fn precedes_phase(&self, storage: &Storage, phase: Phase) -> bool {
        match storage.from {
            Some(row) => self.order.last_run(phase).is_some_and(|last| last >= self.order.run_number(row)),
            None => self.has_phase(phase),
        }
    }

    /// Returns whether the file contains this phase, either through an event or through a block that the
    /// phase allocated before the first event.
    pub(super) fn has_phase(&self, phase: Phase) -> bool {
        self.order.last_run(phase).is_some() || self.phases_before_events[phase as usize]
    }

    /// Returns whether this is the next phase after the storage's allocation.
    fn precedes_phase_directly(&self, storage: &Storage, phase: Phase) -> bool {
        storage.from.is_some_and(|row| self.order.phases_around(row).1 == Some(phase))
    }

    /// Returns whether a forward or backward pass follows the storage's allocation. Allocations between a
    /// forward pass and its backward pass do not count.
    fn is_before_forward(&self, storage: &Storage) -> bool {
        let Some(from) = storage.from else { return false };
        match self.order.phases_around(from) {
            (Some(Phase::Forward), Some(Phase::Backward)) => false,
            (_, Some(Phase::Forward | Phase::Backward)) => true,
            _ => false,
        }
    }

    pub(super) fn free_site(&self, storage: &Storage) -> FreeSite {
        let Some(to) = storage.to else { return FreeSite::Never };
        let freed = self.facts.stack(self.snapshot.events.stack[to]);
        // A free event repeats the scope of its allocation. It also repeats the stack, unless frees have their own stacks
        // or the allocation was not recorded.
        let has_own_stack = self.facts.frees_have_stacks || storage.from.is_none();
        if has_own_stack && freed.has_frames && !self.facts.is_from_profiler {
            return match freed.phase {
                _ if freed.has(Clue::ZeroesGradients) => FreeSite::ZeroGrad,
                phase if phase != Some(Phase::Backward) && freed.has(Clue::DropsGraph) => FreeSite::Graph,
                Some(phase) => FreeSite::In(phase),
                None => FreeSite::Elsewhere,
            };
        }
        self.order.run(to).phase.map_or(FreeSite::Elsewhere, FreeSite::In)
    }

    fn is_freed_by_its_call(&self, storage: &Storage, stack: &StackFacts) -> bool {
        let (Some(call), Some(from), Some(to)) = (stack.call, storage.from, storage.to) else { return false };
        let freed = self.facts.stack(self.snapshot.events.stack[to]);
        (!self.facts.frees_have_stacks || freed.call == Some(call)) && self.order.is_within_one_call(from, to)
    }

    /// Returns a size in a form that can be compared. Files contain requested sizes in their events, but may
    /// contain rounded sizes in their blocks.
    pub(super) fn size_class(&self, size_bytes: u64) -> u64 {
        if self.device.is_accelerator() && !self.facts.is_from_profiler {
            size_bytes.checked_next_multiple_of(512).unwrap_or(size_bytes)
        } else {
            size_bytes
        }
    }
}
