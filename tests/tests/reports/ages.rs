//! The ages of live blocks and the growth of rows, with numbers small enough to check by hand.

use memtrack_core::analysis::moment::Moment;
use memtrack_core::analysis::top::{Age, By, TopOptions, TopReport, TopRow, top};
use memtrack_core::event::{Action, DeviceId, Event, EventFlags, StackId};
use memtrack_core::snapshot::{LiveBlock, Snapshot};
use memtrack_tests::snapshots::{empty, event, live};

const HOST: DeviceId = DeviceId::HOST;

/// Returns events from 100 to 1010 ns, so that 555 is halfway: weights of 100,000 bytes from the start; every 100 ns a block of
/// 100 bytes that stays live, and one of 4,000 bytes that is freed after 50 ns.
fn steps() -> Snapshot {
    let mut snapshot = empty();
    let [weights, leak, temporary] = [0x1000, 0x2000, 0x3000].map(|address| snapshot.stacks.push(&[address]));
    let mut add = |stack: StackId, event: Event| snapshot.events.push(&Event { stack, ..event });
    add(weights, event(100, Action::Alloc, 1 << 20, 100_000));
    for step in 1..=10u64 {
        let (at, address) = (step * 100, step << 12);
        add(leak, event(at, Action::Alloc, address, 100));
        add(temporary, event(at + 10, Action::Alloc, 2 << 20, 4000));
        if step < 10 {
            add(temporary, event(at + 60, Action::Free, 2 << 20, 4000));
        }
    }
    snapshot
}

fn at(snapshot: &Snapshot, moment: Moment) -> TopReport {
    top(snapshot, By::Stack, HOST, &TopOptions::new().at(moment))
}

/// Returns the live bytes, the oldest and the median age, and the growth.
fn trend(row: &TopRow) -> (u64, Option<Age>, Option<Age>, Option<i64>) {
    let (oldest, median) = (row.trend.age.map(|age| age.oldest), row.trend.age.and_then(|age| age.median));
    (row.allocated_bytes, oldest, median, row.trend.growth.map(|growth| growth.bytes()))
}

fn exact(ns: u64) -> Option<Age> {
    Some(Age::Exact(ns))
}

#[test]
fn leaks_grow_and_constant_or_temporary_memory_does_not() {
    let report = at(&steps(), Moment::End);
    let rows: Vec<_> = report.rows.iter().map(trend).collect();
    let expected = [
        (100_000, exact(910), exact(910), Some(0)),
        (4000, exact(0), exact(0), Some(0)),
        (1000, exact(910), exact(510), Some(500)),
    ];
    assert_eq!(rows, expected);
    let text = report.to_string();
    for words in
        ["Growth", "Oldest", "Median age", "+500 B", "±0 B", "910 ns", "510 ns", "since halfway, 0.000 s"]
    {
        assert!(text.contains(words), "{words}\n{text}");
    }
    let row = &report.to_json()["rows"][2];
    let number = |name: &str| row[name].as_i64();
    assert_eq!(
        (number("oldest_age_ns"), number("median_age_ns"), number("growth_bytes")),
        (Some(910), Some(510), Some(500))
    );
    assert!(row["growth_bytes_error"].is_null(), "it is exact: {row}");
    assert!(
        top(&steps(), By::Stack, HOST, &TopOptions::new()).to_json()["rows"][0]["oldest_age_ns"].is_null()
    );
}

#[test]
fn blocks_that_were_live_halfway_and_were_freed_have_no_row() {
    let mut snapshot = steps();
    let freed = snapshot.stacks.push(&[0x4000]);
    snapshot.events.push(&Event { stack: freed, ..event(1011, Action::Free, 9 << 20, 7) });
    let report = at(&snapshot, Moment::End);
    assert_eq!((report.rows_in_all, report.rows.len()), (3, 3));
    assert!(report.rows.iter().all(|row| row.allocated_bytes > 0));
}

#[test]
fn blocks_older_than_the_trace_are_at_least_as_old_as_the_trace() {
    let mut snapshot = steps();
    let (remembered, freed) = (snapshot.stacks.push(&[0x4000]), snapshot.stacks.push(&[0x5000]));
    // Two blocks are older than the trace. The time of the allocation is known for the block that is live at the end, but not
    // for the one that is freed.
    let block = live(&Event { stack: remembered, ..event(40, Action::Alloc, 8 << 20, 50_000) });
    snapshot.blocks = vec![LiveBlock { ticks: 40, ..block }];
    snapshot.events.push(&Event { stack: freed, ..event(1020, Action::Free, 9 << 20, 70_000) });
    let report = at(&snapshot, Moment::End);
    assert_eq!(trend(&report.rows[1]), (50_000, exact(980), exact(980), Some(0)));
    let earlier = Moment::event(&snapshot, HOST, 1).unwrap();
    let before = at(&snapshot, earlier);
    assert_eq!(before.rows[1].allocated_bytes, 70_000);
    assert!(before.rows[1].trend.age.is_none(), "no time has passed at that event");
    let later = at(&snapshot, Moment::event(&snapshot, HOST, 5).unwrap());
    let bound = Some(Age::AtLeast(100));
    assert_eq!(trend(&later.rows[1]), (70_000, bound, bound, Some(0)), "{later}");
    assert!(later.to_string().contains("> 100 ns"), "{later}");
    let row = &later.to_json()["rows"][1];
    assert!(row["oldest_age_ns"].is_null());
    assert_eq!(row["oldest_age_at_least_ns"], 100);
}

#[test]
fn growth_and_unknown_ages_are_omitted_where_earlier_parts_are_missing() {
    let mut snapshot = steps();
    snapshot.meta.earlier_parts = 3;
    snapshot.events.push(&event(1020, Action::Free, 9 << 20, 70_000));
    let report = at(&snapshot, Moment::End);
    assert_eq!(trend(&report.rows[2]), (1000, exact(920), exact(520), None));
    assert_eq!(report.growth_since_seconds, None);
    assert!(!report.to_string().contains("Growth"), "{report}");
    let earlier = at(&snapshot, Moment::event(&snapshot, HOST, 5).unwrap());
    assert_eq!(trend(&earlier.rows[1]), (70_000, None, None, None), "{earlier}");
}

#[test]
fn ages_of_samples_are_lower_bounds() {
    let mut snapshot = empty();
    (snapshot.meta.sample_mean_bytes, snapshot.meta.sample_threshold_bytes) = (1000, 4096);
    for step in 1..=10u64 {
        let alloc = event(step * 100, Action::Alloc, step << 12, 100);
        snapshot.events.push(&Event { flags: EventFlags::SAMPLED, ..alloc });
    }
    let report = at(&snapshot, Moment::End);
    let (bytes, oldest, median, growth) = trend(&report.rows[0]);
    // Each sample represents 1051 bytes.
    assert_eq!((bytes, oldest, median, growth), (10_510, Some(Age::AtLeast(900)), None, Some(5255)));
    let row = &report.to_json()["rows"][0];
    let error = &row["growth_bytes_error"];
    let (low, high) = (error["low"].as_i64().unwrap(), error["high"].as_i64().unwrap());
    assert!(low < 5255 && high > 5255 && error["standard_error"].as_f64().unwrap() > 0.0, "{row}");
    assert!(report.to_string().contains("> 900 ns") && report.to_string().contains('—'), "{report}");
}

#[test]
fn a_narrow_table_has_fewer_columns_and_readable_names() {
    let mut snapshot = steps();
    snapshot.events.push(&event(1200, Action::Alloc, 7 << 20, 1 << 40));
    let report = at(&snapshot, Moment::End);
    let widest = |width: usize| {
        let text = report.to_text(Some(width));
        let table: Vec<&str> = text.lines().skip(2).take_while(|line| !line.is_empty()).collect();
        (table.iter().map(|line| line.chars().count()).max().unwrap(), text)
    };
    for width in [200, 120, 100, 80] {
        let (widest, text) = widest(width);
        assert!(widest <= width && text.contains("Growth") && text.contains("Oldest"), "{width}\n{text}");
    }
    assert!(widest(200).1.contains("Live at peak") && !widest(60).1.contains("Live at peak"));
}
