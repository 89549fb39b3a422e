//! Tests that tolerant mode returns a result, reports its repairs, and never reports negative memory, however a
//! trace's lines are damaged.

use super::program::{MayWrite, Program, Reads, Writes};
use crate::advice::Advice;
use crate::analysis::{AnalysisError, analyse};
use crate::modules::ModuleReport;
use crate::optrace::{Mode, read};
use crate::pieces::pieces;
use crate::places::Places;
use crate::report::{CategoryReport, ReportMoment};
use crate::series::walk;
use proptest::prelude::*;

/// Returns three steps of a small training run that reuses addresses.
fn training() -> String {
    let mut program = Program::default();
    program.tensor(0, 0x100, 64);
    for step in 0..3_u64 {
        let handle = |number: u64| 10 * (step + 1) + number;
        program.tensor(handle(1), 0x200, 32);
        program.module("Linear", &[0], &[], |inner| {
            inner.op_with("mm", &[Reads(handle(1)), Reads(0)], &[handle(2)], |inner| {
                inner.alloc(0x900, 8);
                inner.free(0x900, 8);
                inner.alloc_tensor(handle(2), 0x300, 48);
            });
        });
        program.op("relu_", &[Writes(handle(2))], |_| {});
        program.backward("MmBackward", &[MayWrite(handle(2))], |inner| {
            inner.op("mm", &[Reads(handle(1)), Reads(handle(2))], |inner| {
                inner.alloc_tensor(handle(3), 0x400, 64)
            });
        });
        program.grad(handle(3));
        program.free(0x300, 48);
        program.phase("optimizer", |inner| {
            inner.op("sqrt", &[Reads(handle(3))], |inner| inner.alloc_tensor(handle(4), 0x300, 64));
            inner.op("add_", &[Writes(0), Reads(handle(4))], |_| {});
            inner.free(0x300, 64);
        });
        program.free(0x400, 64);
        program.alloc(0x500 + step, 4);
    }
    program.file()
}

/// A kind of damage to a file.
#[derive(Clone, Debug)]
enum Damage {
    Drop(prop::sample::Index),
    Repeat(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
    Cut(prop::sample::Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        index().prop_map(Damage::Drop),
        index().prop_map(Damage::Repeat),
        (index(), index()).prop_map(|(a, b)| Damage::Swap(a, b)),
        index().prop_map(Damage::Cut),
    ]
}

/// Damages any lines except the first, which identifies the file. Returns the file, and whether the damage
/// must be detected.
fn apply_damage(file: &str, damages: &[Damage]) -> (Vec<u8>, bool) {
    let mut lines: Vec<&str> = file.lines().collect();
    let mut must_notice = false;
    let mut cut = None;
    for damage in damages {
        if lines.len() < 3 {
            break;
        }
        let place = |index: &prop::sample::Index| 1 + index.index(lines.len() - 1);
        match damage {
            Damage::Drop(index) => {
                lines.remove(place(index));
                must_notice = damages.len() == 1;
            }
            Damage::Repeat(index) => {
                let at = place(index);
                lines.insert(at, lines[at]);
                must_notice = damages.len() == 1;
            }
            Damage::Swap(a, b) => {
                let (a, b) = (place(a), place(b));
                lines.swap(a, b);
            }
            Damage::Cut(index) => cut = Some(*index),
        }
    }
    let mut bytes = lines.join("\n").into_bytes();
    bytes.push(b'\n');
    if let Some(cut) = cut {
        let header = lines[0].len() + 1;
        bytes.truncate(header + cut.index(bytes.len() - header));
        must_notice = damages.len() == 1;
    }
    (bytes, must_notice)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_traces_are_repaired_and_never_have_negative_memory(damages in prop::collection::vec(damage(), 1..6)) {
        let (file, must_notice) = apply_damage(&training(), &damages);
        let read = match read(&file[..], Mode::Tolerant, 1 << 20) {
            Ok(read) => read,
            Err(error) => panic!("{error}\n{}", String::from_utf8_lossy(&file)),
        };
        let profile = match analyse(&read.trace, Mode::Tolerant) {
            Ok(profile) => profile,
            Err(AnalysisError::NoAllocations) => return Ok(()),
            Err(error) => panic!("{error}"),
        };
        let repairs = read.repairs.and(profile.repairs());
        prop_assert!(!must_notice || !repairs.is_empty());
        for device in profile.devices() {
            let mut last = None;
            walk(&profile, device, |moment| {
                assert!(moment.bytes.iter().all(|&bytes| bytes >= 0), "{moment:?}");
                last = Some(*moment);
            });
            let left: u64 = pieces(&profile, device).iter().filter(|piece| piece.end_ns.is_none()).map(|piece| piece.bytes).sum();
            prop_assert_eq!(last.map_or(0, |last| last.total()), left as i64);
            let moments = [ReportMoment::Peak, ReportMoment::End, ReportMoment::After(35)];
            let report = CategoryReport::of(&profile, device, &moments, repairs);
            prop_assert_eq!(report.moments[1].bytes, left);
            let _ = (report.to_text(5, Some(80)), serde_json::to_value(report.listed(5)).unwrap(), Places::of(&read.trace));
            let modules = ModuleReport::of(&profile, device, repairs);
            let _ = (modules.to_text(9, Some(80)), serde_json::to_value(modules.listed(9)).unwrap());
            let advice = Advice::of(&profile, device, repairs);
            let _ = (advice.to_text(9, Some(80)), serde_json::to_value(advice.listed(9)).unwrap());
            prop_assert_eq!(advice.peak_bytes, report.moments[0].bytes);
            for finding in &advice.findings {
                prop_assert_eq!(finding.new_peak_bytes + finding.saves_bytes, advice.peak_bytes);
            }
        }
    }
}
