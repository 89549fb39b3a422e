//! Endlessly nested scopes and an unlimited number of operators: the records of both are bounded and correct.

use memtrack_core::event::{DeviceId, ScopeId};
use memtrack_core::recorder::Options;
use memtrack_core::scope;
use memtrack_core::tracker::MemoryTracker;
use memtrack_tests::alone;
use memtrack_tests::scopes::{block, read_back, sums};

#[test]
fn endlessly_nested_scopes_keep_the_innermost() {
    fn descend(levels: u32) {
        let _level = scope::module(["even", "odd"][levels as usize % 2]);
        if levels > 0 {
            return descend(levels - 1);
        }
        let _operator = scope::operator("innermost");
        block(4000);
    }
    alone!();
    memtrack_core::start_monitor();
    descend(5000);
    let recording = memtrack_core::stop();
    let snapshot = read_back(recording.snapshot());
    assert_eq!(sums(&snapshot, &["innermost"]), [4000, 1]);
    let deepest =
        (0..snapshot.scopes.rows.len() as u32).map(|id| snapshot.scopes.outwards(ScopeId(id)).count());
    assert!(deepest.max().unwrap() <= 257);
    assert!(snapshot.scope_sums.unwrap().folded >= 4000);
}

#[test]
fn an_operator_that_calls_itself_is_one_scope_and_many_records() {
    fn descend(levels: u64) {
        let _operator = scope::operator("walk");
        block(8);
        if levels > 1 {
            descend(levels - 1);
        }
    }
    alone!();
    let mut tracker = MemoryTracker::on(DeviceId::HOST);
    tracker.start_monitor_with(&Options::new()).unwrap();
    memtrack_core::start_monitor();
    descend(3000);
    let recording = memtrack_core::stop();
    tracker.stop();
    let snapshot = recording.snapshot();
    assert_eq!(snapshot.scopes.rows.iter().filter(|scope| scope.name == "walk").count(), 1);
    assert_eq!(sums(snapshot, &["walk"]), [24_000, 3000]);
    assert_eq!(tracker.stats().op_index, 3000);
    assert_eq!(&*tracker.stats().memories_allocated[2999].operator, ".walk_2999");
}

#[test]
fn a_long_run_of_operators_keeps_the_newest_and_reports_the_number_of_others() {
    alone!();
    let mut tracker = MemoryTracker::on(DeviceId::HOST);
    tracker.start_monitor_with(&Options::new().tracker_entries(1000)).unwrap();
    let kept: Vec<Vec<u8>> = (0..30_000)
        .map(|number| {
            let _operator = scope::operator("step");
            Vec::with_capacity(if number == 77 { 8 << 20 } else { 0 })
        })
        .collect();
    drop(kept);
    tracker.stop();
    let stats = tracker.stats();
    assert_eq!(stats.folded.operators + stats.op_index, 30_000);
    assert!((1000..=10_000).contains(&stats.op_index), "{}", stats.op_index);
    assert_eq!(&*stats.memories_allocated.last().unwrap().operator, ".step_29999");
    let summary = tracker.summary(1).unwrap();
    assert_eq!((&*summary.operators[0].operator, summary.operators[0].growth_mib), (".step_77", 8.0));
    assert!(summary.to_string().contains("earlier operators folded"), "{summary}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stats.pickle");
    tracker.save_stats(&path).unwrap();
    let loaded = MemoryTracker::load(&path).unwrap();
    assert_eq!(loaded.stats().memories_allocated, stats.memories_allocated);
    assert_eq!(loaded.stats().folded.operators, stats.folded.operators);
    assert!(loaded.summary(3).unwrap().to_string().contains("earlier operators folded"));
}
