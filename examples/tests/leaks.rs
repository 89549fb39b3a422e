//! A model in candle whose training keeps the loss tensor of each step, and thus the step's whole graph: `leaks` lists the lines
//! that allocate it. The fixed training keeps only the loss as a number, and `leaks` lists nothing.

use candle_core::{DType, Device, Result, Tensor, Var};
use memtrack_core::analysis::leaks::{LeakOptions, LeakReport};
use memtrack_core::recorder::Options;
use memtrack_core::{TrackingAllocator, mark, start_monitor_with, stop};
use memtrack_tests::alone;

#[global_allocator]
static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();

const STEPS: usize = 60;
const ROWS: usize = 32;
const WIDTH: usize = 64;
/// The bytes of one matrix in a step's graph.
const MATRIX: u64 = (ROWS * WIDTH * 4) as u64;
/// The maximum number of bytes that a tensor needs in addition to its elements.
const TENSOR: u64 = 1500;

/// The losses of all steps.
#[derive(Default)]
struct Losses {
    tensors: Vec<Tensor>,
    numbers: Vec<f32>,
}

/// Trains, and returns the lines that allocate the matrices of a step's graph.
fn train(losses: &mut Losses, leaks: bool) -> Result<[u32; 3]> {
    let weight = Var::randn(0f32, 0.1, (WIDTH, WIDTH), &Device::Cpu)?;
    let mut lines = [0; 3];
    for step in 0..STEPS {
        let input = (Tensor::ones((ROWS, WIDTH), DType::F32, &Device::Cpu)? * (1.0 + step as f64))?;
        lines[0] = line!() + 1;
        let hidden = input.matmul(weight.as_tensor())?;
        lines[1] = line!() + 1;
        let active = hidden.relu()?;
        lines[2] = line!() + 1;
        let squared = active.sqr()?;
        let loss = squared.mean_all()?;
        let gradients = loss.backward()?;
        if let Some(gradient) = gradients.get(&weight) {
            weight.set(&(weight.as_tensor() - (gradient * 1e-6)?)?)?;
        }
        match leaks {
            true => losses.tensors.push(loss),
            false => losses.numbers.push(loss.to_scalar()?),
        }
        mark("step");
    }
    Ok(lines)
}

fn report(leaks: bool) -> (LeakReport, [u32; 3]) {
    // Warms up: at its first product, gemm allocates a buffer for the thread, as large as the processor's cache.
    train(&mut Losses::default(), false).unwrap();
    let mut losses = Losses::default();
    start_monitor_with(&Options::new().exact()).unwrap();
    let lines = train(&mut losses, leaks).unwrap();
    let recording = stop();
    assert_eq!(losses.tensors.len() + losses.numbers.len(), STEPS);
    (recording.leaks(&LeakOptions::new().per("step").limit(usize::MAX)).unwrap(), lines)
}

#[test]
fn leaks_lists_the_lines_of_kept_graphs_with_their_bytes_and_nothing_after_the_fix() {
    alone!();
    let (leaking, lines) = report(true);
    let leaks = &leaking.devices[0].leaks;
    for line in lines {
        let of_line = |leak: &&memtrack_core::analysis::leaks::Leak| {
            leak.row.owned.mine.as_ref().is_some_and(|mine| mine.line == Some(line))
        };
        let leak = leaks.iter().find(of_line).unwrap_or_else(|| panic!("line {line}: {leaking}"));
        let steps = STEPS as u64;
        let bytes = leak.row.allocated_bytes;
        assert!(bytes >= steps * MATRIX && bytes <= steps * (MATRIX + TENSOR), "{bytes}: {leaking}");
        assert!(leak.grew >= 8, "{leaking}");
    }
    // All leaks are allocated by the loop in this file.
    assert!(
        leaks.iter().all(|leak| leak
            .row
            .owned
            .mine
            .as_ref()
            .is_some_and(|mine| mine.function.contains("leaks::train"))),
        "{leaking}"
    );
    let generations = leaking.devices[0].generations.as_ref().unwrap();
    assert_eq!((generations.leaving, generations.marks), (STEPS - 1, STEPS));

    let (fixed, _) = report(false);
    assert!(fixed.is_clean(), "{fixed}");
}
