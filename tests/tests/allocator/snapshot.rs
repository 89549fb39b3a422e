//! The allocator's snapshot equals PyTorch's snapshot of the same run: the same contents under the same keys.

use flate2::read::GzDecoder;
use memtrack_core::__pickle::{self as pickle, InputState, Value as Pickled};
use memtrack_core::allocator::workload::{Workload, record};
use memtrack_core::allocator::{
    Backend, CachingAllocator, Context, HistoryOptions, MemPoolOptions, Settings, SimulatedMemory,
};
use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_tests::{fixture, oracle};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// The snapshot lists the same events, segments and blocks as PyTorch's snapshot of the same run, in the same order.
#[test]
fn the_dumped_snapshot_has_pytorchs_structure() {
    let workload = oracle("allocator").join("pending-frees.workload.jsonl");
    let workload = Workload::read(File::open(workload).unwrap(), u64::MAX).unwrap();
    let (snapshot, _) = record(&workload).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    let mut symbols = memtrack_core::stack::symbols::Symbolizer::of(&snapshot);
    snapshot.save_as(&path, &mut symbols).unwrap();
    let dumped: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let mut expected = String::new();
    let file = File::open(oracle("allocator").join("pending-frees.expected.jsonl.gz")).unwrap();
    GzDecoder::new(file).read_to_string(&mut expected).unwrap();
    let lines: Vec<Value> = expected.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events = lines.iter().filter_map(|line| line["events"].as_array()).flatten();
    let reference: Vec<_> = events.map(|event| (event[1].clone(), event[4].clone())).collect();
    let trace = dumped["device_traces"][0].as_array().unwrap();
    let actions: Vec<_> =
        trace.iter().map(|event| (event["action"].clone(), event["size"].clone())).collect();
    assert_eq!(actions, reference);
    let last = lines.last().unwrap();
    assert_eq!(dumped["allocator_settings"], last["allocator_settings"]);
    for (dumped, reference) in
        dumped["segments"].as_array().unwrap().iter().zip(last["segments"].as_array().unwrap())
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
            assert_eq!(dumped[key], reference[key], "{key}");
        }
        let blocks = dumped["blocks"].as_array().unwrap().iter();
        let blocks: Vec<_> = blocks.map(|b| (&b["size"], &b["requested_size"], &b["state"])).collect();
        let expected = reference["blocks"].as_array().unwrap().iter();
        let expected: Vec<_> = expected.map(|b| (&b[1], &b[2], &b[3])).collect();
        assert_eq!(blocks, expected);
    }
}

/// For each kind of dictionary, its keys in order, with the types of their values.
type Shapes = BTreeMap<String, BTreeSet<String>>;

/// Returns the type of a value. A tuple has the types of its items.
fn kind(value: Pickled<'_>) -> String {
    match value.as_tuple() {
        Some(items) => format!("({})", items.into_iter().map(kind).collect::<Vec<_>>().join(", ")),
        None => value.type_name().to_owned(),
    }
}

fn get<'a>(value: Pickled<'a>, key: &str) -> Pickled<'a> {
    value.get(key).unwrap_or_else(|| panic!("there is no {key} in {}", value.type_name()))
}

fn items(value: Pickled<'_>) -> Vec<Pickled<'_>> {
    value.as_list().unwrap_or_else(|| panic!("{} is no list", value.type_name()))
}

struct Walk<'a> {
    root: Pickled<'a>,
    shapes: Shapes,
}

impl Walk<'_> {
    /// Adds a dictionary's shape to the shapes of its kind.
    fn add(&mut self, what: &str, value: Pickled<'_>) {
        let entries = value.as_entries().unwrap_or_else(|| panic!("{what} is {}", value.type_name()));
        let entries = entries.into_iter().map(|(key, value)| {
            let key = key.to_text().unwrap_or_else(|| panic!("{what} has a key that is no string"));
            format!("{key}: {}", kind(value))
        });
        let shape = entries.collect::<Vec<_>>().join(", ");
        self.shapes.entry(what.to_owned()).or_default().insert(shape);
    }

    /// Adds the shapes of a dictionary's frames. Returns `none` without the key `frames`, `empty` for an empty list, else `some`.
    fn frames(&mut self, of: Pickled<'_>) -> &'static str {
        let Some(frames) = of.get("frames") else { return "none" };
        let frames = items(frames);
        frames.iter().for_each(|frame| self.add("frame", *frame));
        if frames.is_empty() { "empty" } else { "some" }
    }

    fn all(mut self) -> Shapes {
        let root = self.root;
        self.add("root", root);
        let settings = get(root, "allocator_settings");
        self.add("settings", settings);
        self.add("divisions", get(settings, "roundup_power2_divisions"));
        for segment in items(get(root, "segments")) {
            let frames = self.frames(segment);
            self.add(&format!("segment, {frames} frames"), segment);
            for block in items(get(segment, "blocks")) {
                self.frames(block);
                self.add("block", block);
            }
        }
        let traces = items(get(root, "device_traces"));
        let events: Vec<_> = traces.into_iter().flat_map(|trace| items(trace)).collect();
        for event in events {
            let action = get(event, "action").to_text().expect("an action is a string");
            // If frames were requested, an event's list may still be empty; only the presence of the key shows the request.
            let frames = if self.frames(event) == "none" { "without" } else { "with" };
            self.add(&format!("{action} {frames} frames"), event);
        }
        for key in ["external_annotations", "host_segments", "host_traces"] {
            items(get(root, key));
        }
        self.shapes
    }
}

fn shapes(path: &Path) -> Shapes {
    let document = pickle::load(File::open(path).unwrap(), &InputState::default()).unwrap();
    Walk { root: document.root(), shapes: Shapes::new() }.all()
}

/// Runs every operation that leaves an event, and dumps a snapshot.
fn dump(stacks: Context, settings: &str, path: &Path) {
    const MIB: u64 = 1 << 20;
    let device = DeviceId(0);
    let memory = SimulatedMemory::new(0, 100 * MIB);
    let allocator = CachingAllocator::new([memory.clone()], &Settings::parse(settings).unwrap()).unwrap();
    allocator.record_memory_history(Some(&HistoryOptions::new().context(stacks)));
    let alloc = |size| allocator.caching_allocator_alloc(size, device, StreamId(0));
    // A segment that one block fills keeps its stack.
    let whole = alloc(30 * MIB).unwrap();
    let part = alloc(MIB / 2).unwrap();
    alloc(200 * MIB).unwrap_err();
    allocator.caching_allocator_delete(whole).unwrap();
    allocator.empty_cache().unwrap();
    let pool = allocator.mem_pool(device, MemPoolOptions::default()).unwrap();
    let route = pool.use_mem_pool().unwrap();
    let pending = alloc(12 * MIB).unwrap();
    drop(route);
    memory.set_events_ready(false);
    allocator.record_stream(pending, StreamId(1));
    allocator.caching_allocator_delete(pending).unwrap();
    let _live = alloc(20 * MIB).unwrap();
    // Taking a snapshot leaves an event, too.
    allocator.memory_snapshot();
    allocator.dump_snapshot(path).unwrap();
    allocator.caching_allocator_delete(part).unwrap();
}

/// Every dictionary has the same keys as in a file that PyTorch 2.15 wrote, in the same order and with the same Python types.
#[test]
fn dumped_dictionaries_have_pytorchs_keys_and_types() {
    let mut genuine = Shapes::new();
    for name in ["basic-1", "basic-2", "expandable", "mempool", "multi-gpu", "no-context", "no-history"] {
        for (what, more) in shapes(&fixture("snapshots").join(format!("samples/{name}.pickle"))) {
            genuine.entry(what).or_default().extend(more);
        }
    }
    // PyTorch's sample that was recorded without stacks contains only a few kinds of events. For the other kinds, the keys
    // without frames are derived from the samples with stacks: `frames` is the last key there.
    for (what, with) in genuine.clone() {
        let Some(action) = what.strip_suffix(" with frames") else { continue };
        let without = with.iter().map(|shape| shape.strip_suffix(", frames: a list").unwrap().to_owned());
        let known = genuine.entry(format!("{action} without frames")).or_default();
        known.extend(without);
        assert_eq!(known.len(), 1, "{action}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.pickle");
    for settings in ["", "expandable_segments:True"] {
        for stacks in [Context::None, Context::State, Context::Alloc, Context::All] {
            dump(stacks, settings, &path);
            let dumped = shapes(&path);
            for (what, shapes) in &dumped {
                let known = genuine.get(what).unwrap_or_else(|| panic!("{stacks:?}: PyTorch has no {what}"));
                assert!(shapes.is_subset(known), "{stacks:?}: {what}:\n{shapes:#?}\n{known:#?}");
            }
            // The key `frames` is present only where the mode records stacks.
            let present = if stacks >= Context::Alloc { "with" } else { "without" };
            let absent = if stacks >= Context::Alloc { "without" } else { "with" };
            let segment_action = if settings.is_empty() { "segment_alloc" } else { "segment_map" };
            for action in [segment_action, "alloc", "free_requested", "free_completed", "oom"] {
                assert!(dumped.contains_key(&format!("{action} {present} frames")), "{stacks:?}: {action}");
                assert!(!dumped.contains_key(&format!("{action} {absent} frames")), "{stacks:?}: {action}");
            }
            assert!(
                dumped.contains_key("snapshot without frames")
                    && !dumped.contains_key("snapshot with frames")
            );
            assert_eq!(dumped.contains_key("frame"), stacks > Context::None, "{stacks:?}");
        }
    }
}
