//! The categories of the candle training run's memory, with byte counts that follow from the shapes of the model.

use memtrack_core::analysis::top::TopReport;
use memtrack_core::event::Action;
use memtrack_core::profile::Category;
use memtrack_core::profile::analysis::{Profile, analyse};
use memtrack_core::profile::optrace::Mode;
use memtrack_core::profile::recorded::categories;
use memtrack_core::recorder::Options;
use memtrack_core::{By, Recording, TrackingAllocator, start_monitor_with, stop};
use memtrack_examples::config::Config;
use memtrack_examples::data::{Corpus, TEXT};
use memtrack_examples::training::{self, Outcome};
use std::collections::BTreeMap;
use std::sync::LazyLock;

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();

const STEPS: usize = 3;
const FLOAT: usize = 4;

/// One recorded run for all tests.
static RUN: LazyLock<(Recording, Outcome)> = LazyLock::new(|| {
    start_monitor_with(&Options::new().exact().operators().max_entries(u64::MAX)).unwrap();
    let outcome = training::train(&config(), |_, _| ()).unwrap();
    (stop(), outcome)
});

static TOP: LazyLock<TopReport> = LazyLock::new(|| RUN.0.top(By::Category, 20));

fn config() -> Config {
    Config { steps: STEPS, ..Config::tiny() }
}

/// Returns the number of elements of each weight, in no particular order.
fn weights() -> Vec<usize> {
    let (Config { width, context, blocks, .. }, vocabulary) = (config(), Corpus::new(TEXT).vocabulary_size());
    let linear = |inputs: usize, outputs: usize| [inputs * outputs, outputs];
    let norm = [width; 2];
    let mut weights = vec![vocabulary * width, context * width];
    for _ in 0..blocks {
        weights.extend([norm, norm].concat());
        weights.extend([linear(width, width); 4].concat());
        weights.extend([linear(width, 4 * width), linear(4 * width, width)].concat());
    }
    weights.extend([norm, linear(width, vocabulary)].concat());
    weights
}

fn bytes_of_weights() -> u64 {
    (FLOAT * weights().into_iter().sum::<usize>()) as u64
}

/// Returns the bytes of the results of all operators of one forward pass.
fn bytes_of_results() -> u64 {
    let Config { batch, context, width, heads, blocks, .. } = config();
    let hidden = batch * context * width;
    let scores = batch * heads * context * context;
    // The embedding rows, and the sums of these rows and the position vectors.
    let embedding = 2 * hidden;
    // Two norms; query, key and value, and each of these split by heads; scores, masked scores, softmax; the weighted values,
    // joined heads, and their projection; two residuals; the wide hidden layer, its activation, and the output layer.
    let block = (2 + 3 + 3 + 3 + 2 + 4 + 4 + 1) * hidden + 3 * scores;
    let head = hidden + batch * context * Corpus::new(TEXT).vocabulary_size();
    let loss = 1;
    (FLOAT * (embedding + blocks * block + head + loss)) as u64
}

fn requested(category: &str) -> (u64, u64) {
    let row = TOP.rows.iter().find(|row| row.name == category).unwrap_or_else(|| panic!("{}", *TOP));
    assert!(!row.estimated);
    (row.allocated_bytes, row.count)
}

#[test]
fn weights_are_parameters_and_their_gradients_are_gradients() {
    assert_eq!(RUN.1.parameters as u64 * FLOAT as u64, bytes_of_weights());
    let count = weights().len() as u64;
    assert_eq!(requested("parameter"), (bytes_of_weights(), count));
    let steps = STEPS as u64;
    assert_eq!(requested("gradient"), (steps * bytes_of_weights(), steps * count));
}

#[test]
fn characters_are_inputs_and_the_mask_is_a_buffer() {
    let Config { batch, context, blocks, .. } = config();
    // Inputs and targets, as integers of four bytes.
    let inputs = (STEPS * 2 * batch * context * 4) as u64;
    assert_eq!(requested("input"), (inputs, 2 * STEPS as u64));
    assert_eq!(requested("buffer"), ((blocks * context * context * FLOAT) as u64, blocks as u64));
}

#[test]
fn both_moments_of_every_weight_are_optimizer_state() {
    let snapshot = RUN.0.snapshot();
    let categories = categories(snapshot).unwrap();
    let mut by_size: BTreeMap<u64, usize> = BTreeMap::new();
    for (row, event) in snapshot.events.iter().enumerate() {
        if event.action == Action::Alloc && categories.of_event(row) == Some("optimizer_state") {
            *by_size.entry(event.size_bytes).or_default() += 1;
        }
    }
    let mut moments: BTreeMap<u64, usize> = BTreeMap::new();
    for weight in weights() {
        *moments.entry((FLOAT * weight) as u64).or_default() += 2;
    }
    for (&bytes, &count) in &moments {
        let found = by_size.get(&bytes).copied().unwrap_or(0);
        // Blocks of a small size may also be shapes, reference counts or the list of weights.
        assert!(found == count || bytes < 1024 && found > count, "{found} of {count} with {bytes} bytes");
    }
    let all: u64 = by_size.iter().map(|(bytes, &count)| bytes * count as u64).sum();
    let beside = all - 2 * bytes_of_weights();
    assert!(beside < 1024 * weights().len() as u64, "{beside} bytes beside the moments");
}

#[test]
fn results_of_operators_are_activations() {
    let trace = RUN.0.operator_trace().unwrap();
    let profile = analyse(&trace, Mode::Tolerant).unwrap();
    assert_eq!(tensors(&profile, Category::Activation), STEPS as u64 * bytes_of_results());
    // Operators also keep memory for the backward pass, which is categorised although it is not reported to memtrack.
    let (all, _) = requested("activation");
    assert!(all > STEPS as u64 * bytes_of_results(), "{all}");
}

/// Returns the total bytes of the storages that contain reported tensors and whose first version has this category.
fn tensors(profile: &Profile<'_>, category: Category) -> u64 {
    let storages = (0..).zip(profile.storages()).filter_map(|(number, storage)| Some((number, (*storage)?)));
    let of_category = storages.filter(|&(number, _)| profile.category(number, 0) == Some(category));
    of_category.map(|(_, storage)| storage.bytes.unwrap()).sum()
}

#[test]
fn other_memory_of_the_backward_pass_is_autograd_detail_and_freed_memory_of_the_step_is_temporary() {
    let snapshot = RUN.0.snapshot();
    let categories = categories(snapshot).unwrap();
    let mut by_phase: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (row, event) in snapshot.events.iter().enumerate().filter(|(_, event)| event.action == Action::Alloc)
    {
        let phase = snapshot.scopes.place(event.scope).phase.map_or("none", |phase| phase.name());
        let category = categories.of_event(row).unwrap_or("none");
        *by_phase.entry((phase, category)).or_default() += event.size_bytes;
    }
    let of = |phase: &str, category: &str| by_phase.get(&(phase, category)).copied().unwrap_or(0);
    let backward: u64 =
        by_phase.iter().filter(|((phase, _), _)| *phase == "backward").map(|(_, bytes)| bytes).sum();
    assert_eq!(of("backward", "gradient"), STEPS as u64 * bytes_of_weights());
    assert_eq!(
        of("backward", "gradient") + of("backward", "autograd_detail") + of("backward", "none"),
        backward
    );
    // Each step allocates at least four temporary elements per weight: for the new moments and weights.
    assert!(of("optimizer", "optimizer_temporary") > 4 * STEPS as u64 * bytes_of_weights(), "{by_phase:?}");
    assert_eq!(
        of("forward", "gradient") + of("forward", "parameter") + of("forward", "input"),
        0,
        "{by_phase:?}"
    );
}
