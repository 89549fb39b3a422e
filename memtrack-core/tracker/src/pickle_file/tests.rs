//! Tests for statistics files, including files that differ from those written by PyTorch.

use super::*;
use proptest::prelude::*;

fn save_and_load(stats: &TrackerStats) -> TrackerStats {
    TrackerStats::load_from(&stats.save_to(Vec::new()).unwrap()[..]).unwrap()
}

#[test]
fn empty_run_is_saved_and_loaded() {
    assert_eq!(save_and_load(&TrackerStats::default()), TrackerStats::default());
}

#[test]
fn saving_replaces_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stats.pickle");
    std::fs::write(&path, "something old and long").unwrap();
    let mut stats = TrackerStats::default();
    stats.mark("fw_start");
    stats.push(".randn.default_0", 1.0, 2.0, 20.0);
    stats.save_stats(&path).unwrap();
    assert_eq!(TrackerStats::load(&path).unwrap(), stats);
}

#[test]
fn peak_and_markers_of_all_steps_are_saved_and_loaded() {
    let mut stats = TrackerStats::default();
    for step in 0..3 {
        stats.mark("fw_start");
        stats.push(&format!(".mm_{step}"), 1.0, 1.0, 2.0);
    }
    for index in [Some(2), None] {
        stats.peak = Some(AllocatedPeak::new(77.5, f64::INFINITY, index, true));
        let read = save_and_load(&stats);
        assert_eq!(read, stats);
        assert_eq!(read.markers, [("fw_start".to_owned(), 2)]);
        assert_eq!(read.earlier_markers, [("fw_start".into(), 0), ("fw_start".into(), 1)]);
    }
}

#[test]
fn integers_count_as_mib_and_records_come_in_any_order() {
    // {'memories_allocated': {1: ('b', 2), 0: ('a', True)}, … without op_index}
    let bytes = b"}(X\x12\x00\x00\x00memories_allocated}(K\x01U\x01bL2L\n\x86K\x00U\x01aI01\n\x86uX\x0f\x00\x00\x00memories_active}X\x11\x00\x00\x00memories_reserved}X\x07\x00\x00\x00markers}X\x11\x00\x00\x00num_alloc_retriesK\x03u.";
    let stats = TrackerStats::load_from(&bytes[..]).unwrap();
    assert_eq!((stats.op_index, stats.num_alloc_retries), (2, 3));
    assert_eq!(stats.memories_allocated[1], Sample { operator: "b".into(), mib: 2.0 });
    assert_eq!(stats.memories_allocated[0].mib, 1.0);
}

#[test]
fn other_pickles_are_rejected_with_position() {
    let error = |bytes: &[u8]| TrackerStats::load_from(bytes).unwrap_err().to_string();
    assert!(error(b"].").contains("a list"));
    assert!(error(b"}.").contains("memories_allocated"));
    assert!(
        error(b"}X\x12\x00\x00\x00memories_allocated}K\x05U\x01aG\x00\x00\x00\x00\x00\x00\x00\x00\x86ss.")
            .contains("memories_allocated[5]")
    );
    assert!(
        error(b"}X\x12\x00\x00\x00memories_allocated}K\x00Nss.").contains("memories_allocated[0] holds None")
    );
}

proptest! {
    #[test]
    fn saved_statistics_are_loaded(
        records in prop::collection::vec(("[a-z.]{0,20}", any::<f64>().prop_filter("equal to itself", |x| !x.is_nan())), 0..50),
        markers in prop::collection::vec("[a-d]{1,2}", 0..5),
        num_alloc_retries in 0u64..1 << 40,
    ) {
        let mut stats = TrackerStats { num_alloc_retries, ..TrackerStats::default() };
        for (name, mib) in &records {
            stats.push(name, *mib, mib + 1.0, 2.0);
        }
        markers.iter().for_each(|name| stats.mark(name));
        prop_assert_eq!(save_and_load(&stats), stats);
    }

    #[test]
    fn damaged_files_never_panic(hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut stats = TrackerStats::default();
        stats.mark("fw_start");
        for index in 0..20 {
            stats.push(&format!("layer.{index}"), f64::from(index), 1.0, 2.0);
        }
        let mut bytes = stats.save_to(Vec::new()).unwrap();
        for (index, byte) in hits {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(stats) = TrackerStats::load_from(&bytes[..]) {
            let _ = stats.summary(5).map(|summary| summary.to_string());
        }
    }
}
