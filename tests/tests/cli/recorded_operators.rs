//! A recording with operators: the purpose of its memory in all verbs.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::operators::{self, Dtype, ReportTensors, TensorInfo, TensorReader};
use memtrack_core::recorder::{self, Options};
use memtrack_core::{scope, start_monitor_with, stop};
use memtrack_tests::{alone, memtrack};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const DEVICE: DeviceId = DeviceId(0);
const KIB: u64 = 1024;

/// A tensor: its number, and the size of its device memory in bytes.
struct Tensor(u64, u64);

impl ReportTensors for Tensor {
    fn report(&self, to: &mut TensorReader<'_>) {
        let sizes = [self.1 as usize / 4];
        to.tensor(&TensorInfo::new(self.0, DEVICE, Dtype::F32, &sizes[..]).storage(self.address(), self.1));
    }
}

impl Tensor {
    fn new(number: u64, kib: u64) -> Self {
        let tensor = Self(number, kib * KIB);
        recorder::record_alloc(DEVICE, StreamId(0), tensor.address(), tensor.1);
        tensor
    }

    fn address(&self) -> u64 {
        self.0 << 32
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        recorder::record_free(DEVICE, StreamId(0), self.address(), self.1);
    }
}

/// Runs two training steps of a model with one weight of 64 KiB. The optimizer's state for the weight has the same size.
fn train() {
    let weight = Tensor::new(1, 64);
    operators::parameters("net", [("weight", &weight)]);
    let moment = {
        let _optimizer = scope::optimizer();
        Tensor::new(2, 64)
    };
    for step in [10, 20] {
        let input = Tensor::new(step, 16);
        let output = {
            let _net = scope::root("net");
            let operator = operators::operator("matmul").input(&input).input(&weight);
            let output = Tensor::new(step + 1, 32);
            operator.output(&output);
            output
        };
        let gradient = {
            let _backward = scope::backward();
            let _temporary = Tensor::new(step + 2, 8);
            Tensor::new(step + 3, 64)
        };
        operators::gradient(&weight, &gradient);
        drop(output);
        let _optimizer = scope::optimizer();
        drop(Tensor::new(step + 4, 128));
    }
    drop(moment);
}

fn run(arguments: &[&str], folder: &Path) -> Output {
    Command::new(memtrack()).args(arguments).current_dir(folder).output().unwrap()
}

fn json(arguments: &[&str], folder: &Path) -> Value {
    let output = run(arguments, folder);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the name and the size in KiB of each row.
fn rows(rows: &Value) -> Vec<(&str, u64)> {
    let row = |row: &'_ Value| row["requested_bytes"].as_u64().unwrap() / KIB;
    rows.as_array().unwrap().iter().map(|one| (one["name"].as_str().unwrap(), row(one))).collect()
}

#[test]
fn every_verb_reports_the_purpose_of_a_recordings_memory() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    start_monitor_with(&Options::new().operators().without_host_heap()).unwrap();
    train();
    let recording = stop();
    recording.save(folder.join("run.memtrack")).unwrap();
    recording.save_operator_trace(folder.join("run.optrace.jsonl.gz")).unwrap();

    let all = [
        ("optimizer_temporary", 256),
        ("gradient", 128),
        ("optimizer_state", 64),
        ("parameter", 64),
        ("activation", 64),
        ("input", 32),
        ("autograd_detail", 16),
    ];
    // The peak is in the optimizer's step, when the output has already been freed.
    let at_peak = [
        ("optimizer_temporary", 128),
        ("gradient", 64),
        ("optimizer_state", 64),
        ("parameter", 64),
        ("input", 16),
    ];
    // Reports are checked for the recording, and for the same recording converted to a PyTorch snapshot.
    run(&["convert", "run.memtrack", "run.pickle"], folder);
    for file in ["run.memtrack", "run.pickle"] {
        let top = json(&["top", "--by", "category", "--json", file], folder);
        assert_eq!(rows(&top["devices"][0]["rows"]), all, "{file}");
        let peak = json(&["peak", "--json", file], folder);
        assert_eq!(rows(&peak["devices"][0]["categories"]), at_peak, "{file}");
        let summary = json(&["summary", "--json", file], folder);
        assert_eq!(rows(&summary["devices"][0]["peak"]["categories"]), at_peak, "{file}");
        for verb in ["peak", "summary"] {
            let text = String::from_utf8(run(&[verb, file], folder).stdout).unwrap();
            assert!(
                text.contains("ade of optimizer_temporary 128.0 KiB (38.1 %), gradient 64.0 KiB"),
                "{text}"
            );
        }
    }
    // Reports on the recording agree with reports on its operator trace, which is in a separate file.
    let of = |file| json(&["categories", "--at", "peak", "--json", file], folder);
    let (mut of_recording, of_trace) = (of("run.memtrack"), of("run.optrace.jsonl.gz"));
    assert!(of_recording.to_string().contains("OPTIMIZER_STATE"), "{of_recording}");
    // The device of a recording has the same name in all reports.
    let device = &mut of_recording["devices"][0]["device"];
    assert_eq!(
        (&device["name"], &of_trace["devices"][0]["device"]["name"]),
        (&"device 0".into(), &"cuda:0".into())
    );
    *device = of_trace["devices"][0]["device"].clone();
    assert_eq!(of_recording, of_trace);
    // As in `memtrack summary`, a category that is missing from a snapshot with categories is not inferred.
    run(&["convert", "run.memtrack", "run.json"], folder);
    let path = folder.join("run.json");
    let mut snapshot: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let traces = snapshot["device_traces"].as_array_mut().unwrap();
    let mut events = traces.iter_mut().flat_map(|trace| trace.as_array_mut().unwrap());
    let gradient =
        events.find(|event| event["category"] == "gradient" && event["action"] == "alloc").unwrap();
    gradient.as_object_mut().unwrap().remove("category");
    std::fs::write(&path, snapshot.to_string()).unwrap();
    let read = &json(&["categories", "--json", "run.json"], folder)["devices"][0]["all"];
    assert_eq!((&read["guessed_share"], &read["untold_bytes"]), (&0.0.into(), &(64 << 10).into()), "{read}");
    assert!(run(&["timeline", "run.memtrack", "-o", "run.raw.json.gz"], folder).status.success());
    let page = run(&["view", "run.memtrack", "-o", "run.html"], folder);
    assert!(page.status.success(), "{}", String::from_utf8_lossy(&page.stderr));
}

#[test]
fn a_recording_without_operators_has_no_operator_trace() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    start_monitor_with(&Options::new().without_host_heap()).unwrap();
    train();
    stop().save(folder.path().join("run.memtrack")).unwrap();
    let output = run(&["timeline", "run.memtrack", "-o", "run.json"], folder.path());
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("the recording has no operators"), "{stderr}");
}
