//! The spans in candle-transformers' models name the modules, without changes to the models.

use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::pytorch::LoadOptions;
use memtrack_tests::nested;
use std::collections::HashSet;
use std::process::Command;

#[test]
#[ignore = "builds candle and its transformers: minutes"]
fn a_model_of_candle_transformers_names_its_modules() {
    nested::cargo("candle_spans", &["build"], &[]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bert.memtrack");
    let program = nested::target_folder("candle_spans").join("debug/candle_spans");
    assert!(Command::new(program).arg(&path).status().unwrap().success());
    let snapshot = Snapshot::open(&path, LoadOptions::default()).unwrap().snapshot;
    let modules: HashSet<String> =
        snapshot.events.iter().map(|event| snapshot.scopes.place(event.scope).modules.join(".")).collect();
    for module in
        ["model.embeddings", "model.encoder.layer.attn.self-attn", "model.encoder.layer.inter.linear"]
    {
        assert!(modules.contains(module), "{module} is not in {modules:?}");
    }
}
