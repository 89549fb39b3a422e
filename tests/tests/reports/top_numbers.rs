//! Rankings of snapshots small enough to check the numbers by hand.

use memtrack_core::analysis::lifetimes::lifetimes;
use memtrack_core::analysis::peak::Peak;
use memtrack_core::analysis::phases::phases;
use memtrack_core::analysis::top::{By, TopOptions, TopReport, TopRow, top};
use memtrack_core::event::{Action, DeviceId, DeviceKind, Event, EventFlags, ScopeId};
use memtrack_core::snapshot::{Clock, DeviceStatistics, LiveBlock, Snapshot};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::snapshots::{empty, event, live, scoped};

const HOST: DeviceId = DeviceId::HOST;
const MATMUL: ScopeId = ScopeId(3);
const LOSS_GRAD: ScopeId = ScopeId(5);

/// Returns two matmuls of 1000 and 500 bytes, the first freed before the gradient of 700; 300 bytes stay unattributed.
///
/// | ticks | event | live |
/// |---|---|---|
/// | 10 | matmul +1000 | 1000 |
/// | 20 | matmul +500 | 1500 |
/// | 30 | −1000 | 500 |
/// | 40 | loss_grad +700 | 1200 |
/// | 50 | outside +300 | 1500 |
/// | 60 | −700 | 800 |
fn run() -> Snapshot {
    let mut snapshot = scoped();
    // One tick is one microsecond, the unit of reports.
    snapshot.clock = Clock { first: (0, 0), last: (1_000, 1_000_000) };
    let events = [
        Event { scope: MATMUL, ..event(10, Action::Alloc, 0x1000, 1000) },
        Event { scope: MATMUL, ..event(20, Action::Alloc, 0x2000, 500) },
        event(30, Action::Free, 0x1000, 1000),
        Event { scope: LOSS_GRAD, ..event(40, Action::Alloc, 0x1000, 700) },
        event(50, Action::Alloc, 0x3000, 300),
        Event { scope: LOSS_GRAD, ..event(60, Action::Free, 0x1000, 700) },
    ];
    events.iter().for_each(|event| snapshot.events.push(event));
    snapshot.blocks = vec![live(&events[1]), live(&events[4])];
    snapshot
}

fn numbers(row: &TopRow) -> (&str, u64, u64, u64, u64) {
    (&row.name, row.allocated_bytes, row.live_at_peak_bytes, row.count, row.largest_bytes)
}

fn rank(snapshot: &Snapshot, by: By) -> TopReport {
    top(snapshot, by, HOST, &TopOptions::default())
}

#[test]
fn operators_are_ranked_with_their_live_bytes_at_the_first_peak() {
    let report = rank(&run(), By::Operator);
    assert_eq!(
        report.rows.iter().map(numbers).collect::<Vec<_>>(),
        [
            ("encoder.forward.matmul", 1500, 1500, 2, 1000),
            ("backward.loss_grad", 700, 0, 1, 700),
            ("(unattributed)", 300, 0, 1, 300),
        ]
    );
    assert!((report.rows[0].share - 0.6).abs() < 1e-12);
    assert_eq!((report.totals.allocated_bytes, report.totals.count), (2500, 4));
    // 1500 is reached twice; the first time counts.
    assert_eq!((report.peak.bytes, report.peak.row), (1500, Some(1)));
    assert_eq!(report.peak.seconds, Some(20e-6));
    assert_eq!(report.peak.phase.as_deref(), Some("forward"));
    assert_eq!(report.peak.operator.as_deref(), Some("encoder.forward.matmul"));
    let sources = report.attribution;
    assert_eq!((sources.annotated, sources.named_from_stacks, sources.unattributed), (2200, 0, 300));
}

#[test]
fn modules_and_phases_add_up_to_the_same_total() {
    let names = |by| {
        let report = rank(&run(), by);
        report.rows.iter().map(|row| (row.name.clone(), row.allocated_bytes)).collect::<Vec<_>>()
    };
    assert_eq!(
        names(By::Module),
        [
            ("encoder".into(), 1500),
            ("(backward, in no module)".into(), 700),
            ("(outside modules)".into(), 300)
        ]
    );
    assert_eq!(
        names(By::Phase),
        [("forward".into(), 1500), ("backward".into(), 700), ("(no phase)".into(), 300)]
    );
    let report = phases(&run(), HOST);
    assert_eq!(report.peak.bytes, 1500);
    let text = report.to_string();
    assert!(text.contains("forward") && text.contains("in encoder.forward.matmul (forward)"), "{text}");
    assert_eq!(report.to_json()["peak"]["live_bytes"], 1500);
}

#[test]
fn equal_rows_are_sorted_by_name_before_the_limit_applies() {
    let mut snapshot = scoped();
    for (ticks, scope) in [(1, LOSS_GRAD), (2, MATMUL), (3, ScopeId::NONE)] {
        snapshot.events.push(&Event { scope, ..event(ticks, Action::Alloc, ticks << 12, 100) });
    }
    let report = top(&snapshot, By::Operator, HOST, &TopOptions::new().limit(2));
    assert_eq!(
        report.rows.iter().map(|row| &row.name[..]).collect::<Vec<_>>(),
        ["(unattributed)", "backward.loss_grad"]
    );
    assert_eq!((report.rows_in_all, report.totals.allocated_bytes), (3, 300));
}

/// The ring buffer dropped two allocations: 4000 bytes that are freed at 30, and 600 bytes that stay live.
#[test]
fn blocks_from_before_the_window_count_at_the_peak_but_not_as_allocated() {
    let mut snapshot = scoped();
    let older = Event { scope: MATMUL, ..event(0, Action::Alloc, 0x9000, 600) };
    let young = Event { scope: LOSS_GRAD, ..event(10, Action::Alloc, 0x1000, 50) };
    let free = Event { scope: LOSS_GRAD, ..event(30, Action::Free, 0x8000, 4000) };
    snapshot.events.push(&young);
    snapshot.events.push(&free);
    snapshot.blocks = vec![live(&older), live(&young)];
    snapshot.devices =
        vec![DeviceStatistics { dropped: 2, allocated_bytes: 4650, ..DeviceStatistics::of(HOST) }];
    let report = rank(&snapshot, By::Operator);
    assert_eq!((report.peak.bytes, report.peak.row), (4650, Some(0)));
    assert_eq!(
        report.rows.iter().map(numbers).collect::<Vec<_>>(),
        [
            ("backward.loss_grad", 50, 50, 1, 50),
            ("(allocated before the first event)", 0, 4000, 0, 0),
            ("encoder.forward.matmul", 0, 600, 0, 0),
        ]
    );
    assert!(report.to_string().contains("Dropped: 2 older events"), "{report}");
}

#[test]
fn a_block_stops_counting_when_its_free_is_requested() {
    let mut snapshot = empty();
    let first = event(10, Action::Alloc, 0x1000, 100);
    for event in [
        first,
        event(20, Action::FreeRequested, 0x1000, 100),
        event(30, Action::Alloc, 0x2000, 90),
        event(40, Action::FreeCompleted, 0x1000, 100),
    ] {
        snapshot.events.push(&event);
    }
    snapshot.blocks = vec![live(&event(30, Action::Alloc, 0x2000, 90))];
    let peak = Peak::of(&snapshot, HOST, &lifetimes(&snapshot, HOST));
    assert_eq!((peak.bytes, peak.row), (100, Some(0)));
    // The free of this block was requested before the window and is still pending at the end, so the block is never live within
    // the window.
    snapshot.blocks.push(LiveBlock { pending_free: true, ..live(&event(1, Action::Alloc, 0x7000, 5000)) });
    assert_eq!(Peak::of(&snapshot, HOST, &lifetimes(&snapshot, HOST)).bytes, 100);
}

#[test]
fn sampled_blocks_represent_others_and_are_marked() {
    let mut snapshot = scoped();
    snapshot.meta.sample_mean_bytes = 1000;
    snapshot.meta.sample_threshold_bytes = 4096;
    let sampled = Event { flags: EventFlags::SAMPLED, ..event(10, Action::Alloc, 0x1000, 100) };
    snapshot.events.push(&sampled);
    snapshot.events.push(&Event { scope: MATMUL, ..event(20, Action::Alloc, 0x2000, 5000) });
    snapshot.blocks = vec![live(&sampled), live(&event(20, Action::Alloc, 0x2000, 5000))];
    let report = rank(&snapshot, By::Operator);
    // 1 / (1 − e^(−0.1)) = 10.508 blocks of 100 bytes.
    assert_eq!(numbers(&report.rows[1]), ("(unattributed)", 1051, 1051, 11, 100));
    // The other row is exact, because every block in it was recorded.
    assert!(report.rows[1].estimated && !report.rows[0].estimated && report.totals.estimated);
    assert_eq!(report.peak.bytes, 6051);
    let text = report.to_string();
    // A single sample gives only an upper bound.
    assert!(text.contains("< 4.8 KiB") && text.contains("< 51") && text.contains(" 4.9 KiB"), "{text}");
    // The row of recorded blocks has no error. Instead, a separate line states how many bytes of blocks that were not sampled
    // any row may lack.
    assert!(text.contains("annotated 4.9 KiB (82.6 %), named from stacks < 3.0 KiB, "), "{text}");
    assert!(text.contains("Rows with less than 3.1 KiB in such blocks may be missing"), "{text}");
    let json = &report.to_json()["rows"][1];
    assert_eq!(
        (json["requested_bytes"].as_u64(), json["count_error"]["standard_error"].as_f64().map(f64::round)),
        (Some(1051), Some(10.0))
    );
    assert!(
        text.contains("with 95 % confidence: blocks below 4.0 KiB are sampled, one per 1000 B"),
        "{text}"
    );
    assert!(!rank(&run(), By::Operator).to_string().contains(['~', '±', '<']));
}

#[test]
fn blocks_too_small_to_be_sampled_are_counted() {
    let mut snapshot = scoped();
    snapshot.meta.sample_mean_bytes = 512 << 10;
    snapshot.meta.sample_threshold_bytes = 64 << 10;
    let counts =
        DeviceStatistics { allocated_bytes: 124_000, allocations: 1001, ..DeviceStatistics::of(HOST) };
    snapshot.devices = vec![counts];
    let text = rank(&snapshot, By::Operator).to_string();
    assert!(
        text.contains("121.1 KiB in 1,001 blocks were allocated, too small for any to be sampled"),
        "{text}"
    );
    assert!(
        text.contains("Requested: 121.1 KiB in 1,001 blocks") && text.contains("with 95 % confidence"),
        "{text}"
    );
}

#[test]
fn each_device_is_ranked_separately() {
    let mut snapshot = run();
    let device = DeviceId(1);
    snapshot.events.push(&Event { device, ..event(70, Action::Alloc, 0x1000, 10_000) });
    snapshot.events.push(&Event { device, ..event(80, Action::Free, 0x3000, 1) });
    assert_eq!(rank(&snapshot, By::Operator).totals.allocated_bytes, 2500);
    let heap = rank(&snapshot, By::Operator).device;
    assert_eq!((heap.number, heap.kind), (None, DeviceKind::Host));
    let other = top(&snapshot, By::Operator, device, &TopOptions::default());
    assert_eq!(
        (other.device.number, other.totals.allocated_bytes, other.peak.bytes),
        (Some(1), 10_000, 10_001)
    );
}

#[test]
fn names_are_shortened_only_when_the_terminal_is_too_narrow() {
    let mut snapshot = scoped();
    snapshot.scopes.rows[2].name = "an_encoder_with_quite_a_long_name_for_a_module".into();
    snapshot.events.push(&Event { scope: MATMUL, ..event(1, Action::Alloc, 0x1000, 1 << 20) });
    let report = rank(&snapshot, By::Operator);
    let widest =
        |text: &str| text.split("\n\n").nth(1).unwrap().lines().map(|l| l.chars().count()).max().unwrap();
    let full = report.to_text(None);
    assert!(
        full.contains("an_encoder_with_quite_a_long_name_for_a_module.forward.matmul") && widest(&full) > 80
    );
    assert_eq!(report.to_text(Some(500)), full);
    let narrow = report.to_text(Some(80));
    assert!(narrow.contains('…') && narrow.contains("ward.matmul") && widest(&narrow) <= 80, "{narrow}");
    assert!(widest(&report.to_text(Some(1))) > 1);
}

#[test]
fn extreme_numbers_neither_panic_nor_overflow() {
    let mut snapshot = scoped();
    snapshot.meta.sample_mean_bytes = u64::MAX;
    for ticks in 0..6 {
        let flags = EventFlags(ticks as u8 % 4);
        snapshot.events.push(&Event { flags, ..event(u64::MAX, Action::Alloc, ticks, u64::MAX) });
        snapshot.events.push(&Event { flags, ..event(u64::MAX, Action::Free, ticks + 9, 1) });
    }
    for by in [By::Operator, By::Module, By::Stack, By::Phase] {
        let report = rank(&snapshot, by);
        assert_eq!((report.totals.allocated_bytes, report.peak.bytes), (u64::MAX, u64::MAX));
        let _ = (report.to_string(), report.to_json());
    }
}

#[test]
fn an_empty_recording_has_a_report() {
    let report = rank(&empty(), By::Operator);
    assert!(report.to_string().contains("Nothing was allocated"));
    let suited =
        |snapshot: &Snapshot| By::default_for(snapshot, &mut Symbolizer::of(snapshot), &TopOptions::new());
    assert_eq!(suited(&empty()), By::Stack);
    assert_eq!(suited(&scoped()), By::Operator);
}
