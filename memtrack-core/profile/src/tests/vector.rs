//! Tests the example in the specification. It is a hand-written trace with all categories, a separate thread
//! for the backward pass, an address that is used twice, and unknown memory.

use crate::analysis::{Profile, analyse};
use crate::category::Category;
use crate::export::{CoalescedTimeline, write_raw};
use crate::optrace::{Mode, read};
use crate::tests::program::category_in;
use memtrack_model::optrace::{DeviceIndex, OperatorTrace};
use serde_json::Value;

fn trace(mode: Mode) -> OperatorTrace {
    let read = read(&include_bytes!("vector.optrace.jsonl")[..], mode, 1 << 20).unwrap();
    assert!(read.repairs.is_empty(), "{}", read.repairs);
    read.trace
}

fn raw_export(profile: &Profile<'_>) -> Value {
    let mut raw = Vec::new();
    write_raw(profile, DeviceIndex(0), &mut raw).unwrap();
    serde_json::from_slice(&raw).unwrap()
}

#[test]
fn both_exports_match_specification() {
    let trace = trace(Mode::Compat);
    let profile = analyse(&trace, Mode::Compat).unwrap();
    let wanted: Value = serde_json::from_str(include_str!("vector.raw.json")).unwrap();
    assert_eq!(raw_export(&profile), wanted);
    let mut coalesced = Vec::new();
    CoalescedTimeline::of(&profile, DeviceIndex(0)).write(&mut coalesced).unwrap();
    assert_eq!(String::from_utf8(coalesced).unwrap(), include_str!("vector.json").trim_end());
}

#[test]
fn ids_sizes_and_categories_match_specification() {
    let trace = trace(Mode::Compat);
    let profile = analyse(&trace, Mode::Compat).unwrap();
    // Each entry is the allocation id, the tensor and the bytes.
    let wanted = [
        (1, 0, 16384),
        (2, 1, 2048),
        (3, 2, 1024),
        (4, 3, 2048),
        (6, 4, 2048),
        (7, 5, 2048),
        (8, 6, 16384),
        (9, 7, 16384),
    ];
    let storages: Vec<_> = (0..)
        .zip(profile.storages())
        .filter_map(|(id, storage)| storage.map(|storage| (id, storage.tensor, storage.bytes.unwrap())))
        .collect();
    assert_eq!(storages, wanted);
    let labels = profile.labelled();
    let of = |storage, version| {
        labels.iter().find(|label| (label.storage, label.version) == (storage, version)).unwrap().category
    };
    use Category::*;
    for (storage, version, category) in [
        (1, 0, Parameter),
        (1, 1, Parameter),
        (2, 0, Input),
        (3, 0, Temporary),
        (4, 0, Activation),
        (4, 1, Activation),
        (6, 0, Activation),
        (7, 0, AutogradDetail),
        (8, 0, Gradient),
        (9, 0, OptimizerState),
        (9, 1, OptimizerState),
    ] {
        assert_eq!(of(storage, version), Some(category), "{storage} {version}");
    }
    assert_eq!(labels.len(), 11);
}

#[test]
fn trace_without_damage_needs_no_repair_and_has_same_memory() {
    let (compat, tolerant) = (trace(Mode::Compat), trace(Mode::Tolerant));
    let compat = analyse(&compat, Mode::Compat).unwrap();
    let tolerant = analyse(&tolerant, Mode::Tolerant).unwrap();
    assert!(tolerant.repairs().is_empty(), "{}", tolerant.repairs());
    assert_eq!(raw_export(&compat), raw_export(&tolerant));
    assert_eq!(category_in(&tolerant, 0x300, 1), Some(Category::Activation));
}
