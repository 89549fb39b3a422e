//! Recordings with operators: what their traces look like, whatever the log says.

use crate::analysis::analyse;
use crate::optrace::{Mode, read, write};
use crate::recorded::{categories, operator_trace};
use memtrack_file::operators::{Line, append};
use memtrack_model::Snapshot;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};
use memtrack_model::operators::{Dtype, TensorInfo};
use memtrack_model::optrace::{Record, What};
use memtrack_model::snapshot::{OperatorLines, Scope, ScopeKind, Thread};

const ROOT: ScopeId = ScopeId(1);
const OPERATOR: ScopeId = ScopeId(2);
const BACKWARD: ScopeId = ScopeId(3);

/// A recording whose log and events are given with their ticks and threads.
fn recording(lines: &[(u64, u32, Line)], events: &[(u64, u32, Action, u64, ScopeId)]) -> Snapshot {
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

fn with(mut line: Line, tensors: &[TensorInfo<'_>]) -> Line {
    tensors.iter().for_each(|tensor| assert!(line.with(tensor, false)));
    line
}

/// A step on one thread, with a parameter, an operator and a gradient.
fn step() -> Snapshot {
    let weight = tensor(1, 0x100);
    let lines = [
        (10, 1, with(Line::parameter(1, "net", "weight"), std::slice::from_ref(&weight))),
        (20, 1, Line::enter(ROOT)),
        (30, 1, Line::enter(OPERATOR)),
        (31, 1, with(Line::inputs(), &[weight.clone(), tensor(2, 0x200)])),
        (40, 1, with(Line::outputs(), &[tensor(3, 0x300).strides(vec![1, 4])])),
        (41, 1, Line::leave(OPERATOR)),
        (50, 1, Line::leave(ROOT)),
        (60, 1, Line::enter(BACKWARD)),
        (70, 1, Line::leave(BACKWARD)),
        (71, 1, with(Line::gradient(), &[weight.clone(), tensor(4, 0x400)])),
        (80, 1, with(Line::state(0, "Adam", "exp_avg"), &[weight, tensor(5, 0x500)])),
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
fn each_event_has_the_category_of_its_memory() {
    let snapshot = step();
    let categories = categories(&snapshot).unwrap();
    let of_event: Vec<_> = (0..snapshot.events.len()).map(|row| categories.of_event(row)).collect();
    let expected = ["parameter", "input", "activation", "gradient", "activation", "optimizer_state"];
    assert_eq!(of_event, expected.map(Some));
}

#[test]
fn memory_whose_predecessor_was_never_seen_freed_keeps_its_own_category() {
    let lines = [
        (10, 1, Line::enter(BACKWARD)),
        (30, 1, Line::leave(BACKWARD)),
        (40, 1, with(Line::gradient(), &[tensor(1, 0x100), tensor(2, 0x200)])),
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

#[test]
fn a_future_that_waits_takes_nothing_of_what_its_thread_does_meanwhile() {
    let lines = [
        (10, 1, Line::enter(ROOT)),
        (11, 1, Line::enter(OPERATOR)),
        // Thread 1 goes on with something else, and the operator ends on thread 2.
        (30, 2, Line::leave(OPERATOR)),
        (31, 2, Line::leave(ROOT)),
    ];
    let events = [
        (12, 1, Action::Alloc, 0x100, OPERATOR),
        (15, 1, Action::Alloc, 0x200, ScopeId::NONE),
        (20, 2, Action::Alloc, 0x300, OPERATOR),
        (40, 1, Action::Alloc, 0x400, ScopeId::NONE),
    ];
    let trace = operator_trace(&recording(&lines, &events)).unwrap().trace;
    let memory = trace.records.iter().filter(|record| matches!(record.what, What::Memory(_)));
    let parents: Vec<_> = memory.map(|record| (record.thread, record.parent)).collect();
    let is_op = |record: &Record| matches!(record.what, What::Op(_));
    let operator = trace.records.iter().position(is_op).unwrap();
    let inside = Some(operator as u32);
    assert_eq!(parents, [(100, inside), (100, None), (200, inside), (100, None)]);
    assert_eq!(trace.records[operator].end_ns, Some(30));
    assert_eq!(trace.records[operator - 1].end_ns, Some(31));
}

#[test]
fn a_log_with_any_byte_changed_makes_a_sound_trace() {
    let sound = step();
    for place in 0..sound.operators.pieces[0].lines.len() {
        for change in [1, 0x10, 0x7f, 0x80, 0xff] {
            let mut snapshot = step();
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
