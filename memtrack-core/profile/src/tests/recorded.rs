//! Tests the traces of recordings, including recordings whose operator log is damaged.

use crate::advice::Advice;
use crate::analysis::analyse;
use crate::optrace::{Mode, read, write};
use crate::recorded::{Attribution, categories, operator_trace};
use crate::report::{CategoryReport, CategorySums, ReportMoment};
use crate::{Category, Repairs};
use memtrack_blocks::lifetimes::lifetimes;
use memtrack_blocks::peak::Peak;
use memtrack_file::operators::{OperatorLine, append};
use memtrack_frames::attribution::EventNames;
use memtrack_model::Snapshot;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};
use memtrack_model::operators::{Dtype, TensorInfo};
use memtrack_model::optrace::DeviceIndex;
use memtrack_model::optrace::{Record, RecordKind};
use memtrack_model::snapshot::{OperatorLines, Sampling, Scope, ScopeKind, Thread};

const ROOT: ScopeId = ScopeId(1);
const OPERATOR: ScopeId = ScopeId(2);
const BACKWARD: ScopeId = ScopeId(3);

/// Returns a recording with the given log lines and events. The leading numbers are the tick and the thread.
fn recording(lines: &[(u64, u32, OperatorLine)], events: &[(u64, u32, Action, u64, ScopeId)]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let scope = |parent, kind, name: &str| Scope { parent, kind, name: name.into() };
    snapshot.scopes.rows.extend([
        scope(ScopeId::NONE, ScopeKind::Root, "net"),
        scope(ROOT, ScopeKind::Operator, "matmul"),
        scope(ScopeId::NONE, ScopeKind::Backward, "backward"),
    ]);
    snapshot.threads = (0..3).map(|number| Thread { name: String::new(), os_id: 100 * number }).collect();
    let mut piece = OperatorLines { base_ticks: 50, lines: Vec::new() };
    for (ticks, thread, line) in lines {
        append(&mut piece.lines, piece.base_ticks, *ticks, ThreadId(*thread), line.bytes());
    }
    snapshot.operators.pieces.push(piece);
    for &(ticks, thread, action, address, scope) in events {
        snapshot.events.push(&Event {
            ticks,
            address,
            size_bytes: 64,
            stream: StreamId(0),
            stack: StackId::NONE,
            scope,
            thread: ThreadId(thread),
            device: DeviceId::HOST,
            action,
            flags: EventFlags::default(),
        });
    }
    snapshot
}

fn tensor(identity: u64, address: u64) -> TensorInfo<'static> {
    TensorInfo::new(identity, DeviceId::HOST, Dtype::F32, vec![4, 4]).storage(address, 64)
}

fn with_tensors(mut line: OperatorLine, tensors: &[TensorInfo<'_>]) -> OperatorLine {
    tensors.iter().for_each(|tensor| assert!(line.with(tensor, false)));
    line
}

/// Returns a training step that runs on one thread and has a parameter, an operator and a gradient.
fn recorded_step() -> Snapshot {
    let weight = tensor(1, 0x100);
    let lines = [
        (10, 1, with_tensors(OperatorLine::parameter(1, "net", "weight"), std::slice::from_ref(&weight))),
        (20, 1, OperatorLine::enter(ROOT)),
        (30, 1, OperatorLine::enter(OPERATOR)),
        (31, 1, with_tensors(OperatorLine::inputs(), &[weight.clone(), tensor(2, 0x200)])),
        (40, 1, with_tensors(OperatorLine::outputs(), &[tensor(3, 0x300).strides(vec![1, 4])])),
        (41, 1, OperatorLine::leave(OPERATOR)),
        (50, 1, OperatorLine::leave(ROOT)),
        (60, 1, OperatorLine::enter(BACKWARD)),
        (70, 1, OperatorLine::leave(BACKWARD)),
        (71, 1, with_tensors(OperatorLine::gradient(), &[weight.clone(), tensor(4, 0x400)])),
        (80, 1, with_tensors(OperatorLine::state(0, "Adam", "exp_avg"), &[weight, tensor(5, 0x500)])),
    ];
    let events = [
        (5, 1, Action::Alloc, 0x100, ScopeId::NONE),
        (6, 1, Action::Alloc, 0x200, ScopeId::NONE),
        (35, 1, Action::Alloc, 0x300, OPERATOR),
        (65, 1, Action::Alloc, 0x400, BACKWARD),
        (72, 1, Action::Free, 0x300, OPERATOR),
        (75, 1, Action::Alloc, 0x500, ScopeId::NONE),
    ];
    recording(&lines, &events)
}

#[test]
fn each_event_has_category_of_its_memory() {
    let snapshot = recorded_step();
    let categories = categories(&snapshot).unwrap();
    let of_event: Vec<_> = (0..snapshot.events.len()).map(|row| categories.of_event(row)).collect();
    let expected = ["parameter", "input", "activation", "gradient", "activation", "optimizer_state"];
    assert_eq!(of_event, expected.map(Some));
}

#[test]
fn memory_keeps_its_category_if_free_of_its_predecessor_was_not_recorded() {
    let lines = [
        (10, 1, OperatorLine::enter(BACKWARD)),
        (30, 1, OperatorLine::leave(BACKWARD)),
        (40, 1, with_tensors(OperatorLine::gradient(), &[tensor(1, 0x100), tensor(2, 0x200)])),
    ];
    let events = [
        (20, 1, Action::Alloc, 0x200, BACKWARD),
        (25, 1, Action::Alloc, 0x200, BACKWARD),
        (50, 1, Action::Free, 0x200, BACKWARD),
    ];
    let snapshot = recording(&lines, &events);
    let categories = categories(&snapshot).unwrap();
    let of_event = [0, 1, 2].map(|row| categories.of_event(row));
    assert_eq!(of_event, ["autograd_detail", "gradient", "gradient"].map(Some));
}

/// Returns a recording's category report and advice, both with the recording's attribution.
fn build_reports(snapshot: &Snapshot, moments: &[ReportMoment]) -> (CategoryReport, Advice) {
    let recorded = operator_trace(snapshot).unwrap();
    let attribution = Attribution::of(snapshot, &recorded, EventNames::default());
    let profile = analyse(&recorded.trace, Mode::Tolerant).unwrap().with_attribution(&attribution);
    let (device, repairs) = (DeviceIndex(0), Repairs::default());
    (CategoryReport::of(&profile, device, moments, repairs), Advice::of(&profile, device, repairs))
}

/// Returns a training step with sampled blocks. The blocks of the gradient and the optimizer state were not
/// sampled, and the operator's block represents many others.
fn sampled_step() -> Snapshot {
    let whole = recorded_step();
    let mut snapshot = Snapshot {
        scopes: whole.scopes,
        threads: whole.threads,
        operators: whole.operators,
        ..Snapshot::default()
    };
    snapshot.meta.sample_threshold_bytes = 1 << 16;
    snapshot.meta.sample_mean_bytes = 1 << 12;
    snapshot.sampling =
        Some(Sampling { unrecorded_blocks: 500, unrecorded_bytes: 32_000, ..Sampling::default() });
    for event in whole.events.iter().filter(|event| ![0x400, 0x500].contains(&event.address)) {
        let is_sample = event.address == 0x300;
        let flags = if is_sample { EventFlags::SAMPLED } else { EventFlags::default() };
        snapshot.events.push(&Event { flags, ..event });
    }
    snapshot
}

#[test]
fn sample_counts_for_blocks_that_it_represents_and_has_error() {
    let snapshot = sampled_step();
    let (report, advice) = build_reports(&snapshot, &[ReportMoment::Peak]);
    let weighed = snapshot.weighed_event(2);
    assert!(weighed.estimated && weighed.bytes > 1000, "{weighed:?}");
    let held = &report.moments[0];
    let is_activation = |row: &&CategorySums| row.category == Category::Activation;
    let activation = held.categories.iter().find(is_activation).unwrap().sums;
    assert_eq!((activation.bytes, activation.pieces), (weighed.bytes, weighed.blocks.round() as u64));
    assert!(!activation.error.is_exact() && !activation.count_error.is_exact());
    // All reports show the same peak.
    let peak = Peak::of(&snapshot, DeviceId::HOST, &lifetimes(&snapshot, DeviceId::HOST));
    assert_eq!((held.bytes, held.error), (peak.bytes, peak.error));
    assert_eq!((advice.peak_bytes, advice.peak_bytes_error), (peak.bytes, peak.error));
    let text = report.to_text(9, None);
    assert!(text.contains("small blocks were sampled") && text.contains(['<', '±']), "{text}");
    assert!(!serde_json::to_value(report.listed(9)).unwrap()["moments"][0]["operators"]["rows"][0]["requested_bytes_error"].is_null());
}

#[test]
fn tensors_in_unsampled_blocks_are_not_live_forever() {
    let (report, _) = build_reports(&sampled_step(), &[ReportMoment::End]);
    let names: Vec<&str> = report.moments[0].categories.iter().map(|row| row.category.name()).collect();
    assert_eq!(names, ["PARAMETER", "INPUT"], "{report}");
    // If every block is recorded, a tensor without an allocation is older than the recording.
    let mut exact = sampled_step();
    (exact.sampling, exact.meta.sample_threshold_bytes) = (None, 0);
    exact.events.flags.fill(EventFlags::default());
    let (report, _) = build_reports(&exact, &[ReportMoment::End]);
    let all = [Category::Parameter, Category::OptimizerState, Category::Input, Category::Gradient];
    assert_eq!(
        report.moments[0].categories.iter().map(|row| row.category.name()).collect::<Vec<_>>(),
        all.map(Category::name)
    );
    assert!(report.moments[0].error.is_exact() && !report.to_text(9, None).contains(['±', '<']), "{report}");
}

#[test]
fn operators_of_recording_and_its_trace_are_named_as_in_top() {
    let snapshot = recorded_step();
    let (of_recording, _) = build_reports(&snapshot, &[ReportMoment::Peak]);
    let trace = operator_trace(&snapshot).unwrap().trace;
    let profile = analyse(&trace, Mode::Tolerant).unwrap();
    let of_trace = CategoryReport::of(&profile, DeviceIndex(0), &[ReportMoment::Peak], Repairs::default());
    for report in [&of_recording, &of_trace] {
        let names: Vec<&str> = report.moments[0].operators.rows.iter().map(|row| row.name.as_str()).collect();
        // Operator names do not contain the root's name.
        assert!(names.contains(&"forward.matmul") && names.contains(&"(unattributed)"), "{names:?}");
    }
}

#[test]
fn memory_allocated_while_future_is_suspended_is_not_attributed_to_it() {
    let lines = [
        (10, 1, OperatorLine::enter(ROOT)),
        (11, 1, OperatorLine::enter(OPERATOR)),
        // Thread 1 goes on to run other code, and the operator ends on thread 2.
        (30, 2, OperatorLine::leave(OPERATOR)),
        (31, 2, OperatorLine::leave(ROOT)),
    ];
    let events = [
        (12, 1, Action::Alloc, 0x100, OPERATOR),
        (15, 1, Action::Alloc, 0x200, ScopeId::NONE),
        (20, 2, Action::Alloc, 0x300, OPERATOR),
        (40, 1, Action::Alloc, 0x400, ScopeId::NONE),
    ];
    let trace = operator_trace(&recording(&lines, &events)).unwrap().trace;
    let memory = trace.records.iter().filter(|record| matches!(record.what, RecordKind::Memory(_)));
    let parents: Vec<_> = memory.map(|record| (record.thread, record.parent)).collect();
    let is_op = |record: &Record| matches!(record.what, RecordKind::Op(_));
    let operator = trace.records.iter().position(is_op).unwrap();
    let inside = Some(operator as u32);
    assert_eq!(parents, [(100, inside), (100, None), (200, inside), (100, None)]);
    assert_eq!(trace.records[operator].end_ns, Some(30));
    assert_eq!(trace.records[operator - 1].end_ns, Some(31));
}

#[test]
fn log_with_any_byte_changed_gives_valid_trace() {
    let sound = recorded_step();
    for place in 0..sound.operators.pieces[0].lines.len() {
        for change in [1, 0x10, 0x7f, 0x80, 0xff] {
            let mut snapshot = recorded_step();
            snapshot.operators.pieces[0].lines[place] ^= change;
            let trace = operator_trace(&snapshot).unwrap().trace;
            let mut file = Vec::new();
            write(&trace, &mut file).unwrap();
            let read = read(&file[..], Mode::Compat, 1 << 30);
            let read = read.unwrap_or_else(|error| panic!("byte {place}: {error}"));
            assert_eq!(read.trace.records.len(), trace.records.len());
            let profile = analyse(&trace, Mode::Tolerant).unwrap();
            assert!(!profile.changes().is_empty());
            assert_eq!(categories(&snapshot).unwrap().of_event.len(), snapshot.events.len());
        }
    }
}
