//! Tests each rule about a program's statements on a piece of memory in a trace recorded by memtrack's SDK.

use super::program::{MayWrite, Program, Reads, Writes};
use crate::analysis::{Action, analyse};
use crate::category::Category;
use crate::optrace::Mode;
use crate::recorded::PRODUCER;
use memtrack_model::optrace::RecordKind;

const W: u64 = 0x100;
const X: u64 = 0x200;
const INSIDE: u64 = 0x300;
const KEPT: u64 = 0x400;
const STRAY: u64 = 0x500;
const BACK: u64 = 0x600;
const G: u64 = 0x700;
const TEMP: u64 = 0x800;
const STATE: u64 = 0x900;
const CACHE: u64 = 0xa00;
const OUTSIDE: u64 = 0xb00;
const OUT: u64 = 0xc00;
const SCALED: u64 = 0xd00;
const SUM: u64 = 0xe00;

/// Adds a training step as candle would record it, where operators do not report the tensors that they keep.
fn add_step(program: &mut Program, number: u64) {
    let (base, handle) = (number << 16, 100 * number);
    if number == 1 {
        program.tensor(0, W, 64);
        program.module("register", &[0], &[], |_| {});
        program.phase("optimizer", |program| program.alloc(STATE, 128));
        program.alloc(OUTSIDE, 8);
    }
    program.tensor(handle + 1, base + X, 32);
    program.phase("forward", |program| {
        program.module("Linear", &[], &[], |program| {
            program.op_with("linear", &[Reads(handle + 1), Reads(0)], &[handle + 2], |inner| {
                inner.alloc(base + INSIDE, 16);
                inner.alloc(base + KEPT, 24);
                inner.free(base + INSIDE, 16);
                if number == 1 {
                    inner.alloc(CACHE, 4096);
                }
                inner.alloc_tensor(handle + 2, base + OUT, 48);
            });
            // The operator that allocates this memory does not report it, but another operator reads it.
            program.alloc_tensor(handle + 3, base + STRAY, 40);
            program.op("norm", &[Reads(handle + 3), Reads(0)], |_| {});
            // No operator allocates this memory. It is scaled in place by a weight and used along with an
            // input, as a parameter would be.
            program.alloc_tensor(handle + 5, base + SCALED, 88);
            program.op("mul_", &[Writes(handle + 5), Reads(0)], |_| {});
            program.op_with("add", &[Reads(handle + 1), Reads(handle + 5)], &[handle + 6], |inner| {
                inner.alloc_tensor(handle + 6, base + SUM, 96);
            });
        });
    });
    program.phase("backward", |program| {
        program.backward("backward", &[MayWrite(handle + 2), MayWrite(handle + 6)], |inner| {
            inner.alloc(base + BACK, 56);
            inner.alloc_tensor(handle + 4, base + G, 64);
            inner.free(base + BACK, 56);
        });
    });
    program.grad(handle + 4);
    program.phase("optimizer", |program| {
        program.alloc(base + TEMP, 72);
        program.free(base + TEMP, 72);
    });
    for (address, bytes) in [(KEPT, 24), (OUT, 48), (STRAY, 40), (SCALED, 88), (SUM, 96), (G, 64)] {
        program.free(base + address, bytes);
    }
}

/// Returns the category of the first memory at an address.
fn category_at(producer: &str, mode: Mode, address: u64) -> Category {
    let mut program = Program::default();
    add_step(&mut program, 1);
    add_step(&mut program, 2);
    let mut read = program.read(mode);
    read.trace.header.producer.0 = producer.to_owned();
    let profile = analyse(&read.trace, mode).unwrap();
    let is_here = |record: u32| matches!(&read.trace.records[record as usize].what, RecordKind::Memory(memory) if memory.address == address);
    let change = profile
        .changes()
        .iter()
        .find(|change| change.action == Action::Create && change.allocated_by.is_some_and(is_here));
    let change = change.expect("nothing was obtained there");
    profile.category_of(change)
}

fn recorded_category(address: u64) -> Category {
    category_at(PRODUCER, Mode::Tolerant, (1 << 16) + address)
}

#[test]
fn memory_that_operator_keeps_for_backward_pass_is_activation() {
    assert_eq!(recorded_category(KEPT), Category::Activation);
    // Data flow finds this category.
    assert_eq!(recorded_category(OUT), Category::Activation);
}

#[test]
fn memory_that_operator_frees_is_temporary() {
    assert_eq!(recorded_category(INSIDE), Category::Temporary);
}

#[test]
fn memory_made_inside_module_is_not_input() {
    assert_eq!(recorded_category(STRAY), Category::Activation);
}

#[test]
fn unregistered_memory_made_inside_module_is_not_parameter() {
    assert_eq!(recorded_category(SCALED), Category::Activation);
    assert_eq!(category_at("torch", Mode::Tolerant, (1 << 16) + SCALED), Category::Parameter);
}

#[test]
fn backward_memory_is_autograd_detail_unless_gradient() {
    assert_eq!(recorded_category(BACK), Category::AutogradDetail);
    assert_eq!(recorded_category(G), Category::Gradient);
}

#[test]
fn memory_that_optimizer_keeps_is_state() {
    assert_eq!(category_at(PRODUCER, Mode::Tolerant, STATE), Category::OptimizerState);
    assert_eq!(recorded_category(TEMP), Category::OptimizerTemporary);
}

#[test]
fn forward_pass_keeps_activations_until_they_are_freed() {
    assert_eq!(category_at(PRODUCER, Mode::Tolerant, CACHE), Category::Activation);
}

#[test]
fn memory_made_outside_of_operators_and_modules_has_no_category() {
    assert_eq!(category_at(PRODUCER, Mode::Tolerant, OUTSIDE), Category::Unknown);
}

/// Returns the categories of memory allocated by operators that are outside modules and do not
/// report their tensors.
fn in_operators_without_tensors(addresses: &[u64], run: impl FnOnce(&mut Program)) -> Vec<Category> {
    let mut program = Program::default();
    run(&mut program);
    let mut read = program.read(Mode::Tolerant);
    read.trace.header.producer.0 = PRODUCER.to_owned();
    let profile = analyse(&read.trace, Mode::Tolerant).unwrap();
    let of = |&address: &u64| {
        let is_here = |record: u32| matches!(&read.trace.records[record as usize].what, RecordKind::Memory(memory) if memory.address == address);
        let mut created = profile.changes().iter().filter(|change| change.action == Action::Create);
        let change = created.find(|change| change.allocated_by.is_some_and(is_here)).unwrap();
        profile.category_of(change)
    };
    addresses.iter().map(of).collect()
}

#[test]
fn operators_that_report_no_tensors_can_have_temporaries() {
    let found = in_operators_without_tensors(&[INSIDE, KEPT], |program| {
        program.op_without_tensors("crowding", |inner| {
            inner.alloc(INSIDE, 1000);
            inner.alloc(KEPT, 10);
            inner.free(INSIDE, 1000);
        });
        program.free(KEPT, 10);
    });
    // Outside modules, the memory that an operator returns could be anything.
    assert_eq!(found, [Category::Temporary, Category::Unknown]);
}

#[test]
fn results_of_inner_operators_are_temporaries_of_outer_one() {
    let found = in_operators_without_tensors(&[OUT, SUM], |program| {
        program.tensor(1, X, 32);
        program.op_without_tensors("block", |outer| {
            outer.op_with("linear", &[Reads(1)], &[2], |inner| inner.alloc_tensor(2, OUT, 48));
            outer.op_with("add", &[Reads(1), Reads(2)], &[3], |inner| inner.alloc_tensor(3, SUM, 96));
            outer.free(OUT, 48);
            outer.free(SUM, 96);
        });
    });
    assert!(found.iter().all(|&category| category == Category::Temporary), "{found:?}");
}

#[test]
fn activations_inside_operator_around_whole_step_are_not_temporaries() {
    let found = in_operators_without_tensors(&[KEPT, BACK], |program| {
        program.op_without_tensors("train_step", |step| {
            step.phase("forward", |forward| {
                forward.module("Linear", &[], &[], |module| module.alloc(KEPT, 24));
            });
            step.phase("backward", |backward| {
                backward.backward("backward", &[], |inner| {
                    inner.alloc(BACK, 56);
                    inner.free(KEPT, 24);
                    inner.free(BACK, 56);
                });
            });
        });
    });
    assert_eq!(found, [Category::Activation, Category::AutogradDetail]);
}

#[test]
fn stated_rules_do_not_apply_to_other_traces_or_in_compat_mode() {
    for address in [KEPT, INSIDE, BACK, TEMP, STRAY] {
        for (producer, mode) in [("torch", Mode::Tolerant), (PRODUCER, Mode::Compat)] {
            let category = category_at(producer, mode, (1 << 16) + address);
            assert!(
                address == STRAY || category == Category::Unknown || category == Category::OptimizerTemporary,
                "{mode:?} {address:#x}"
            );
        }
    }
}
