//! No hostile pickle makes the snapshot reader panic, take long, or accept what must be refused.

use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::pytorch::{LoadError, LoadOptions};
use memtrack_tests::shared;
use std::fs;
use std::time::{Duration, Instant};

/// The JSON file among the pickles is refused for its name only.
fn open(path: &std::path::Path) -> Result<(), LoadError> {
    Snapshot::open(path, LoadOptions::default()).map(|_| ())
}

#[test]
fn hostile_files_end_as_their_manifest_says() {
    let Some(folder) = shared().map(|at| at.join("oracle/hostile")) else { return };
    let manifest = fs::read_to_string(folder.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let mut bad = Vec::new();
    for entry in manifest.as_array().unwrap() {
        let (file, expect) = (entry["file"].as_str().unwrap(), entry["expect"].as_str().unwrap());
        let start = Instant::now();
        let result = open(&folder.join(file));
        if start.elapsed() > Duration::from_secs(2) {
            bad.push(format!("{file}: {:?}", start.elapsed()));
        }
        match (&result, expect) {
            (Ok(()), "reject") => bad.push(format!("{file}: accepted ({})", entry["why"])),
            (Err(error), "accept") => bad.push(format!("{file}: {error} ({})", entry["why"])),
            _ => {}
        }
        if let Err(error) = result {
            let text = error.to_string();
            assert!(!text.contains('\n') && text.len() < 400, "{file}: {text}");
        }
    }
    assert!(bad.is_empty(), "{bad:#?}");
}
