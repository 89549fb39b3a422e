//! Saved statistics equal PyTorch's: CPython's `pickle.load` returns the same objects.

use memtrack_core::tracker::TrackerStats;
use memtrack_tests::oracle;
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Loads both files with plain `pickle` and compares them down to types, factories, and the order of keys.
const COMPARE: &str = "
import collections, pickle, sys
ours, theirs = (pickle.load(open(path, 'rb')) for path in sys.argv[1:])
assert type(ours) is dict and list(ours) == list(theirs), list(ours)
for key, value in theirs.items():
    assert type(ours[key]) is type(value), key
    if isinstance(value, dict):
        assert type(value) is collections.defaultdict
        assert ours[key].default_factory is value.default_factory, key
        assert list(ours[key].items()) == list(value.items()), key
        for a, b in zip(ours[key].values(), value.values()):
            assert type(a) is type(b)
            if isinstance(a, tuple):
                assert [type(x) for x in a] == [str, float], a
    else:
        assert ours[key] == value, key
print('same')
";

fn assert_same_in_python(ours: &Path, theirs: &Path) {
    let output = Command::new("python3").args(["-c", COMPARE]).args([ours, theirs]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "same\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn python_loads_saved_statistics() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved.pickle");
    for model in ["convnet", "encoder", "mlp"] {
        let original = oracle(&format!("memory_tracker/{model}/stats.pickle"));
        TrackerStats::load(&original).unwrap().save_stats(&saved).unwrap();
        assert_same_in_python(&saved, &original);
    }
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn python_and_memtrack_load_each_others_long_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("ours.pickle"), folder.path().join("theirs.pickle"));
    let mut stats = TrackerStats::default();
    stats.num_alloc_retries = 7;
    for index in 0..5001u32 {
        if index % 1000 == 0 {
            stats.mark(&format!("step {index}"));
        }
        // Names in both lengths for which pickle has separate encodings (up to 255 bytes, and more), all with a non-ASCII
        // character.
        let name = format!("{}.forward.mül.Tensor_{}", "layer.".repeat(index as usize % 60), index / 2);
        stats.push(&name, f64::from(index) / 3.0, f64::from(index), 1e300);
    }
    stats.save_stats(&ours).unwrap();
    for protocol in 0..=5 {
        let dump = "import pickle, sys; pickle.dump(pickle.load(open(sys.argv[1], 'rb')), open(sys.argv[2], 'wb'), int(sys.argv[3]))";
        let status = Command::new("python3")
            .args(["-c", dump])
            .args([&ours, &theirs])
            .arg(protocol.to_string())
            .status()
            .unwrap();
        assert!(status.success());
        assert_eq!(TrackerStats::load(&theirs).unwrap(), stats, "protocol {protocol}");
        assert_same_in_python(&ours, &theirs);
    }
}

#[test]
fn saving_and_loading_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let saved = folder.path().join("saved.pickle");
    for file in ["convnet/stats.pickle", "encoder/stats_no_op_index.pickle", "mlp/stats.pickle"] {
        let stats = TrackerStats::load(oracle("memory_tracker").join(file)).unwrap();
        assert_eq!(stats.op_index as usize, stats.memories_allocated.len());
        assert_eq!(stats.memories_reserved.len(), stats.memories_allocated.len());
        stats.save_stats(&saved).unwrap();
        assert_eq!(TrackerStats::load(&saved).unwrap(), stats);
    }
}

proptest! {
    #[test]
    fn damaged_statistics_never_panic(
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..10),
        cut in any::<prop::sample::Index>(),
    ) {
        let original = fs::read(oracle("memory_tracker/mlp/stats.pickle")).unwrap();
        let mut bytes = original.clone();
        for (index, byte) in hits {
            bytes[index.index(original.len())] = byte;
        }
        for bytes in [&bytes[..], &bytes[..cut.index(original.len())]] {
            if let Ok(stats) = TrackerStats::load_from(bytes) {
                let _ = stats.summary(20).map(|summary| summary.to_string());
            }
        }
    }
}
