//! Tests that following the advice saves as much as promised, by changing the program accordingly and
//! recomputing its peak.

use super::program::{Arg, MayWrite, Program, Reads, Writes};
use crate::advice::{Advice, Finding, Kind};
use crate::analysis::analyse;
use crate::category::Category;
use crate::optrace::{Mode, ReadTrace};
use crate::repairs::Repairs;
use memtrack_model::optrace::DeviceIndex;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A step of a program. Memory is identified by a number, and its size is in `Steps::bytes`.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// An operator that reads and allocates memory. The memory in `frees` is freed before the operator ends.
    Op {
        name: String,
        reads: Vec<u64>,
        makes: Vec<u64>,
        frees: Vec<u64>,
    },
    Free(u64),
    /// The start of a module call.
    Begin(&'static str),
    End,
    /// The backward pass of an operator that was called in a module.
    Node {
        name: String,
        of: String,
        reads: Vec<u64>,
        makes: Vec<u64>,
    },
}

#[derive(Clone, Debug, Default)]
struct Steps {
    steps: Vec<Step>,
    bytes: BTreeMap<u64, u64>,
    /// Whether all modules are of the same type.
    are_alike: bool,
}

fn op(name: &str, reads: &[u64], makes: &[u64]) -> Step {
    Step::Op { name: name.into(), reads: reads.into(), makes: makes.into(), frees: Vec::new() }
}

impl Step {
    fn reads(&self) -> &[u64] {
        match self {
            Self::Op { reads, .. } | Self::Node { reads, .. } => reads,
            _ => &[],
        }
    }

    fn makes(&self) -> &[u64] {
        match self {
            Self::Op { makes, .. } | Self::Node { makes, .. } => makes,
            _ => &[],
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Op { name, .. } | Self::Node { name, .. } => name,
            _ => "",
        }
    }
}

impl Steps {
    fn new(steps: Vec<Step>, bytes: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self { steps, bytes: bytes.into_iter().collect(), are_alike: false }
    }

    /// Returns the memory that exists from the start, i.e. memory that is read but never allocated.
    fn preexisting(&self) -> Vec<u64> {
        let made: Vec<u64> = self.steps.iter().flat_map(Step::makes).copied().collect();
        let mut used: Vec<u64> = self.steps.iter().flat_map(Step::reads).copied().collect();
        used.retain(|memory| !made.contains(memory));
        used.sort_unstable();
        used.dedup();
        used
    }

    /// Computes the peak step by step.
    fn compute_peak(&self) -> u64 {
        let mut now: u64 = self.preexisting().iter().map(|memory| self.bytes[memory]).sum();
        let mut peak = now;
        for step in &self.steps {
            for memory in step.makes() {
                now += self.bytes[memory];
                peak = peak.max(now);
            }
            match step {
                Step::Op { frees, .. } => now -= frees.iter().map(|memory| self.bytes[memory]).sum::<u64>(),
                Step::Free(memory) => now -= self.bytes[memory],
                _ => {}
            }
        }
        peak
    }

    /// Returns the trace that the program would record.
    fn trace(&self) -> ReadTrace {
        let mut program = Program::default();
        let address = |memory: u64| 0x1000 * (memory + 1);
        for memory in self.preexisting() {
            program.tensor(memory, address(memory), self.bytes[&memory]);
        }
        self.write(&mut program, &mut self.steps.iter().collect::<Vec<_>>().into_iter(), &address);
        program.read(Mode::Tolerant)
    }

    fn write<'a>(
        &self,
        program: &mut Program,
        steps: &mut impl Iterator<Item = &'a Step>,
        address: &impl Fn(u64) -> u64,
    ) {
        // An operator's name determines its sequence number.
        let sequence =
            |name: &str| name.bytes().fold(7_u64, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_003);
        while let Some(step) = steps.next() {
            let args: Vec<Arg> = step.reads().iter().map(|&memory| Reads(memory)).collect();
            let make = |inner: &mut Program| {
                for &memory in step.makes() {
                    inner.alloc_tensor(memory, address(memory), self.bytes[&memory]);
                }
            };
            match step {
                Step::Op { name, makes, frees, .. } => {
                    program.op_with_sequence(name, sequence(name), &args, makes, |inner| {
                        make(inner);
                        frees.iter().for_each(|&memory| inner.free(address(memory), self.bytes[&memory]));
                    });
                }
                Step::Node { name, of, .. } => program.backward_of(name, sequence(of), &args, make),
                Step::Free(memory) => program.free(address(*memory), self.bytes[memory]),
                Step::Begin(name) => {
                    let (class, path) = if self.are_alike { ("Layer", *name) } else { (*name, "") };
                    program
                        .module_at(name, class, path, (&[], &[]), |inner| self.write(inner, steps, address));
                }
                Step::End => return,
            }
        }
    }

    fn advice(&self) -> Advice {
        let ReadTrace { trace, repairs } = self.trace();
        assert!(repairs.is_empty(), "{repairs}");
        let profile = analyse(&trace, Mode::Tolerant).unwrap();
        Advice::of(&profile, DeviceIndex(0), Repairs::default())
    }

    fn place(&self, name: &str) -> usize {
        self.steps.iter().position(|step| step.name() == name).unwrap()
    }

    fn maker(&self, memory: u64) -> Option<usize> {
        self.steps.iter().position(|step| step.makes().contains(&memory))
    }

    /// Returns the program with the finding's advice applied. The finding must concern exactly one
    /// allocation.
    fn after_following(&self, finding: &Finding) -> Self {
        let memory = *self.bytes.iter().find(|(_, bytes)| **bytes == finding.allocated_bytes).unwrap().0;
        let mut changed = self.clone();
        let steps = &mut changed.steps;
        let uses: Vec<usize> = (0..steps.len()).filter(|&at| steps[at].reads().contains(&memory)).collect();
        match finding.kind {
            Kind::Early => {
                let first = uses[0];
                match self.maker(memory) {
                    Some(maker) => {
                        let step = steps.remove(maker);
                        steps.insert(first - 1, step);
                    }
                    None => steps.insert(first, op("obtained", &[], &[memory])),
                }
            }
            Kind::Late => {
                steps.retain(|step| *step != Step::Free(memory));
                let last = uses.last().copied().or(self.maker(memory)).unwrap();
                steps.insert(last + 1, Step::Free(memory));
            }
            Kind::Idle => {
                let before = finding.last_used.as_ref().map(|of| self.place(&of.operator));
                let before = before.or(self.maker(memory)).unwrap();
                let after = self.place(&finding.next_used.as_ref().unwrap().operator);
                let again = 1_000 + memory;
                changed.bytes.insert(again, self.bytes[&memory]);
                for step in &mut steps[after..] {
                    match step {
                        Step::Op { reads, .. } | Step::Node { reads, .. } => {
                            reads.iter_mut().filter(|one| **one == memory).for_each(|one| *one = again);
                        }
                        Step::Free(one) if *one == memory => *one = again,
                        _ => {}
                    }
                }
                steps.insert(after, op("back", &[], &[again]));
                steps.insert(before + 1, Step::Free(memory));
            }
            other => panic!("{other:?} is about modules and gradients"),
        }
        changed
    }
}

#[track_caller]
fn single_finding(advice: &Advice, kind: Kind) -> Finding {
    let found: Vec<&Finding> = advice.findings.iter().filter(|finding| finding.kind == kind).collect();
    assert_eq!(found.len(), 1, "{advice}");
    found[0].clone()
}

#[test]
fn early_allocation_is_moved_later() {
    let steps = Steps::new(
        vec![
            op("table", &[], &[1]),
            op("big", &[0], &[2]),
            Step::Free(2),
            op("look_up", &[0, 1], &[3]),
            Step::Free(1),
        ],
        [(0, 10), (1, 40), (2, 100), (3, 20)],
    );
    let advice = steps.advice();
    assert_eq!((advice.peak_bytes, steps.compute_peak()), (150, 150));
    let finding = single_finding(&advice, Kind::Early);
    assert_eq!((finding.allocated_bytes, finding.saves_bytes, finding.new_peak_bytes), (40, 40, 110));
    assert_eq!(finding.operator.as_deref(), Some("table"));
    assert_eq!(finding.next_used.as_ref().unwrap().operator, "look_up");
    assert_eq!(steps.after_following(&finding).compute_peak(), 110);
}

#[test]
fn saving_follows_from_new_peak_not_block_size() {
    // Without the first block, which has 50 bytes, the first peak falls from 120 to 70 bytes. The second peak remains at 90
    // bytes, so only 30 bytes are saved.
    let steps = Steps::new(
        vec![
            op("a", &[], &[1]),
            op("b", &[1], &[2]),
            op("c", &[2], &[3]),
            Step::Free(1),
            Step::Free(2),
            Step::Free(3),
            op("d", &[], &[4]),
            Step::Free(4),
        ],
        [(1, 50), (2, 10), (3, 60), (4, 90)],
    );
    let advice = steps.advice();
    let finding = single_finding(&advice, Kind::Late);
    assert_eq!((finding.allocated_bytes, finding.saves_bytes, finding.new_peak_bytes), (50, 30, 90));
    assert_eq!(steps.after_following(&finding).compute_peak(), 90);
    assert_eq!(advice.together.without_more_work.saves_bytes, 30);
}

#[test]
fn no_saving_is_promised_if_another_peak_is_as_high() {
    // There are two equally high peaks, and lowering each of them takes a different change.
    let steps = Steps::new(
        vec![
            op("a", &[], &[1]),
            op("b", &[1], &[2]),
            op("c", &[2], &[3]),
            Step::Free(1),
            Step::Free(3),
            op("d", &[2], &[4]),
            op("e", &[4], &[5]),
            Step::Free(4),
        ],
        [(1, 50), (2, 10), (3, 60), (4, 51), (5, 59)],
    );
    let advice = steps.advice();
    assert_eq!(advice.peak_bytes, 120);
    // Only the first of two equally high peaks is considered, so the second one remains.
    assert!(advice.findings.iter().all(|finding| finding.saves_bytes == 0), "{advice}");
    assert!(advice.findings.iter().any(|finding| finding.operator.as_deref() == Some("a")), "{advice}");
    assert!(advice.to_string().contains("Nothing was found that would lower it noticeably."), "{advice}");
}

#[test]
fn every_instance_of_line_is_changed() {
    // The same block lies idle at the peak of each of two steps.
    let step = |number: u64| {
        let (held, big) = (10 * number + 1, 10 * number + 2);
        vec![
            op("keep", &[0], &[held]),
            op("use", &[held], &[]),
            op("big", &[0], &[big]),
            Step::Free(big),
            op("use_again", &[held], &[]),
            Step::Free(held),
        ]
    };
    let bytes = [(0, 1), (11, 30), (12, 100), (21, 30), (22, 100)];
    let steps = Steps::new([step(1), step(2)].concat(), bytes);
    let advice = steps.advice();
    assert_eq!(steps.compute_peak(), 131);
    let finding = single_finding(&advice, Kind::Idle);
    assert_eq!((finding.count, finding.allocated_bytes, finding.saves_bytes), (1, 30, 30));
}

/// Returns a model with three layers, followed by its backward pass.
fn layers() -> Steps {
    let forward = |name: &'static str, input: u64, inner: u64, output: u64| {
        vec![
            Step::Begin(name),
            Step::Op {
                name: format!("{name}.wide"),
                reads: vec![input],
                makes: vec![inner, inner + 5],
                frees: vec![inner + 5],
            },
            op(&format!("{name}.narrow"), &[inner], &[output]),
            Step::End,
        ]
    };
    let backward = |name: &str, grad: u64, input: u64, inner: u64| {
        vec![
            Step::Node {
                name: format!("{name}.narrow_backward"),
                of: format!("{name}.narrow"),
                reads: vec![inner, grad],
                makes: vec![grad + 1],
            },
            Step::Free(inner),
            Step::Free(grad),
            Step::Node {
                name: format!("{name}.wide_backward"),
                of: format!("{name}.wide"),
                reads: vec![input, grad + 1],
                makes: vec![grad + 2],
            },
            Step::Free(grad + 1),
        ]
    };
    let mut steps = [forward("A", 0, 10, 20), forward("B", 20, 11, 21), forward("C", 21, 12, 22)].concat();
    steps.push(op("loss", &[22], &[30]));
    steps.extend(backward("C", 30, 21, 12));
    steps.extend(backward("B", 32, 20, 11));
    steps.extend(backward("A", 34, 0, 10));
    let bytes = [(0, 8), (10, 100), (11, 100), (12, 100), (15, 30), (16, 30), (17, 30)];
    let small = (20..23).chain(30..37).map(|memory| (memory, 4));
    Steps::new(steps, bytes.into_iter().chain(small))
}

/// Returns `steps` changed so that a layer's activations are recomputed before the layer's backward pass.
fn recomputing(mut steps: Steps, name: &'static str, inner: u64, output: u64) -> Steps {
    let end = steps.place(&format!("{name}.narrow")) + 1;
    assert_eq!(steps.steps[end], Step::End);
    let forward: Vec<Step> = steps.steps[end - 2..end].to_vec();
    steps.steps.insert(end + 1, Step::Free(inner));
    let renamed = |memory: &u64| 500 + memory;
    let again: Vec<Step> = forward
        .iter()
        .map(|step| match step {
            Step::Op { name, reads, makes, frees } => Step::Op {
                name: format!("{name}_again"),
                reads: reads
                    .iter()
                    .map(|memory| if *memory == inner { renamed(memory) } else { *memory })
                    .collect(),
                makes: makes.iter().map(renamed).collect(),
                frees: frees.iter().map(renamed).collect(),
            },
            other => panic!("{other:?}"),
        })
        .chain([Step::Free(renamed(&output))])
        .collect();
    let copies: Vec<(u64, u64)> =
        steps.bytes.iter().map(|(memory, bytes)| (renamed(memory), *bytes)).collect();
    steps.bytes.extend(copies);
    let node = steps.place(&format!("{name}.narrow_backward"));
    for step in &mut steps.steps[node..] {
        match step {
            Step::Node { reads, .. } => {
                reads.iter_mut().filter(|one| **one == inner).for_each(|one| *one = renamed(one));
            }
            Step::Free(one) if *one == inner => *one = renamed(one),
            _ => {}
        }
    }
    steps.steps.splice(node..node, again);
    steps
}

#[test]
fn recomputing_module_lowers_peak_by_promised_amount() {
    let steps = layers();
    let advice = steps.advice();
    assert_eq!(advice.peak_bytes, steps.compute_peak());
    let of = |module: &str| {
        let is_it =
            |finding: &&Finding| finding.kind == Kind::Recompute && finding.module.as_deref() == Some(module);
        advice.findings.iter().find(is_it).unwrap_or_else(|| panic!("{module}: {advice}"))
    };
    for (class, module, inner, output) in [("A", "A_0", 10, 20), ("B", "B_0", 11, 21)] {
        let finding = of(module);
        assert_eq!(finding.allocated_bytes, 100, "{module}");
        assert!(finding.forward_ns.unwrap() > 0, "{module}");
        let changed = recomputing(layers(), class, inner, output);
        assert_eq!(finding.new_peak_bytes, changed.compute_peak(), "{module}: {advice}");
        assert_eq!(finding.saves_bytes, steps.compute_peak() - changed.compute_peak(), "{module}");
        assert_eq!(
            changed.advice().peak_bytes,
            changed.compute_peak(),
            "{module}: the trace of the changed program"
        );
    }
    // The layer's activations are in use at the peak.
    assert!(!advice.findings.iter().any(|finding| finding.module.as_deref() == Some("C_0")), "{advice}");
}

#[test]
fn similar_layers_are_one_finding() {
    let alike = |steps: Steps| Steps { are_alike: true, ..steps };
    let advice = alike(layers()).advice();
    let finding = single_finding(&advice, Kind::Recompute);
    // The third layer is not suggested, because nothing is allocated between its forward and backward passes.
    assert_eq!((&*finding.modules, finding.count), (&["A".to_owned(), "B".to_owned()][..], 2), "{advice}");
    assert_eq!(finding.allocated_bytes, 200);
    let changed = [("A", 10, 20), ("B", 11, 21)]
        .into_iter()
        .fold(layers(), |steps, (name, inner, output)| recomputing(steps, name, inner, output));
    assert_eq!(finding.new_peak_bytes, changed.compute_peak(), "{advice}");
    assert_eq!(alike(changed).advice().peak_bytes, finding.new_peak_bytes);
    assert!(finding.sentence.starts_with("A and 1 other module of its type keep 200 B in 2 pieces"));
}

#[test]
fn input_needed_for_recomputation_is_counted_until_recomputed() {
    // Nothing else keeps the input of the second layer.
    let without_input = |mut steps: Steps, free_after: usize| {
        for step in &mut steps.steps {
            match step {
                Step::Node { name, reads, .. } if name == "B.wide_backward" => reads.retain(|&one| one != 20),
                _ => {}
            }
        }
        steps.bytes.insert(20, 70);
        steps.steps.insert(free_after, Step::Free(20));
        steps
    };
    let steps = layers();
    let end = steps.place("B.narrow") + 2;
    let steps = without_input(steps, end);
    let advice = steps.advice();
    let finding = advice.findings.iter().find(|finding| finding.module.as_deref() == Some("B_0")).unwrap();
    let changed = recomputing(layers(), "B", 11, 21);
    let again = changed.steps.iter().rposition(|step| step.name().ends_with("_again")).unwrap();
    let changed = without_input(changed, again + 1);
    assert_eq!(finding.new_peak_bytes, changed.compute_peak(), "{advice}");
    // Keeping the input costs most of the saving.
    assert_eq!(
        (finding.allocated_bytes, finding.saves_bytes),
        (100, steps.compute_peak() - changed.compute_peak())
    );
    assert!(finding.saves_bytes < 40, "{advice}");
}

#[test]
fn module_that_overwrites_its_input_is_not_recomputed() {
    for is_overwritten in [false, true] {
        let mut program = Program::default();
        program.tensor(0, 0x100, 10);
        program.module("Layer", &[], &[], |inner| {
            inner.op_with_sequence("wide", 1, &[Reads(0)], &[1], |inner| inner.alloc_tensor(1, 0x200, 100));
            let input = if is_overwritten { Writes(0) } else { Reads(0) };
            inner.op_with_sequence("narrow", 2, &[input, Reads(1)], &[2], |inner| {
                inner.alloc_tensor(2, 0x300, 10)
            });
        });
        program.op("big", &[Reads(2)], |inner| {
            inner.alloc_tensor(3, 0x400, 500);
            inner.free(0x400, 500);
        });
        program.backward_of("narrow_backward", 2, &[Reads(1), Reads(2)], |_| {});
        program.free(0x200, 100);
        let advice = advice(&program);
        let is_found = advice.findings.iter().any(|finding| finding.kind == Kind::Recompute);
        assert_eq!(is_found, !is_overwritten, "{advice}");
        // If the input is overwritten, recomputing is not suggested, but the memory is at least reported as idle.
        let is_idle = advice
            .findings
            .iter()
            .any(|finding| finding.kind == Kind::Idle && finding.allocated_bytes == 100);
        assert_eq!(is_idle, is_overwritten, "{advice}");
    }
}

fn advice(program: &Program) -> Advice {
    let ReadTrace { trace, repairs } = program.read(Mode::Tolerant);
    assert!(repairs.is_empty(), "{repairs}");
    let profile = analyse(&trace, Mode::Tolerant).unwrap();
    Advice::of(&profile, DeviceIndex(0), Repairs::default())
}

const WEIGHT: u64 = 0;
const GRADIENT: u64 = 1;
const MOMENT: u64 = 2;

/// The memory that a training run keeps between steps.
#[derive(Clone, Copy, PartialEq)]
enum KeptMemory {
    Everything,
    NoGradients,
    StateOnTheHost,
}

/// Returns two training steps whose peak is in the second forward pass.
fn training(keeps: KeptMemory) -> Program {
    let mut program = Program::default();
    program.tensor(WEIGHT, 0x100, 64);
    for step in 0..2_u64 {
        let (gradient, big) = (10 * step + 10 + GRADIENT, 10 * step + 15);
        program.module("Linear", &[WEIGHT], &[], |inner| {
            inner.op("mm", &[Reads(WEIGHT)], |inner| inner.alloc_tensor(big, 0x200, 100 + 400 * step));
        });
        program.op("loss", &[Reads(big)], |_| {});
        program.free(0x200, 100 + 400 * step);
        if step == 1 && keeps != KeptMemory::NoGradients {
            program.free(0x300, 64);
        }
        program.backward("MmBackward", &[MayWrite(WEIGHT)], |inner| {
            inner.op("mm", &[Reads(WEIGHT)], |inner| inner.alloc_tensor(gradient, 0x300, 64));
        });
        program.grad(gradient);
        program.phase("optimizer", |inner| {
            if step == 0 || keeps == KeptMemory::StateOnTheHost {
                inner.op("zeros", &[], |inner| inner.alloc_tensor(MOMENT + 10 * step, 0x400 + step, 128));
            }
            let moment = if keeps == KeptMemory::StateOnTheHost { MOMENT + 10 * step } else { MOMENT };
            inner.op("update", &[Writes(WEIGHT), Reads(gradient), Writes(moment)], |_| {});
            if step == 0 {
                inner.optimizer(WEIGHT, gradient, moment);
            }
        });
        if keeps == KeptMemory::StateOnTheHost {
            program.free(0x400 + step, 128);
        }
        if keeps == KeptMemory::NoGradients {
            program.free(0x300, 64);
        }
    }
    program
}

#[test]
fn memory_kept_from_step_to_step_gets_specific_advice() {
    let all = advice(&training(KeptMemory::Everything));
    assert_eq!(all.peak_bytes, 64 + 500 + 64 + 128, "{all}");
    for (kind, category, bytes, keeps, words) in [
        (
            Kind::ZeroGrad,
            Category::Gradient,
            64,
            KeptMemory::NoGradients,
            "zero_grad(set_to_none=True) right after step()",
        ),
        (
            Kind::Idle,
            Category::OptimizerState,
            128,
            KeptMemory::StateOnTheHost,
            "keep it in host memory between steps",
        ),
    ] {
        let found = all.findings.iter().find(|finding| finding.category == category);
        let finding = found.unwrap_or_else(|| panic!("{all}"));
        assert_eq!(
            (finding.kind, finding.allocated_bytes, finding.saves_bytes),
            (kind, bytes, bytes),
            "{all}"
        );
        assert_eq!(finding.new_peak_bytes, advice(&training(keeps)).peak_bytes, "{all}");
        assert!(finding.sentence.contains(words), "{all}");
    }
}

#[test]
fn finding_names_line_in_program_code() {
    let mut program = Program::default();
    program.line(
        r#"{"ev":"stack","s":3,"frames":[{"file":"","line":0,"name":"<built-in method zeros>"},{"file":"torch/nn/init.py","line":7,"name":"zeros"},{"file":"/env/lib/python3.11/site-packages/helper.py","line":2,"name":"h"},{"file":"train.py","line":42,"name":"make_mask"},{"file":"train.py","line":9,"name":"main"}]}"#,
    );
    program.line(
        r#"{"ev":"alloc","parent":null,"ts":1,"thread":1,"dev":"cuda:0","ptr":"0x100","bytes":64,"stack":3}"#,
    );
    program.tensor(1, 0x100, 64);
    program.op("big", &[], |inner| {
        inner.alloc_tensor(3, 0x400, 500);
        inner.free(0x400, 500);
    });
    program.op("mask", &[Reads(1)], |_| {});
    program.free(0x100, 64);
    let advice = advice(&program);
    let finding = single_finding(&advice, Kind::Early);
    let line = finding.line.clone().unwrap();
    assert_eq!((&*line.file, line.line, &*line.function), ("train.py", 42, "make_mask"));
    assert!(finding.sentence.starts_with("64 B (UNKNOWN) obtained at train.py:42 (make_mask) were obtained"));
}

#[test]
fn trace_without_findings_is_reported_as_such() {
    let mut program = Program::default();
    program.alloc(0x100, 64);
    let advice = advice(&program);
    assert_eq!((advice.peak_bytes, advice.unseen_bytes, advice.findings.len()), (64, 64, 0));
    let text = advice.to_string();
    assert!(
        text.contains("Nothing was found") && text.contains("64 B of the peak are memory in which no tensor"),
        "{text}"
    );
}

/// Returns a program on `device` with a parameter of the given size that is idle while other memory is at its
/// largest. If `others` is not empty, the program also runs an operator with this name.
fn idle_parameter(device: &str, bytes: u64, others: &str) -> Program {
    let mut program = Program::default();
    program.tensor(0, 0x100, bytes);
    program.alloc(0x100, bytes);
    program.module("register", &[0], &[], |_| {});
    program.op("before", &[Reads(0)], |_| {});
    program.op("big", &[], |inner| {
        inner.alloc_tensor(1, 0x4000, 20_000);
        inner.free(0x4000, 20_000);
    });
    program.op("after", &[Reads(0)], |_| {});
    if !others.is_empty() {
        program.op(others, &[], |_| {});
    }
    program.on_device(device)
}

#[test]
fn advice_fits_device() {
    let sentence = |device, others| {
        let all = advice(&idle_parameter(device, 4000, others));
        let is_parameter = |finding: &&Finding| finding.category == Category::Parameter;
        let finding = all.findings.iter().find(is_parameter).unwrap_or_else(|| panic!("{all}"));
        finding.sentence.clone()
    };
    // A CPU has no other devices to share with, and its memory is already host memory.
    let on_processor = sentence("cpu", "");
    assert!(
        on_processor.contains("in use, next") && on_processor.contains(": keep them in a file"),
        "{on_processor}"
    );
    for word in ["FSDP", "device", "host memory"] {
        assert!(!on_processor.contains(word), "{on_processor}");
    }
    let on_one = sentence("cuda:0", "");
    assert!(on_one.contains("keep them in host memory") && !on_one.contains("FSDP"), "{on_one}");
    let on_one_of_many = sentence("cuda:0", "c10d::allreduce_");
    assert!(on_one_of_many.contains("share them out among devices (FSDP), or keep them"), "{on_one_of_many}");
}

#[test]
fn advice_begins_with_largest_parts_of_peak_and_omits_negligible_savings() {
    let all = advice(&idle_parameter("cpu", 100, ""));
    assert_eq!(all.peak_bytes, 20_100);
    let largest: Vec<_> = all.largest.iter().map(|part| (part.name.as_str(), part.requested_bytes)).collect();
    assert_eq!(largest[0], ("big", 20_000), "{all}");
    let text = all.to_text(10, None);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "Held at the peak by:");
    assert!(
        lines[2].ends_with("  big") && lines[2].contains("19.5 KiB") && lines[2].contains("99.5 %"),
        "{text}"
    );
    // A saving of half a percent is counted but not listed.
    assert!(text.contains("Nothing was found") && text.contains("(and 1 finding that saves less"), "{text}");
    assert!(all.listed(10).findings.is_empty() && all.listed(10).others.findings == 1);
    assert_eq!(all.listed(usize::MAX).findings.len(), 1);
}

/// Returns a random program whose operators allocate, read and free memory.
fn program() -> impl Strategy<Value = Steps> {
    let action = (0_u8..4, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1_u64..200);
    prop::collection::vec(action, 1..40).prop_map(|actions| {
        let mut steps = Steps::default();
        // The first two pieces exist from the start.
        let mut live: Vec<u64> = vec![0, 1];
        steps.bytes.extend([(0, 1_010), (1, 2_035)]);
        let mut next = 2;
        for (number, (what, first, second, size)) in actions.into_iter().enumerate() {
            let pick = |index: &prop::sample::Index| live.get(index.index(live.len().max(1))).copied();
            let reads: Vec<u64> = match what {
                1 => pick(&first).into_iter().collect(),
                2 => pick(&first).into_iter().chain(pick(&second)).collect(),
                _ => Vec::new(),
            };
            match (what, pick(&first)) {
                (3, Some(memory)) => {
                    live.retain(|&other| other != memory);
                    steps.steps.push(Step::Free(memory));
                }
                (2, Some(_)) => steps.steps.push(op(&format!("op{number}"), &reads, &[])),
                _ => {
                    // Each piece has a unique size, which identifies it in the advice.
                    steps.bytes.insert(next, 64 * size + next);
                    steps.steps.push(op(&format!("op{number}"), &reads, &[next]));
                    live.push(next);
                    next += 1;
                }
            }
        }
        // Memory that is freed without ever being used does not appear in the trace.
        let used = steps.preexisting();
        steps
            .steps
            .retain(|step| !matches!(step, Step::Free(memory) if *memory < 2 && !used.contains(memory)));
        steps
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_promised_saving_is_exact(steps in program()) {
        prop_assume!(steps.steps.iter().any(|step| !step.makes().is_empty()));
        let advice = steps.advice();
        prop_assert_eq!(advice.peak_bytes, steps.compute_peak());
        for finding in &advice.findings {
            prop_assert_eq!(finding.count, 1);
            let changed = steps.after_following(finding);
            prop_assert_eq!(finding.new_peak_bytes, changed.compute_peak(), "{:?}", finding);
            prop_assert_eq!(finding.saves_bytes, steps.compute_peak() - changed.compute_peak());
        }
        let free = advice.findings.iter().filter(|finding| finding.kind.needs_no_more_work());
        let all = free.map(|finding| finding.saves_bytes).max().unwrap_or(0);
        prop_assert!(advice.together.without_more_work.saves_bytes >= all);
        prop_assert!(advice.together.all.saves_bytes >= advice.together.without_more_work.saves_bytes);
    }
}
