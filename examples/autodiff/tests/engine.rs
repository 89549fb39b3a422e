//! The engine's results are correct, and memtrack finds its cycles: all byte counts follow from the shapes.

use memtrack_core::cycles;
use memtrack_core::cycles::findings::{Bytes, Proof};
use memtrack_examples_autodiff::Variant;
use memtrack_examples_autodiff::device::Device;
use memtrack_examples_autodiff::operators::{linear, mean_squared_error, tanh};
use memtrack_examples_autodiff::tensor::{Node, Tensor, backward};
use memtrack_examples_autodiff::training::{HIDDEN, POINTS, Training};
use std::sync::{Mutex, MutexGuard, PoisonError};

const FLOAT: u64 = 4;
/// The bytes of the result of `tanh` and of its input, which each step with the mistake leaks.
const LEAKED_BY_A_STEP: u64 = 2 * (POINTS * HIDDEN) as u64 * FLOAT;

/// Locks a mutex, since only one scan can run at a time in a process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    cycles::enable();
    guard
}

fn steps(training: &Training, count: usize) -> Vec<f32> {
    (0..count).map(|_| training.step()).collect()
}

fn size_bytes(training: &Training) -> u64 {
    training.kept().map(|tensor| tensor.size_bytes()).sum()
}

#[test]
fn each_step_with_the_mistake_leaks_a_cycle_and_two_buffers() {
    let _alone = alone();
    let training = Training::new(&Device::new(), Variant::Mistake);
    let before = size_bytes(&training);
    steps(&training, 3);
    assert_eq!(training.in_use_bytes(), before + 3 * LEAKED_BY_A_STEP);

    let report = cycles::find().unwrap();
    let findings = report.findings();
    assert_eq!((findings.leaks(), findings.cycles.len()), (3, 1), "{report}");
    let cycle = &findings.cycles[0];
    assert_eq!((cycle.proof, cycle.instances), (Proof::Proved, 3));
    let numbers = |bytes: Bytes| (bytes.known_bytes, bytes.storages, bytes.unknown);
    assert_eq!(numbers(cycle.leaked), (LEAKED_BY_A_STEP, 2, 0));
    assert_eq!(numbers(cycle.all_leaked), (3 * LEAKED_BY_A_STEP, 6, 0));
    assert_eq!(findings.leaked, cycle.all_leaked, "{report}");
    // The cycle also refers to the first layer's parameters and x, which the program still uses.
    assert_eq!(cycle.pinned.known_bytes, (2 * HIDDEN + POINTS) as u64 * FLOAT);

    // The report suggests making the same reference weak that is weak in the fixed variant.
    let weak = cycle.suggested_cuts();
    assert_eq!(weak.len(), 1, "{report}");
    let edge = report.graph.edges[weak[0].edge as usize];
    assert_eq!(report.graph.text(edge.path), ".backward.handles.output::Kept.0");
    assert!(weak[0].ends_it && edge.from == edge.to && report.graph.label(edge.from).contains("tanh"));
}

#[test]
fn the_fix_leaves_no_cycle_and_no_growth() {
    let _alone = alone();
    let training = Training::new(&Device::new(), Variant::Fixed);
    let before = training.in_use_bytes();
    assert_eq!(before, size_bytes(&training));
    steps(&training, 3);
    assert_eq!(training.in_use_bytes(), before);
    let report = cycles::find().unwrap();
    assert_eq!((report.findings().leaks(), report.unreachable), (0, 0), "{report}");
    // Shows that the scan visited the live values: a scan of nothing would not find a cycle either.
    assert_eq!((report.values, report.with_memory), (6, 6));
}

#[test]
fn both_variants_learn_alike() {
    let _alone = alone();
    let losses = |variant| steps(&Training::new(&Device::new(), variant), 4);
    let (mistake, fixed) = (losses(Variant::Mistake), losses(Variant::Fixed));
    assert_eq!(mistake, fixed);
    assert!(fixed.is_sorted_by(|before, after| before > after) && fixed[3] < fixed[0] / 4.0, "{fixed:?}");
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    let device = Device::new();
    let values = |count: usize, step: f32| (0..count).map(|at| step * (at as f32 - 2.0)).collect::<Vec<_>>();
    let loss = |weight: Vec<f32>| -> (Tensor, Tensor) {
        let x = Node::new(&device, "x", [4, 3], values(12, 0.1));
        let weight = Node::parameter(&device, "weight", [3, 2], weight);
        let bias = Node::parameter(&device, "bias", [1, 2], values(2, 0.3));
        let truth = Node::new(&device, "truth", [4, 2], values(8, 0.2));
        // The weight and the bias are used twice, so their gradients are sums.
        let hidden = tanh(&linear(&x, &weight, &bias), Variant::Fixed);
        let turn = Node::new(&device, "turn", [2, 3], values(6, 0.2));
        let other =
            tanh(&linear(&hidden, &turn, &Node::new(&device, "by", [1, 3], values(3, 0.1))), Variant::Fixed);
        let guess = linear(&other, &weight, &bias);
        (mean_squared_error(&guess, &truth), weight)
    };
    let weights = values(6, 0.15);
    let (here, weight) = loss(weights.clone());
    backward(&here);
    let gradient = weight.read_gradient(<[f32]>::to_vec).expect("there was a backward pass");
    for at in 0..6 {
        let beside = |by: f32| {
            let mut weights = weights.clone();
            weights[at] += by;
            loss(weights).0.read(|loss| loss[0])
        };
        let slope = (beside(1e-2) - beside(-1e-2)) / 2e-2;
        assert!((slope - gradient[at]).abs() < 2e-3, "{at}: {slope} and {}", gradient[at]);
    }
    drop((here, weight));
    assert_eq!(device.in_use_bytes(), 0);
}
