//! Advice that is followed keeps its promise: the program is changed as the advice says, and its peak added up anew.

use super::program::{Arg, Program, Reads};
use crate::advice::{Advice, Finding, Kind};
use crate::analysis::analyse;
use crate::optrace::{Mode, ReadTrace};
use crate::repairs::Repairs;
use memtrack_model::optrace::DeviceIndex;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A step of a program. Memory has a number, and is of as many bytes as `Steps::bytes` says.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// An operator that reads some memory and obtains some; what is listed last is freed before it ends.
    Op {
        name: String,
        reads: Vec<u64>,
        makes: Vec<u64>,
        frees: Vec<u64>,
    },
    Free(u64),
    /// The call of a module.
    Begin(&'static str),
    End,
    /// The backward pass of operators that were called in a module.
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
        Self { steps, bytes: bytes.into_iter().collect() }
    }

    /// Memory that is there from the beginning: it is used and never obtained.
    fn preexisting(&self) -> Vec<u64> {
        let made: Vec<u64> = self.steps.iter().flat_map(Step::makes).copied().collect();
        let mut used: Vec<u64> = self.steps.iter().flat_map(Step::reads).copied().collect();
        used.retain(|memory| !made.contains(memory));
        used.sort_unstable();
        used.dedup();
        used
    }

    /// The peak, added up step by step.
    fn peak(&self) -> u64 {
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

    /// The trace that it leaves.
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
        // An operator's number is that of its name.
        let sequence =
            |name: &str| name.bytes().fold(7_u64, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_003);
        while let Some(step) = steps.next() {
            let args: Vec<Arg> = step.reads().iter().map(|&memory| Reads(memory)).collect();
            let make = |inner: &mut Program| {
                for &memory in step.makes() {
                    inner.make(memory, address(memory), self.bytes[&memory]);
                }
            };
            match step {
                Step::Op { name, makes, frees, .. } => {
                    program.op_numbered(name, sequence(name), &args, makes, |inner| {
                        make(inner);
                        frees.iter().for_each(|&memory| inner.free(address(memory), self.bytes[&memory]));
                    });
                }
                Step::Node { name, of, .. } => program.backward_of(name, sequence(of), &args, make),
                Step::Free(memory) => program.free(address(*memory), self.bytes[memory]),
                Step::Begin(class) => {
                    program.module(class, &[], &[], |inner| self.write(inner, steps, address))
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

    /// The program with this advice followed, which is about one piece of memory.
    fn following(&self, finding: &Finding) -> Self {
        let memory = *self.bytes.iter().find(|(_, bytes)| **bytes == finding.bytes).unwrap().0;
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
                let before = finding.used_before.as_ref().map(|of| self.place(&of.operator));
                let before = before.or(self.maker(memory)).unwrap();
                let after = self.place(&finding.used_after.as_ref().unwrap().operator);
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
fn only(advice: &Advice, kind: Kind) -> Finding {
    let found: Vec<&Finding> = advice.findings.iter().filter(|finding| finding.kind == kind).collect();
    assert_eq!(found.len(), 1, "{advice}");
    found[0].clone()
}

#[test]
fn what_is_obtained_early_is_obtained_later() {
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
    assert_eq!((advice.peak_bytes, steps.peak()), (150, 150));
    let finding = only(&advice, Kind::Early);
    assert_eq!((finding.bytes, finding.saves_bytes, finding.peak_bytes), (40, 40, 110));
    assert_eq!(finding.operator.as_deref(), Some("table"));
    assert_eq!(finding.used_after.as_ref().unwrap().operator, "look_up");
    assert_eq!(steps.following(&finding).peak(), 110);
}

#[test]
fn the_promise_is_the_new_peak_and_not_the_size_of_the_block() {
    // Without the first block, the second peak is the higher one.
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
    let finding = only(&advice, Kind::Late);
    assert_eq!((finding.bytes, finding.saves_bytes, finding.peak_bytes), (50, 30, 90));
    assert_eq!(steps.following(&finding).peak(), 90);
    assert_eq!(advice.free.saves_bytes, 30);
}

#[test]
fn every_instance_of_a_line_is_changed() {
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
    assert_eq!(steps.peak(), 131);
    let finding = only(&advice, Kind::Idle);
    assert_eq!((finding.pieces, finding.bytes, finding.saves_bytes), (1, 30, 30));
}

/// A model of three layers, and its backward pass.
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

/// The same with a layer's activations made again before its part of the backward pass.
fn recomputing(name: &'static str, inner: u64, output: u64) -> Steps {
    let mut steps = layers();
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
fn a_module_that_makes_its_activations_again_lowers_the_peak_by_what_was_promised() {
    let steps = layers();
    let advice = steps.advice();
    assert_eq!(advice.peak_bytes, steps.peak());
    let of = |module: &str| {
        let is_it =
            |finding: &&Finding| finding.kind == Kind::Recompute && finding.module.as_deref() == Some(module);
        advice.findings.iter().find(is_it).unwrap_or_else(|| panic!("{module}: {advice}"))
    };
    for (class, module, inner, output) in [("A", "A_0", 10, 20), ("B", "B_0", 11, 21)] {
        let finding = of(module);
        assert_eq!(finding.bytes, 100, "{module}");
        assert!(finding.forward_ns.unwrap() > 0, "{module}");
        let changed = recomputing(class, inner, output);
        assert_eq!(finding.peak_bytes, changed.peak(), "{module}: {advice}");
        assert_eq!(finding.saves_bytes, steps.peak() - changed.peak(), "{module}");
        assert_eq!(changed.advice().peak_bytes, changed.peak(), "{module}: the trace of the changed program");
    }
    // Its activations are in use at the peak.
    assert!(!advice.findings.iter().any(|finding| finding.module.as_deref() == Some("C_0")), "{advice}");
}

/// A random program: operators that obtain, read and free memory.
fn program() -> impl Strategy<Value = Steps> {
    let action = (0_u8..4, any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1_u64..200);
    prop::collection::vec(action, 1..40).prop_map(|actions| {
        let mut steps = Steps::default();
        // The first two are there from the beginning.
        let mut live: Vec<u64> = vec![0, 1];
        steps.bytes.extend([(0, 1_000), (1, 2_001)]);
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
                    // Each has a size of its own, by which it is found again.
                    steps.bytes.insert(next, 64 * size + next);
                    steps.steps.push(op(&format!("op{number}"), &reads, &[next]));
                    live.push(next);
                    next += 1;
                }
            }
        }
        // What is freed without ever being used is not known at all.
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
    fn every_promise_is_kept(steps in program()) {
        prop_assume!(steps.steps.iter().any(|step| !step.makes().is_empty()));
        let advice = steps.advice();
        prop_assert_eq!(advice.peak_bytes, steps.peak());
        for finding in &advice.findings {
            prop_assert_eq!(finding.pieces, 1);
            let changed = steps.following(finding);
            prop_assert_eq!(finding.peak_bytes, changed.peak(), "{:?}", finding);
            prop_assert_eq!(finding.saves_bytes, steps.peak() - changed.peak());
        }
        let free = advice.findings.iter().filter(|finding| finding.kind.is_free());
        let all = free.map(|finding| finding.saves_bytes).max().unwrap_or(0);
        prop_assert!(advice.free.saves_bytes >= all && advice.all.saves_bytes >= advice.free.saves_bytes);
    }
}
