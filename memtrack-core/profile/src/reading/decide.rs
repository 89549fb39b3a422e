//! Applies the rules to each storage: what its own stack, scope and lifetime say; `follow` has those that need what was
//! decided of others.

use super::frames::{Sign, StackFacts};
use super::order::{Facts, Order, Storage, is_of_autograds_thread};
use super::rule::Rule;
use crate::Category;
use memtrack_model::Phase;
use memtrack_model::event::DeviceId;
use memtrack_model::snapshot::Snapshot;

/// A category and the rule that gave it.
pub(super) type Decision = (Category, Rule);

/// Where a block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Never,
    /// In that part of the step.
    In(Phase),
    /// When gradients are given back.
    ZeroGrad,
    /// When autograd's graph is given back, outside of the backward pass.
    Graph,
    /// Outside of all, or not known.
    Elsewhere,
}

/// What the rules ask.
pub(super) struct Case<'a> {
    snapshot: &'a Snapshot,
    pub(super) facts: &'a Facts,
    pub(super) order: &'a Order,
    pub(super) storages: &'a [Storage],
    /// CUDA's blocks are handed out in steps of 512 bytes, and some files have the rounded sizes.
    device: DeviceId,
    /// The phases that blocks show whose allocation is older than the events.
    of_old: [bool; 3],
}

impl<'a> Case<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        facts: &'a Facts,
        order: &'a Order,
        storages: &'a [Storage],
        device: DeviceId,
    ) -> Self {
        let mut of_old = [false; 3];
        for storage in storages.iter().filter(|storage| storage.from.is_none()) {
            if let Some(phase) = facts.scope(storage.scope).or(facts.stack(storage.stack).phase) {
                of_old[phase as usize] = true;
            }
        }
        Self { snapshot, facts, order, storages, device, of_old }
    }

    /// What is decided for each storage; none where no rule holds.
    pub(super) fn decide(&self, asked: impl Fn(Rule) -> bool) -> Vec<Option<Decision>> {
        let asked = |rule: &Rule| asked(*rule);
        let own = |storage: &Storage| {
            let rule = self.own_rule(storage, &asked)?;
            Some((rule.category(), rule))
        };
        let mut decided: Vec<Option<Decision>> = self.storages.iter().map(own).collect();
        self.gradients_by_size(&mut decided, &asked);
        self.early_by_size(&mut decided, &asked);
        self.old_by_rest(&mut decided, &asked);
        self.replaced(&mut decided, &asked);
        decided
    }

    /// The first rule that holds for what is known of the storage alone.
    fn own_rule(&self, storage: &Storage, asked: &impl Fn(&Rule) -> bool) -> Option<Rule> {
        Rule::ALL.iter().filter(|rule| asked(rule)).find(|rule| self.holds(**rule, storage)).copied()
    }

    fn holds(&self, rule: Rule, storage: &Storage) -> bool {
        let stack = self.facts.stack(storage.stack);
        let scope = self.facts.scope(storage.scope);
        let phase = stack.phase.filter(|_| scope.is_none());
        let is_outside = scope.is_none() && stack.phase.is_none() && stack.has_frames;
        let is_threads =
            storage.from.is_some() && scope.is_none() && is_of_autograds_thread(self.facts, stack);
        let end = || self.end(storage);
        match rule {
            // What a step makes and frees mostly looks like that where frees do not tell who made them.
            Rule::SameCall => {
                let is_step = scope.or(phase) == Some(Phase::Optimizer) && !self.facts.own_frees;
                !is_step && self.is_freed_by_its_call(storage, stack)
            }
            Rule::AccumulateGrad => stack.has(Sign::AccumulatesGradient),
            Rule::ReducedGradient => stack.has(Sign::ReducesGradients),
            Rule::GatheredParameter => stack.has(Sign::GathersParameters),
            Rule::BackwardSeed => stack.has(Sign::SeedsBackward),
            Rule::StateInit => stack.has(Sign::InitialisesState) && self.outlives(storage),
            Rule::KeptByStep => phase == Some(Phase::Optimizer) && self.outlives(storage),
            Rule::FreedInStep => phase == Some(Phase::Optimizer) && !self.outlives(storage),
            Rule::Recomputed => scope.is_none() && stack.is_recomputed,
            Rule::GradientKept => phase == Some(Phase::Backward) && self.outlives(storage),
            Rule::Backward => phase == Some(Phase::Backward),
            Rule::NoFramesKept => is_threads && self.outlives(storage),
            Rule::NoFramesInBackward => is_threads,
            Rule::ModuleMoved => is_outside && stack.has(Sign::MovesModule) && self.is_built(storage),
            Rule::WeightsLoaded => phase.is_none() && stack.has(Sign::LoadsWeights) && self.is_built(storage),
            // Also what was moved elsewhere before the first step.
            Rule::ModuleBuilt => is_outside && stack.has(Sign::BuildsModule),
            Rule::OptimizerBuilt => is_outside && stack.has(Sign::BuildsOptimizer) && self.is_built(storage),
            Rule::InputLoaded => is_outside && stack.has(Sign::LoadsData),
            Rule::ScopeOptimizerKept => scope == Some(Phase::Optimizer) && self.outlives(storage),
            Rule::ScopeOptimizer => scope == Some(Phase::Optimizer) && !self.outlives(storage),
            Rule::ScopeBackwardKept => scope == Some(Phase::Backward) && self.outlives(storage),
            Rule::ScopeBackward => scope == Some(Phase::Backward) && !self.outlives(storage),
            Rule::ScopeTemporary => {
                matches!(scope, None | Some(Phase::Forward)) && self.is_freed_in_its_operator(storage)
            }
            Rule::ScopeForward => scope == Some(Phase::Forward),
            Rule::HeldByGraph => {
                matches!(scope.or(phase), None | Some(Phase::Forward)) && end() == End::Graph
            }
            Rule::SavedForBackward => phase == Some(Phase::Forward) && end() == End::In(Phase::Backward),
            Rule::Forward => phase == Some(Phase::Forward),
            Rule::Functional => is_outside && stack.has(Sign::CallsFunctional),
            Rule::ObjectBuilt => {
                let builds = is_outside && stack.has(Sign::BuildsObject) && self.is_built(storage);
                builds && self.comes_before(storage, Phase::Forward)
            }
            Rule::InputMade => {
                let builds =
                    [Sign::BuildsObject, Sign::BuildsOptimizer, Sign::MovesModule, Sign::LoadsWeights];
                let is_made = is_outside && stack.has(Sign::MakesTensor) && !stack.has_any(&builds);
                // Weights are copied to the device in the same way.
                let may_be_weights =
                    || stack.has(Sign::CopiesTensor) && self.is_used_by_several_steps(storage);
                is_made && self.is_before_forward(storage) && !may_be_weights()
            }
            Rule::HeldForBackward => {
                is_outside && self.is_next(storage, Phase::Backward) && end() == End::In(Phase::Backward)
            }
            Rule::BeforeBackward => is_outside && self.is_next(storage, Phase::Backward),
            Rule::FreedByZeroGrad => self.is_old(storage) && end() == End::ZeroGrad,
            Rule::OldFreedInBackward => self.is_old(storage) && end() == End::In(Phase::Backward),
            Rule::WrittenInBackward => self.is_old(storage) && self.is_written_in(storage, Phase::Backward),
            Rule::WrittenInForward => self.is_old(storage) && self.is_written_in(storage, Phase::Forward),
            // Given by events, or decided after the others.
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

    /// Whether it was made in an operator's scope, and freed before its thread allocated anything outside of that operator.
    fn is_freed_in_its_operator(&self, storage: &Storage) -> bool {
        let (Some(from), Some(to)) = (storage.from, storage.to) else { return false };
        self.facts.operator(storage.scope).is_some() && self.order.in_one_operator(from, to)
    }

    /// Whether it was there before the first step, and is still there after the last.
    pub(super) fn outlives_all_steps(&self, storage: &Storage) -> bool {
        let is_early = storage.from.is_none_or(|from| self.order.around(from).0.is_none());
        let phases = [Phase::Forward, Phase::Backward, Phase::Optimizer];
        let last = phases.into_iter().filter_map(|phase| self.order.last(phase)).max();
        is_early && storage.to.is_none_or(|to| last.is_none_or(|last| self.order.number(to) > last))
    }

    /// Whether it was there before the first of several steps and after the last. Data of one step does not live so long.
    pub(super) fn is_used_by_several_steps(&self, storage: &Storage) -> bool {
        self.order.backward_passes > 1 && self.outlives_all_steps(storage)
    }

    /// Whether nothing is known of its allocation.
    pub(super) fn is_old(&self, storage: &Storage) -> bool {
        storage.from.is_none() && !self.facts.stack(storage.stack).has_frames
    }

    /// Whether it outlived the part of the step that made it.
    fn outlives(&self, storage: &Storage) -> bool {
        // Live before the trace and still there: an earlier part made it.
        let Some(from) = storage.from else { return true };
        if let (Some(to), true) = (storage.to, self.facts.own_frees) {
            let freed = self.facts.stack(self.snapshot.events.stack[to]);
            if freed.has_frames && self.order.run(from).phase == Some(Phase::Backward) {
                return freed.phase != Some(Phase::Backward) || self.order.outlives_run(from, storage.to);
            }
        }
        self.order.outlives_run(from, storage.to)
    }

    /// Whether it outlived the preparations before the first step, in which it was made.
    fn is_built(&self, storage: &Storage) -> bool {
        match (storage.from, storage.to) {
            (Some(from), Some(to)) => self.order.began_between(from, to),
            _ => true,
        }
    }

    /// Whether a part of that phase comes after its allocation.
    fn comes_before(&self, storage: &Storage, phase: Phase) -> bool {
        match storage.from {
            Some(row) => self.order.last(phase).is_some_and(|last| last >= self.order.number(row)),
            None => self.has(phase),
        }
    }

    /// Whether the file shows that phase: by its events, or by a block that it allocated earlier.
    pub(super) fn has(&self, phase: Phase) -> bool {
        self.order.last(phase).is_some() || self.of_old[phase as usize]
    }

    /// Whether the next part after its allocation is that phase.
    fn is_next(&self, storage: &Storage, phase: Phase) -> bool {
        storage.from.is_some_and(|row| self.order.around(row).1 == Some(phase))
    }

    /// Whether its allocation, outside of all, is not between a forward pass and its backward one.
    fn is_before_forward(&self, storage: &Storage) -> bool {
        let Some(from) = storage.from else { return false };
        match self.order.around(from) {
            (Some(Phase::Forward), Some(Phase::Backward)) => false,
            (_, Some(Phase::Forward | Phase::Backward)) => true,
            _ => false,
        }
    }

    pub(super) fn end(&self, storage: &Storage) -> End {
        let Some(to) = storage.to else { return End::Never };
        let freed = self.facts.stack(self.snapshot.events.stack[to]);
        // The scope of a free, and mostly its stack, are those of the allocation.
        let own = self.facts.own_frees || storage.from.is_none();
        if own && freed.has_frames && !self.facts.of_profiler {
            return match freed.phase {
                _ if freed.has(Sign::ZeroesGradients) => End::ZeroGrad,
                phase if phase != Some(Phase::Backward) && freed.has(Sign::DropsGraph) => End::Graph,
                Some(phase) => End::In(phase),
                None => End::Elsewhere,
            };
        }
        self.order.run(to).phase.map_or(End::Elsewhere, End::In)
    }

    fn is_freed_by_its_call(&self, storage: &Storage, stack: &StackFacts) -> bool {
        let (Some(call), Some(from), Some(to)) = (stack.call, storage.from, storage.to) else { return false };
        let freed = self.facts.stack(self.snapshot.events.stack[to]);
        (!self.facts.own_frees || freed.call == Some(call)) && self.order.in_one_call(from, to)
    }

    /// The size that is compared: files have requested sizes in events and may have rounded ones in blocks.
    pub(super) fn size_class(&self, size_bytes: u64) -> u64 {
        if self.device.is_accelerator() && !self.facts.of_profiler {
            size_bytes.checked_next_multiple_of(512).unwrap_or(size_bytes)
        } else {
            size_bytes
        }
    }
}
