//! Tests each pass on a program that would have a different result without this pass.

use super::program::{MayWrite, Program, Reads, Writes, category_in};
use crate::analysis::analyse;
use crate::category::Category;
use crate::optrace::Mode;
use crate::pieces::pieces;
use memtrack_model::optrace::DeviceIndex;

const W: u64 = 0x100;
const X: u64 = 0x200;
const Y: u64 = 0x300;
const SEED: u64 = 0x400;
const D: u64 = 0x500;
const G: u64 = 0x600;
const M: u64 = 0x700;

/// Returns a training step with a weight and its gradient, where `y = w x` and `dw = x dy`.
fn training_step(named: bool) -> Program {
    let mut program = Program::default();
    program.tensor(0, W, 64);
    program.tensor(1, X, 32);
    let forward =
        |program: &mut Program| program.op("mm", &[Reads(1), Reads(0)], |inner| inner.alloc_tensor(2, Y, 48));
    if named {
        program.module("Linear", &[0], &[], forward);
    } else {
        forward(&mut program);
    }
    program.op("ones_like", &[Reads(2)], |inner| inner.alloc_tensor(3, SEED, 48));
    program.backward("MmBackward", &[MayWrite(3)], |inner| {
        inner.op("mm", &[Reads(3), Reads(2)], |inner| inner.alloc_tensor(4, D, 16));
        inner.op("mm", &[Reads(1), Reads(3)], |inner| inner.alloc_tensor(5, G, 64));
    });
    program.backward("torch::autograd::AccumulateGrad", &[MayWrite(5)], |inner| {
        inner.op("aten::detach", &[Reads(5)], |_| {});
    });
    // Read the memory once more, so that the trace shows a tensor in it.
    program.op("mul", &[Reads(4)], |_| {});
    program
}

#[track_caller]
fn expect(program: &Program, address: u64, version: u32, category: impl Into<Option<Category>>) {
    let category = category.into();
    for mode in [Mode::Compat, Mode::Tolerant] {
        assert_eq!(program.category(mode, address, version), category, "{mode:?}");
    }
}

#[test]
fn accumulated_tensors_are_gradients() {
    expect(&training_step(true), G, 0, Category::Gradient);
}

#[test]
fn tensors_registered_as_gradients_are_gradients() {
    let mut program = Program::default();
    program.tensor(0, X, 8);
    program.op("f", &[Reads(0)], |inner| inner.alloc_tensor(1, G, 8));
    program.grad(1);
    expect(&program, G, 0, Category::Gradient);
}

#[test]
fn memory_that_one_operator_allocates_and_frees_is_temporary() {
    let mut program = training_step(true);
    program.op("mul", &[Reads(2)], |inner| {
        inner.alloc_tensor(9, 0x900, 8);
        inner.op("fill_", &[Writes(9)], |_| {});
        inner.free(0x900, 8);
    });
    expect(&program, 0x900, 0, Category::Temporary);
}

#[test]
fn module_tensors_are_parameters() {
    let mut program = Program::default();
    program.tensor(0, W, 64);
    program.tensor(1, X, 32);
    program.module("Linear", &[0], &[], |inner| {
        inner.op("mm", &[Reads(1), Reads(0)], |inner| inner.alloc_tensor(2, Y, 48))
    });
    program.op("mul", &[Reads(2)], |_| {});
    expect(&program, W, 0, Category::Parameter);
}

#[test]
fn tensors_that_lead_to_gradient_without_depending_on_one_are_inputs() {
    expect(&training_step(true), X, 0, Category::Input);
}

#[test]
fn without_modules_parameters_are_found_by_data_flow() {
    let mut program = training_step(false);
    program.op("add_", &[Writes(0), Reads(5)], |_| {});
    expect(&program, W, 0, Category::Parameter);
    expect(&program, W, 1, Category::Parameter);
    // Unless an optimizer step writes the weight, it cannot be distinguished from an input.
    expect(&training_step(false), W, 0, Category::Input);
}

#[test]
fn tensors_made_from_inputs_and_parameters_are_activations() {
    let program = training_step(true);
    expect(&program, Y, 0, Category::Activation);
    expect(&program, SEED, 0, Category::Activation);
}

#[test]
fn tensors_that_optimizer_keeps_are_its_state() {
    let mut program = training_step(true);
    program.alloc_tensor(6, M, 64);
    program.op("mul_", &[Writes(6), Reads(5)], |_| {});
    program.optimizer(0, 5, 6);
    expect(&program, M, 0, Category::OptimizerState);
    expect(&program, M, 1, Category::OptimizerState);
}

#[test]
fn intermediate_results_of_backward_pass_are_autograd_detail() {
    expect(&training_step(true), D, 0, Category::AutogradDetail);
}

#[test]
fn buffers_have_category_only_in_tolerant_mode() {
    let mut program = Program::default();
    program.tensor(0, W, 64);
    program.tensor(1, X, 32);
    program.tensor(8, 0x800, 4);
    program.module("BatchNorm", &[0], &[8], |inner| {
        inner.op("batch_norm", &[Reads(1), Reads(0), Writes(8)], |inner| inner.alloc_tensor(2, Y, 48));
    });
    program.op("mul", &[Reads(2)], |_| {});
    assert_eq!(program.category(Mode::Tolerant, 0x800, 0), Some(Category::Buffer));
    assert_ne!(program.category(Mode::Compat, 0x800, 0), Some(Category::Buffer));
}

#[test]
fn memory_freed_by_optimizer_step_has_separate_category() {
    let mut program = training_step(true);
    program.phase("optimizer", |inner| {
        inner.op("sqrt", &[Reads(5)], |inner| inner.alloc_tensor(7, 0x700, 64));
        inner.op("add_", &[Writes(0), Reads(7)], |_| {});
        // No tensor is ever seen in this memory.
        inner.alloc(0x710, 4);
    });
    assert_eq!(program.category(Mode::Tolerant, 0x700, 0), Some(Category::OptimizerTemporary));
    assert_eq!(program.category(Mode::Compat, 0x700, 0), None);
    program.free(0x710, 4);
    let read = program.read(Mode::Tolerant);
    let profile = analyse(&read.trace, Mode::Tolerant).unwrap();
    let unseen = pieces(&profile, DeviceIndex(0)).into_iter().find(|piece| piece.bytes == 4).unwrap();
    assert_eq!(unseen.stages, [(unseen.begin_ns.unwrap(), Category::OptimizerTemporary)]);
    assert!(unseen.end_ns.is_some());
}

#[test]
fn results_are_known_even_if_they_are_never_read() {
    let mut program = Program::default();
    program.tensor(0, W, 64);
    program.tensor(1, X, 32);
    program.module("Linear", &[0], &[], |inner| {
        inner.op_with("mm", &[Reads(1), Reads(0)], &[2], |inner| {
            inner.alloc(Y, 48);
            inner.tensor(2, Y, 48);
        });
    });
    program.op("use", &[Reads(1)], |_| {});
    let read = program.read(Mode::Tolerant);
    let profile = analyse(&read.trace, Mode::Tolerant).unwrap();
    assert!(profile.storages().iter().flatten().any(|storage| storage.address == Y));
    let _ = category_in(&profile, Y, 0);
    let compat = analyse(&read.trace, Mode::Compat).unwrap();
    assert!(!compat.storages().iter().flatten().any(|storage| storage.address == Y));
}

#[test]
fn tensors_without_storage_are_merged_only_in_compat_mode() {
    let mut program = Program::default();
    for handle in [0, 1] {
        program.line(&format!(
            r#"{{"ev":"tensor","t":{handle},"impl":"e{handle}","storage":null,"dev":"cuda:0","dtype":"u8","sizes":[0],"strides":[1],"layout":"strided"}}"#
        ));
    }
    program.op("fill_", &[Writes(0), Writes(1)], |_| {});
    // Give each tensor its own memory.
    for (handle, address) in [(0, 0x100), (1, 0x200)] {
        program.alloc(address, 8);
        let late = 10 + handle;
        program.line(&format!(
            r#"{{"ev":"tensor","t":{late},"impl":"e{handle}","storage":"{address:#x}","dev":"cuda:0","dtype":"u8","sizes":[8],"strides":[1],"layout":"strided"}}"#
        ));
        program.op("use", &[Reads(late)], |_| {});
    }
    let read = program.read(Mode::Tolerant);
    let tensors = |mode| {
        let profile = analyse(&read.trace, mode).unwrap();
        let mut tensors: Vec<u32> =
            profile.storages().iter().flatten().map(|storage| storage.tensor).collect();
        tensors.dedup();
        tensors.len()
    };
    assert_eq!((tensors(Mode::Compat), tensors(Mode::Tolerant)), (1, 2));
}

#[test]
fn frees_by_another_operator_are_matched_in_chronological_order() {
    let mut program = Program::default();
    // Two operators run at the same time on two threads. The first one allocates, the second one frees, and
    // the first one allocates again.
    for (id, thread, time) in [(1, 1, 1), (2, 2, 2)] {
        program.line(&format!(
            r#"{{"ev":"op","id":{id},"parent":null,"ts":{time},"thread":{thread},"name":"f","kind":"op","schema":true,"args":[]}}"#
        ));
    }
    for (kind, parent, time, bytes) in
        [("alloc", 1, 3, 8), ("free", 2, 4, 8), ("alloc", 1, 5, 16), ("free", 2, 6, 16)]
    {
        program.line(&format!(
            r#"{{"ev":"{kind}","parent":{parent},"ts":{time},"thread":{parent},"dev":"cuda:0","ptr":"0x100","bytes":{bytes}}}"#
        ));
    }
    let read = program.read(Mode::Tolerant);
    let profile = analyse(&read.trace, Mode::Tolerant).unwrap();
    assert!(profile.repairs().is_empty(), "{}", profile.repairs());
    let pieces = pieces(&profile, DeviceIndex(0));
    let lives: Vec<_> = pieces.iter().map(|piece| (piece.bytes, piece.begin_ns, piece.end_ns)).collect();
    assert_eq!(lives, [(8, Some(3), Some(4)), (16, Some(5), Some(6))]);
}
