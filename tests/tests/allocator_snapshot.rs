//! A snapshot taken here is one of PyTorch's: it lists what PyTorch's own of the same run lists, under the same keys.

use flate2::read::GzDecoder;
use memtrack_core::allocator::workload::{Workload, record};
use memtrack_tests::fixture;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;

/// What PyTorch's own snapshot of the same run lists, ours does too, in the same order.
#[test]
fn the_dumped_snapshot_has_pytorchs_structure() {
    let workload = fixture("allocator").join("pending-frees.workload.jsonl");
    let workload = Workload::read(File::open(workload).unwrap(), u64::MAX).unwrap();
    let (snapshot, _) = record(&workload).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    let mut symbols = memtrack_core::stack::symbols::Symbolizer::of(&snapshot);
    snapshot.save_as(&path, &mut symbols).unwrap();
    let ours: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let mut expected = String::new();
    let file = File::open(fixture("allocator").join("pending-frees.expected.jsonl.gz")).unwrap();
    GzDecoder::new(file).read_to_string(&mut expected).unwrap();
    let lines: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events = lines.iter().filter_map(|line| line["events"].as_array()).flatten();
    let theirs: Vec<_> = events.map(|event| (event[1].clone(), event[4].clone())).collect();
    let trace = ours["device_traces"][0].as_array().unwrap();
    let actions: Vec<_> =
        trace.iter().map(|event| (event["action"].clone(), event["size"].clone())).collect();
    assert_eq!(actions, theirs);
    let last = lines.last().unwrap();
    assert_eq!(ours["allocator_settings"], last["allocator_settings"]);
    for (ours, theirs) in
        ours["segments"].as_array().unwrap().iter().zip(last["segments"].as_array().unwrap())
    {
        for key in [
            "device",
            "total_size",
            "allocated_size",
            "active_size",
            "requested_size",
            "stream",
            "segment_type",
            "segment_pool_id",
            "is_expandable",
        ] {
            assert_eq!(ours[key], theirs[key], "{key}");
        }
        let blocks = ours["blocks"].as_array().unwrap().iter();
        let blocks: Vec<_> = blocks.map(|b| (&b["size"], &b["requested_size"], &b["state"])).collect();
        let expected = theirs["blocks"].as_array().unwrap().iter();
        let expected: Vec<_> = expected.map(|b| (&b[1], &b[2], &b[3])).collect();
        assert_eq!(blocks, expected);
    }
}
