//! `memtrack advise`: a program that follows the advice has the peak that was promised.

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::operators::{self, Dtype, ReportTensors, TensorInfo, TensorReader};
use memtrack_core::profile::advice::{Advice, Finding, Kind};
use memtrack_core::profile::analysis::analyse;
use memtrack_core::profile::optrace::Mode;
use memtrack_core::profile::{Category, Repairs};
use memtrack_core::recorder::{Options, record_alloc, record_free};
use memtrack_core::{Recording, scope, start_monitor_with, stop};
use memtrack_tests::{alone, fixture, memtrack};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};

const MIB: u64 = 1 << 20;
const DEVICE: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);

/// Memory on a device, as a framework would have it.
struct Tensor {
    number: u64,
    bytes: u64,
}

impl Tensor {
    fn new(mib: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let tensor = Self { number: NEXT.fetch_add(1, Ordering::Relaxed), bytes: mib * MIB };
        record_alloc(DEVICE, STREAM, tensor.address(), tensor.bytes);
        tensor
    }

    const fn address(&self) -> u64 {
        self.number << 40
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        record_free(DEVICE, STREAM, self.address(), self.bytes);
    }
}

impl ReportTensors for Tensor {
    fn report(&self, to: &mut TensorReader<'_>) {
        let shape = [self.bytes as usize];
        let info = TensorInfo::new(self.number, DEVICE, Dtype::U8, &shape[..]);
        to.tensor(&info.storage(self.address(), self.bytes));
    }
}

/// An operator that makes so many MiB.
fn op(name: &str, inputs: &[&Tensor], mib: u64) -> Tensor {
    let operator = inputs.iter().fold(operators::operator(name), |operator, input| operator.input(*input));
    let made = Tensor::new(mib);
    operator.output(&made);
    made
}

/// What of the advice the program follows.
#[derive(Clone, Copy, Default)]
struct Follows {
    /// The table is made where it is looked up.
    early: bool,
    /// The batch is dropped when it is encoded.
    late: bool,
    /// The residual is on the host while it is not used.
    idle: bool,
}

/// A model that runs once.
fn program(follows: Follows) -> Recording {
    start_monitor_with(&Options::new().without_host_heap().operators()).unwrap();
    let make_table = || op("make_table", &[], 32);
    let mut table = (!follows.early).then(make_table);
    let mut batch = Some(op("load", &[], 8));
    let hidden = {
        let _module = scope::module("encoder");
        op("encode", &[batch.as_ref().unwrap()], 64)
    };
    if follows.late {
        batch = None;
    }
    let mut residual = Some(op("project", &[&hidden], 24));
    let normal = op("normalize", &[residual.as_ref().unwrap()], 1);
    if follows.idle {
        residual = None;
    }
    let wide = {
        let _module = scope::module("decoder");
        op("widen", &[&hidden, &normal], 128)
    };
    drop(hidden);
    let narrow = op("narrow", &[&wide], 16);
    drop(wide);
    let residual = residual.unwrap_or_else(|| op("copy_back", &[], 24));
    let sum = op("add", &[&narrow, &residual], 16);
    let table = table.take().unwrap_or_else(make_table);
    drop(op("look_up", &[&sum, &table], 4));
    drop((batch, residual, table, narrow, normal, sum));
    stop()
}

fn advice(recording: &Recording) -> Advice {
    let trace = recording.operator_trace().unwrap();
    let profile = analyse(&trace, Mode::Tolerant).unwrap();
    Advice::of(&profile, profile.devices()[0], Repairs::default())
}

#[test]
fn a_program_that_follows_the_advice_has_the_promised_peak() {
    alone!();
    let recording = program(Follows::default());
    let advice_of_it = advice(&recording);
    // Table, batch, hidden, residual, normalized and widened.
    assert_eq!(advice_of_it.peak_bytes, (32 + 8 + 64 + 24 + 1 + 128) * MIB, "{advice_of_it}");
    let changes = [
        (Kind::Early, "make_table", None, 32, Follows { early: true, ..Follows::default() }),
        (Kind::Late, "load", None, 8, Follows { late: true, ..Follows::default() }),
        (Kind::Idle, "project", None, 24, Follows { idle: true, ..Follows::default() }),
    ];
    for (kind, operator, module, mib, follows) in changes {
        let is_it = |finding: &&Finding| finding.operator.as_deref() == Some(operator);
        let finding = advice_of_it.findings.iter().find(is_it).unwrap_or_else(|| panic!("{advice_of_it}"));
        assert_eq!((finding.kind, finding.bytes, finding.pieces), (kind, mib * MIB, 1), "{advice_of_it}");
        assert_eq!(finding.module.as_deref(), module);
        let changed = advice(&program(follows));
        assert_eq!(changed.peak_bytes, finding.peak_bytes, "{operator}: {changed}");
        assert_eq!(
            advice_of_it.peak_bytes - changed.peak_bytes,
            finding.saves_bytes,
            "{operator}: {changed}"
        );
    }
    // What is promised for all together is what all together do: no sum of savings.
    let free = advice(&program(Follows { early: true, late: true, idle: false }));
    assert_eq!((free.peak_bytes, advice_of_it.free.findings), (advice_of_it.free.peak_bytes, 2), "{free}");
    let all = advice(&program(Follows { early: true, late: true, idle: true }));
    assert_eq!((all.peak_bytes, advice_of_it.all.findings), (advice_of_it.all.peak_bytes, 3), "{all}");
    assert_eq!(all.peak_bytes, (64 + 1 + 128) * MIB);

    // The command says the same, of the recording and of the trace.
    let folder = tempfile::tempdir().unwrap();
    let (memtrack_file, trace) = (folder.path().join("a.memtrack"), folder.path().join("a.optrace.jsonl.gz"));
    recording.save(&memtrack_file).unwrap();
    recording.save_operator_trace(&trace).unwrap();
    for file in [memtrack_file, trace] {
        let told = json(&run(&file, &["--json"]));
        assert_eq!(told["peak_bytes"], advice_of_it.peak_bytes);
        let findings = told["findings"].as_array().unwrap();
        assert_eq!(findings.len(), advice_of_it.findings.len());
        for (told, finding) in findings.iter().zip(&advice_of_it.findings) {
            assert_eq!(told["kind"], finding.kind.name());
            assert_eq!(told["saves_bytes"], finding.saves_bytes);
            assert_eq!(told["new_peak_bytes"], finding.peak_bytes);
            assert_eq!(told["sentence"], advice_of_it.sentence(finding));
        }
        assert_eq!(told["together"]["all"]["new_peak_bytes"], all.peak_bytes);
        let text = String::from_utf8(run(&file, &["-n", "1", "--wide"]).stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains(": the peak is 257.0 MiB, "), "{text}");
        // What the peak is made of comes first.
        assert!(lines[1] == "Held then by:" && lines[2].starts_with("  128.0 MiB   49.8 %  "), "{text}");
        let head = lines.iter().position(|line| *line == "What would lower it:").unwrap();
        let lines = &lines[head..];
        assert!(lines[1].starts_with("  1. −32.0 MiB  32.0 MiB "), "{text}");
        assert!(lines[1].contains("obtained by make_table were obtained "), "{text}");
        assert!(lines[1].contains(" and are first used by look_up ("), "{text}");
        assert!(lines[1].ends_with("obtain them right before that; the peak falls to 225.0 MiB"), "{text}");
        assert_eq!(lines[2], "     (and 2 findings that save less: -n 0 shows all)");
        assert_eq!(
            lines[4],
            "Everything that takes no further work (2 findings): −40.0 MiB, the peak falls to 217.0 MiB."
        );
        assert_eq!(lines[5], "All together (3 findings): −64.0 MiB, the peak falls to 193.0 MiB.");
    }
}

fn run(file: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(memtrack()).arg("advise").arg(file).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_pytorch_model_that_makes_its_activations_again_has_the_promised_peak() {
    let told = |name: &str| {
        json(&run(&fixture("advice").join(format!("{name}.optrace.jsonl.gz")), &["--json", "-n", "0"]))
    };
    let (kept, followed) = (told("kept"), told("recomputed"));
    let first = &kept["findings"][0];
    assert_eq!(first["kind"], "recompute");
    assert_eq!(
        first["modules"],
        serde_json::json!(["0", "1", "2", "3"].map(|block| format!("Net_0 / blocks.{block}")))
    );
    assert_eq!(first["new_peak_bytes"], followed["peak_bytes"]);
    let (before, after) = (kept["peak_bytes"].as_u64().unwrap(), followed["peak_bytes"].as_u64().unwrap());
    assert_eq!(first["saves_bytes"], before - after);
    assert!(after < before / 5 * 4, "{before} {after}");
}

#[test]
fn a_training_step_of_pytorch_gets_advice() {
    let told = json(&run(&fixture("modules/convnet/trace.optrace.jsonl.gz"), &["--json", "-n", "0"]));
    let peak = told["peak_bytes"].as_u64().unwrap();
    let findings = told["findings"].as_array().unwrap();
    let of = |kind: &'static str, category: Category| {
        findings
            .iter()
            .filter(move |finding| finding["kind"] == kind && finding["category"] == category.name())
    };
    // The first convolution's result waits for the backward pass, with 2²² bytes.
    let held =
        of("idle", Category::Activation).find(|finding| finding["operator"] == "aten::conv2d").unwrap();
    assert_eq!(
        (&held["module"], &held["allocated_bytes"]),
        (&"Sequential_0 / 0".into(), &(4_u64 << 20).into())
    );
    assert_eq!(held["next_used"]["operator"], "NativeBatchNormBackward0");
    // Both moments and the step count of each of ten weights.
    let state = of("idle", Category::OptimizerState).next().unwrap();
    assert_eq!(state["count"], 3 * 10);
    let together = &told["together"]["all"];
    for finding in findings {
        let saves = finding["saves_bytes"].as_u64().unwrap();
        assert_eq!(peak - saves, finding["new_peak_bytes"].as_u64().unwrap());
        assert!(saves <= together["saves_bytes"].as_u64().unwrap());
        assert!(saves <= finding["allocated_bytes"].as_u64().unwrap(), "{finding}");
    }
}
