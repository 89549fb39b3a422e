//! Rankings by stack, and operators that are named from stacks.

use memtrack_core::analysis::framework_operators::Patterns;
use memtrack_core::analysis::top::{By, TopOptions, top_with};
use memtrack_core::event::{Action, DeviceId, Event, ScopeId, StackId};
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::{Frame, Symbolizer};
use memtrack_tests::snapshots::{event, scoped};

const HOST: DeviceId = DeviceId::HOST;
const MATMUL: ScopeId = ScopeId(3);
const ENCODER: ScopeId = ScopeId(2);

fn named(function: &str, line: u32) -> Vec<Frame> {
    vec![Frame {
        function: function.into(),
        file: Some("/src/lib.rs".into()),
        line: Some(line),
        ..Frame::default()
    }]
}

/// Returns four stacks: 1 and 2 differ only in the frames of the allocator, 3 has another caller, and 4 has no known operator.
fn stacked() -> (Snapshot, Symbolizer) {
    let mut snapshot = scoped();
    snapshot.stacks.push(&[0x10, 0x20, 0x30, 0x40]);
    snapshot.stacks.push(&[0x11, 0x20, 0x30, 0x40]);
    snapshot.stacks.push(&[0x10, 0x20, 0x31, 0x40]);
    snapshot.stacks.push(&[0x10, 0x50]);
    for (ticks, stack, scope) in
        [(1, 1, ScopeId::NONE), (2, 2, ENCODER), (3, 3, ScopeId::NONE), (4, 4, ScopeId::NONE), (5, 0, MATMUL)]
    {
        let event = event(ticks, Action::Alloc, ticks << 12, 100 * ticks);
        snapshot.events.push(&Event { stack: StackId(stack), scope, ..event });
    }
    let symbols = Symbolizer::new(&[])
        .with_frames(0x10, named("alloc::raw_vec::RawVec<T,A>::grow_one", 1))
        .with_frames(0x11, named("__rustc::__rust_alloc", 2))
        .with_frames(0x20, named("<candle_core::tensor::Tensor>::matmul", 3))
        .with_frames(0x30, named("app::attention", 4))
        .with_frames(0x31, named("app::mlp", 5))
        .with_frames(0x40, named("app::main", 6))
        .with_frames(0x50, named("app::load", 7));
    (snapshot, symbols)
}

#[test]
fn stacks_are_rows_from_the_first_informative_frame() {
    let (snapshot, mut symbols) = stacked();
    let report = top_with(&snapshot, &mut symbols, By::Stack, HOST, &TopOptions::default());
    let rows: Vec<_> =
        report.rows.iter().map(|row| (row.name.as_str(), row.allocated_bytes, row.count)).collect();
    assert_eq!(
        rows,
        [
            ("(no stack)", 500, 1),
            ("app::load", 400, 1),
            // 100 + 200 by app::attention and 300 by app::mlp: equal rows are ordered by address.
            ("<candle_core::tensor::Tensor>::matmul", 300, 2),
            ("<candle_core::tensor::Tensor>::matmul", 300, 1),
        ]
    );
    let text = report.to_string();
    assert!(text.contains("<candle_core::tensor::Tensor>::matmul lib.rs:3"), "{text}");
    assert!(text.contains("  app::attention lib.rs:4"), "{text}");
    let stack = &report.to_json()["rows"][2]["stack"];
    assert_eq!(stack.as_array().unwrap().len(), 3);
    assert_eq!((&stack[0]["address"], &stack[0]["line"]), (&"0x20".into(), &3.into()));
}

/// Returns `stacked` without scopes: 400 bytes of the program's code, and 100 + 200 + 300 of a framework.
fn unannotated() -> (Snapshot, Symbolizer) {
    let (mut snapshot, symbols) = stacked();
    snapshot.scopes.rows.truncate(1);
    snapshot.events.scope.fill(ScopeId::NONE);
    snapshot.events.size_bytes[4] = 0;
    (snapshot, symbols)
}

#[test]
fn an_unannotated_program_is_ranked_by_framework_operators_or_else_by_line() {
    let (mut snapshot, mut symbols) = unannotated();
    let options = TopOptions::new();
    assert_eq!(By::default_for(&snapshot, &mut symbols, &options), By::Operator, "600 of 1000 bytes");
    snapshot.events.size_bytes[3] = 601;
    assert_eq!(By::default_for(&snapshot, &mut symbols, &options), By::Line, "600 of 1201 bytes");
    let pattern = options.clone().patterns(Patterns::default().with("app::load"));
    assert_eq!(By::default_for(&snapshot, &mut symbols, &pattern), By::Operator, "a pattern names the rest");

    // Each row is a line, however deep the stacks are.
    let report = top_with(&snapshot, &mut symbols, By::Line, HOST, &options);
    let text = report.to_string();
    let table = text.lines().skip_while(|line| !line.starts_with('─')).skip(1);
    assert_eq!(table.take_while(|line| !line.is_empty()).count(), report.rows.len(), "{text}");

    let mut nameless = Symbolizer::new(&[]);
    assert_eq!(By::default_for(&snapshot, &mut nameless, &options), By::Stack);
}

#[test]
fn blocks_that_no_scope_names_are_named_from_their_stacks() {
    let (snapshot, mut symbols) = stacked();
    let report = top_with(&snapshot, &mut symbols, By::Operator, HOST, &TopOptions::default());
    let rows: Vec<_> = report.rows.iter().map(|row| (row.name.as_str(), row.allocated_bytes)).collect();
    assert_eq!(
        rows,
        [
            ("encoder.forward.matmul", 500),
            ("(unattributed)", 400),
            ("candle.matmul", 400),
            ("encoder.forward.candle.matmul", 200)
        ]
    );
    let sources = report.attribution;
    assert_eq!((sources.annotated, sources.named_from_stacks, sources.unattributed), (500, 600, 400));

    let options = TopOptions::new().patterns(Patterns::default().with("app::load"));
    let report = top_with(&snapshot, &mut symbols, By::Operator, HOST, &options);
    assert!(report.rows.iter().any(|row| row.name == "app.load"));
    assert_eq!(report.attribution.unattributed, 0);
}
