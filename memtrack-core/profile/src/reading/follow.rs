//! Applies the rules that depend on the decisions for other storages. These rules concern gradient sizes and
//! replacements.

use super::decide::{Classifier, Decision, FreeSite};
use super::order::Storage;
use super::rule::{Confidence, Rule};
use crate::Category;
use foldhash::{HashMap, HashSet};
use memtrack_model::Phase;

/// The maximum number of tensors of a parameter's size that an optimizer keeps per parameter. AMSGrad keeps
/// three, and some optimizers also keep a full-precision copy.
const MAX_STATES: usize = 4;

/// Blocks of the same size in an optimizer step, each with its event row and storage. `made` holds the blocks
/// that the step allocated and kept, and `freed` holds the older blocks that it freed.
#[derive(Default)]
struct Exchange {
    made: Vec<(usize, usize)>,
    freed: Vec<(usize, usize)>,
}

impl Classifier<'_> {
    /// Finds gradients by their size. If the stacks of frees are not recorded, a gradient that is freed
    /// before the next phase starts looks like other memory of the backward pass, except that it has the size
    /// of a parameter.
    pub(super) fn decide_gradients_by_size(&self, decided: &mut [Option<Decision>]) {
        if !(self.is_enabled)(Rule::GradientBySize)
            || self.facts.frees_have_stacks
            || self.facts.is_from_profiler
        {
            return;
        }
        let mut parameter_sizes: HashSet<u64> = HashSet::default();
        for (storage, decision) in self.storages.iter().zip(&*decided) {
            let is_old = self.is_old(storage) && storage.to.is_none();
            if is_old || decision.is_some_and(|(category, _)| category == Category::Parameter) {
                parameter_sizes.insert(self.size_class(storage.size_bytes));
            }
        }
        for (storage, decision) in self.storages.iter().zip(decided) {
            let is_backward = decision.is_some_and(|(_, rule)| rule == Rule::Backward);
            let is_last = storage.to.is_some_and(|to| self.order.is_after_allocations(to));
            if is_backward && is_last && parameter_sizes.contains(&self.size_class(storage.size_bytes)) {
                *decision = Some((Category::Gradient, Rule::GradientBySize));
            }
        }
    }

    /// Classifies blocks that are older than the first step and have the size of a gradient. If a backward
    /// pass makes N gradients of some size, N blocks of that size are parameters, and the others are
    /// optimizer state.
    pub(super) fn decide_early_by_size(&self, decided: &mut [Option<Decision>]) {
        let gradients = self.gradients_per_pass(decided);
        let mut candidates: HashMap<u64, Vec<usize>> = HashMap::default();
        for (at, storage) in self.storages.iter().enumerate() {
            let class = self.size_class(storage.size_bytes);
            // A parameter may have been created in the same way as an input.
            let is_open = decided[at].is_none_or(|(_, rule)| rule == Rule::InputMade);
            let is_early = self.is_old(storage) || self.is_kept_from_before(storage);
            if is_open && is_early && gradients.contains_key(&class) {
                candidates.entry(class).or_default().push(at);
            }
        }
        let last_written = self.written_last(&candidates, &gradients);
        for (class, mut found) in candidates {
            // Parameters are long-lived and allocated first. An optimizer may replace its state, and it
            // writes each parameter after the parameter's state.
            found.sort_by_key(|&at| {
                let storage = &self.storages[at];
                (storage.to.is_some(), !last_written.contains(&at), storage.written.is_empty(), storage.from)
            });
            for (place, at) in found.into_iter().enumerate() {
                let storage = &self.storages[at];
                let count = gradients[&class];
                // There are more blocks than an optimizer keeps per parameter, so the remaining ones are other
                // parameters that happen to have the same size.
                if self.is_old(storage) && place >= count * (1 + MAX_STATES) {
                    continue;
                }
                let rule = match (place < count, self.is_old(storage)) {
                    (true, true) => Rule::SizeOfGradient,
                    (false, true) => Rule::SizeOfGradientAgain,
                    (true, false) => Rule::EarlySizeOfGradient,
                    (false, false) if decided[at].is_some() => continue,
                    (false, false) => Rule::EarlySizeAgain,
                };
                // An input may also have the size of a gradient. In a profiler's snapshot, state can be
                // recognized by its writes.
                let is_input = self.facts.is_from_profiler && storage.written.is_empty();
                if !(is_input && rule.category() == Category::OptimizerState) {
                    decided[at] = self.decision(rule).or(decided[at]);
                }
            }
        }
    }

    /// Returns whether the storage was allocated within the trace but before the first phase, and outlived
    /// the first backward pass.
    fn is_kept_from_before(&self, storage: &Storage) -> bool {
        let Some(from) = storage.from else { return false };
        let is_before =
            self.order.phases_around(from).0.is_none() && self.facts.scope(storage.scope).is_none();
        let first = self.order.first_run(Phase::Backward);
        is_before && first.is_some_and(|first| storage.to.is_none_or(|to| self.order.run_number(to) > first))
    }

    /// Returns, for each size, the maximum number of gradients that a single backward pass produced.
    fn gradients_per_pass(&self, decided: &[Option<Decision>]) -> HashMap<u64, usize> {
        let mut of_run: HashMap<(u64, usize), usize> = HashMap::default();
        for (storage, decision) in self.storages.iter().zip(decided) {
            if let Some((Category::Gradient, _)) = decision {
                let class = self.size_class(storage.size_bytes);
                // Gradients that are older than the trace are attributed to a single earlier pass.
                let pass = storage.from.map_or(0, |from| self.order.run_number(from));
                *of_run.entry((class, pass)).or_default() += 1;
            }
        }
        let mut most: HashMap<u64, usize> = HashMap::default();
        for ((class, _), count) in of_run {
            let most = most.entry(class).or_default();
            *most = count.max(*most);
        }
        most
    }

    /// Returns the candidates that are parameters because an optimizer step writes them in place after
    /// writing their state. The step updates either one parameter after another, each along with its state,
    /// or one list of tensors after another.
    fn written_last(
        &self,
        candidates: &HashMap<u64, Vec<usize>>,
        gradients: &HashMap<u64, usize>,
    ) -> HashSet<usize> {
        let in_step = |row: &usize| self.order.run(*row).phase == Some(Phase::Optimizer);
        let all = || candidates.values().flatten().copied();
        let first = all().filter_map(|at| self.storages[at].written.iter().copied().find(in_step)).min();
        let Some(step) = first.map(|row| self.order.run_number(row)) else { return HashSet::default() };
        // Use each candidate's last write in the step, because weight decay can also write a parameter earlier.
        let mut sequence: Vec<(usize, usize)> = all()
            .filter_map(|at| {
                let rows = self.storages[at].written.iter().copied();
                rows.filter(|&row| self.order.run_number(row) == step).max().map(|row| (row, at))
            })
            .collect();
        sequence.sort_unstable();
        let size = |&(_, at): &(usize, usize)| self.size_class(self.storages[at].size_bytes);
        // The number of tensors per parameter, including the parameter itself.
        let parameters: usize = candidates.keys().map(|class| gradients[class]).sum();
        let many = sequence.len().checked_div(parameters).unwrap_or(0);
        let alike = |chunk: &[(usize, usize)]| chunk.iter().all(|one| size(one) == size(&chunk[0]));
        if many > 1 && sequence.len() == many * parameters && sequence.chunks(many).all(alike) {
            return sequence.chunks(many).filter_map(|chunk| chunk.last()).map(|&(_, at)| at).collect();
        }
        // The step updates one list after another, so the parameters are the last tensors of each size.
        let mut left = gradients.clone();
        let is_last = |one: &&(usize, usize)| {
            let left = left.entry(size(one)).or_default();
            let is_last = *left > 0;
            *left = left.saturating_sub(1);
            is_last
        };
        sequence.iter().rev().filter(is_last).map(|&(_, at)| at).collect()
    }

    /// Classifies the remaining blocks that are older than the trace.
    pub(super) fn decide_remaining_old(&self, decided: &mut [Option<Decision>]) {
        let (has_forward, has_backward) = (self.has_phase(Phase::Forward), self.has_phase(Phase::Backward));
        for (storage, decision) in self.storages.iter().zip(decided) {
            if decision.is_some() || !self.is_old(storage) {
                continue;
            }
            let rule = match self.free_site(storage) {
                FreeSite::In(Phase::Optimizer) if !self.facts.is_from_profiler => Rule::OldFreedInStep,
                _ if self.is_written_in(storage, Phase::Optimizer) => Rule::WrittenInStep,
                _ if has_backward && storage.written.is_empty() => {
                    if self.facts.is_from_profiler || !self.outlives_all_steps(storage) {
                        Rule::OldAndUntouched
                    } else if self.is_used_by_several_steps(storage) {
                        Rule::FrozenParameter
                    } else {
                        // Frozen weights and the data of a single step look alike, so no rule applies.
                        continue;
                    }
                }
                FreeSite::Never if has_forward => Rule::OldInInference,
                _ => continue,
            };
            *decision = self.decision(rule);
        }
    }

    /// Classifies blocks that a step allocated and kept in place of blocks that it freed. They hold the new
    /// value of a parameter or of optimizer state.
    pub(super) fn decide_replacements(&self, decided: &mut [Option<Decision>]) {
        // The exchanged blocks, grouped by step and size.
        let mut steps: HashMap<(usize, u64), Exchange> = HashMap::default();
        for (at, storage) in self.storages.iter().enumerate() {
            let class = self.size_class(storage.size_bytes);
            let step = |row: usize| {
                let run = self.order.run_number(row);
                (self.order.runs[run].phase == Some(Phase::Optimizer)).then_some((run, class))
            };
            let kept = decided[at].is_some_and(|(_, rule)| rule == Rule::KeptByStep);
            if let Some(step) = storage.from.filter(|_| kept).and_then(step) {
                steps.entry(step).or_default().made.extend(storage.from.map(|row| (row, at)));
            }
            let end = self.free_site(storage);
            if let Some(to) = storage.to.filter(|_| end == FreeSite::In(Phase::Optimizer))
                && let Some(step) = step(to)
                && storage.from.is_none_or(|from| self.order.run_number(from) < step.0)
            {
                steps.entry(step).or_default().freed.push((to, at));
            }
        }
        let mut steps: Vec<_> = steps.into_iter().collect();
        // Process the steps in chronological order, because a later step may replace the result of an earlier
        // one.
        steps.sort_unstable_by_key(|&(step, _)| step);
        for (_, Exchange { mut made, mut freed }) in steps {
            // Steps replace parameters and optimizer state. A gradient that a step frees is not replaced.
            let is_replaced = |decision: Option<Decision>| {
                decision.is_some_and(|(category, _)| {
                    matches!(category, Category::Parameter | Category::OptimizerState)
                })
            };
            freed.retain(|&(_, old)| is_replaced(decided[old]));
            made.sort_unstable();
            freed.sort_unstable();
            if made.len() != freed.len() {
                continue;
            }
            for (&(row, new), &(to, old)) in made.iter().zip(&freed) {
                let Some((category, by)) = decided[old].filter(|_| row < to) else { continue };
                let is_guess = by.confidence() == Confidence::Guess;
                let rule = if is_guess { Rule::ReplacedGuess } else { Rule::ReplacedInStep };
                if (self.is_enabled)(rule) {
                    decided[new] = Some((category, rule));
                }
            }
        }
    }
}
