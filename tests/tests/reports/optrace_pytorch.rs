//! The analysis of operator traces equals PyTorch's memory profile, for the fixtures (made by memtrack's script) and for the
//! reference data.

use flate2::read::GzDecoder;
use memtrack_core::profile::Category;
use memtrack_core::profile::analysis::{Action, Profile, analyse};
use memtrack_core::profile::export::{CoalescedTimeline, write_raw};
use memtrack_core::profile::optrace::{Mode, ReadTrace, read};
use memtrack_core::profile::places::Places;
use memtrack_tests::{fixture, oracle};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the profile folders inside a folder, sorted.
fn profiles(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<_> = entries.filter(|path| path.join("trace.optrace.jsonl.gz").exists()).collect();
    folders.sort();
    folders
}

fn stored(path: PathBuf) -> Value {
    serde_json::from_reader(GzDecoder::new(fs::File::open(path).unwrap())).unwrap()
}

fn open(folder: &Path) -> ReadTrace {
    let file = fs::File::open(folder.join("trace.optrace.jsonl.gz")).unwrap();
    read(file, Mode::Compat, 1 << 30).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// Returns the categories in PyTorch's format.
fn categories(profile: &Profile<'_>) -> Value {
    let labelled = profile.labelled();
    let rows = labelled.iter().map(|version| {
        let storage = profile.storages()[version.storage as usize].unwrap();
        let device = &profile.trace().devices[usize::from(storage.device.0)];
        let key = json!({"id": storage.tensor, "ptr": storage.address, "alloc": version.storage, "device": [device, null]});
        json!([key, version.version, version.category.map(|category| category.name())])
    });
    rows.collect()
}

fn exported(write: impl FnOnce(&mut Vec<u8>)) -> Value {
    let mut text = Vec::new();
    write(&mut text);
    serde_json::from_slice(&text).unwrap()
}

/// Compares all results for a profile with PyTorch's.
fn check(folder: &Path) {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let expected = stored(folder.join("oracle.json.gz"));
    let ReadTrace { trace, .. } = open(folder);
    let profile = match (analyse(&trace, Mode::Compat), expected.get("error")) {
        (Ok(profile), None) => profile,
        (Err(error), Some(theirs)) => {
            // Both analyses fail; the tolerant mode succeeds, because the only problem is a gap in the profiler's data.
            let theirs = theirs.as_str().unwrap();
            assert!(theirs.contains("duplicate outputs"), "{name}: {error}; PyTorch: {theirs}");
            let repaired = analyse(&trace, Mode::Tolerant).unwrap();
            assert!(!repaired.repairs().is_empty(), "{name}");
            return;
        }
        (ours, theirs) => panic!("{name}: {:?}; PyTorch: {theirs:?}", ours.err()),
    };
    let equal = |what: &str, ours: Value, theirs: &Value| {
        let (ours, theirs) = (ours.as_array().unwrap(), theirs.as_array().unwrap());
        let first = ours.iter().zip(theirs).position(|(ours, theirs)| ours != theirs);
        let at = first.unwrap_or(ours.len().min(theirs.len()));
        assert!(ours == theirs, "{name}: {what} {at}: {:?}, PyTorch {:?}", ours.get(at), theirs.get(at));
    };
    assert_eq!(trace.devices, ["cpu"], "{name}");
    let cpu = profile.changes()[0].device;
    equal("category", categories(&profile), &expected["categories"]);
    let raw = exported(|out| write_raw(&profile, cpu, out).unwrap());
    equal("raw record", raw, &stored(folder.join("raw_cpu.json.gz")));
    let coalesced = exported(|out| CoalescedTimeline::of(&profile, cpu).write(out).unwrap());
    equal("coalesced part", coalesced, &stored(folder.join("timeline_cpu.json.gz")));
}

#[test]
fn profiles_exported_by_memtracks_script_equal_pytorchs() {
    let folders = profiles(&fixture("optrace"));
    assert!(folders.len() >= 5, "{folders:?}");
    folders.iter().for_each(|folder| check(folder));
}

#[test]
fn all_profiles_of_the_reference_data_equal_pytorchs() {
    let folders = profiles(&oracle("profiles"));
    assert!(folders.len() >= 9, "{folders:?}");
    folders.iter().for_each(|folder| check(folder));
}

/// Two batch norms, of 4 and 8 channels, in a network of 459 parameters that SGD with momentum trains.
#[test]
fn buffers_and_optimizer_temporaries_have_separate_categories() {
    let ReadTrace { trace, .. } = open(&fixture("optrace/batch_norm"));
    let profile = analyse(&trace, Mode::Tolerant).unwrap();
    // Sums the bytes of all storages whose first version has this category.
    let bytes = |category| -> u64 {
        let sizes = (0..).zip(profile.storages()).filter_map(|(storage, known)| {
            (profile.category(storage, 0) == Some(category)).then_some(known.as_ref()?.bytes?)
        });
        sizes.sum()
    };
    let (parameters, count, statistic) = (4 * 459, 8, 4);
    assert_eq!(bytes(Category::Parameter), parameters);
    assert_eq!(bytes(Category::OptimizerState), parameters);
    assert_eq!(bytes(Category::Buffer), 2 * count + 2 * statistic * (4 + 8));
    let created = profile.changes().iter().filter(|change| change.action == Action::Create);
    assert!(created.clone().any(|change| profile.category_of(change) == Category::OptimizerTemporary));
    // The compatible mode uses only the categories of PyTorch.
    let exact = analyse(&trace, Mode::Compat).unwrap();
    let extra = [Category::Buffer, Category::OptimizerTemporary];
    assert!(
        exact
            .labelled()
            .iter()
            .all(|version| version.category.is_none_or(|category| !extra.contains(&category)))
    );
}

/// The model is a `Sequential` of a multilayer perceptron and one more layer.
#[test]
fn modules_are_named_by_their_path_in_the_called_model() {
    let ReadTrace { trace, .. } = open(&fixture("optrace/frozen"));
    let places = Places::of(&trace);
    let names: Vec<String> =
        (0..).take(places.modules.len()).map(|module| places.full_name(module)).collect();
    let layers = (0..5).map(|layer| format!("Sequential_0 / 0.{layer}"));
    let model = ["Sequential_0", "Sequential_0 / 0"].map(String::from).into_iter();
    let head = ["Sequential_0 / 1".to_owned()];
    assert_eq!(names, model.chain(layers).chain(head).collect::<Vec<_>>());
}
