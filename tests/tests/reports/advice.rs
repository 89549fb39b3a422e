//! `memtrack advise`: a program that follows the advice has the predicted peak.

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

/// A tensor on a device, as a framework would report it.
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

/// Runs an operator whose output has this many MiB.
fn op(name: &str, inputs: &[&Tensor], mib: u64) -> Tensor {
    let operator = inputs.iter().fold(operators::operator(name), |operator, input| operator.input(*input));
    let made = Tensor::new(mib);
    operator.output(&made);
    made
}

/// Which parts of the advice a program follows.
#[derive(Clone, Copy, Default)]
struct Follows {
    /// Whether the table is created only right before its use.
    early: bool,
    /// Whether the batch is dropped as soon as it is encoded.
    late: bool,
    /// Whether the residual is moved to the host while it is unused.
    idle: bool,
}

/// Records a model that runs once.
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
fn a_program_that_follows_the_advice_has_the_predicted_peak() {
    alone!();
    let recording = program(Follows::default());
    let first_advice = advice(&recording);
    // The sizes, in this order, of the table, the batch, and the outputs `hidden`, `residual`, `normal` and `wide`.
    assert_eq!(first_advice.peak_bytes, (32 + 8 + 64 + 24 + 1 + 128) * MIB, "{first_advice}");
    let changes = [
        (Kind::Early, "make_table", None, 32, Follows { early: true, ..Follows::default() }),
        (Kind::Late, "load", None, 8, Follows { late: true, ..Follows::default() }),
        (Kind::Idle, "project", None, 24, Follows { idle: true, ..Follows::default() }),
    ];
    for (kind, operator, module, mib, follows) in changes {
        let named = |finding: &&Finding| finding.operator.as_deref() == Some(operator);
        let finding = first_advice.findings.iter().find(named).unwrap_or_else(|| panic!("{first_advice}"));
        assert_eq!(
            (finding.kind, finding.allocated_bytes, finding.count),
            (kind, mib * MIB, 1),
            "{first_advice}"
        );
        assert_eq!(finding.module.as_deref(), module);
        let changed = advice(&program(follows));
        assert_eq!(changed.peak_bytes, finding.new_peak_bytes, "{operator}: {changed}");
        assert_eq!(
            first_advice.peak_bytes - changed.peak_bytes,
            finding.saves_bytes,
            "{operator}: {changed}"
        );
    }
    // The prediction for all findings is the effect of following all of them, not the sum of their savings.
    let free = advice(&program(Follows { early: true, late: true, idle: false }));
    assert_eq!(
        (free.peak_bytes, first_advice.together.without_more_work.findings),
        (first_advice.together.without_more_work.new_peak_bytes, 2),
        "{free}"
    );
    let all = advice(&program(Follows { early: true, late: true, idle: true }));
    assert_eq!(
        (all.peak_bytes, first_advice.together.all.findings),
        (first_advice.together.all.new_peak_bytes, 3),
        "{all}"
    );
    assert_eq!(all.peak_bytes, (64 + 1 + 128) * MIB);

    // The command reports the same for the recording and for the trace.
    let folder = tempfile::tempdir().unwrap();
    let (memtrack_file, trace) = (folder.path().join("a.memtrack"), folder.path().join("a.optrace.jsonl.gz"));
    recording.save(&memtrack_file).unwrap();
    recording.save_operator_trace(&trace).unwrap();
    for file in [memtrack_file, trace] {
        let report = json(&run(&file, &["--json"]));
        assert_eq!(report["peak_bytes"], first_advice.peak_bytes);
        let findings = report["findings"].as_array().unwrap();
        assert_eq!(findings.len(), first_advice.findings.len());
        for (row, finding) in findings.iter().zip(&first_advice.findings) {
            assert_eq!(row["kind"], finding.kind.name());
            assert_eq!(row["saves_bytes"], finding.saves_bytes);
            assert_eq!(row["new_peak_bytes"], finding.new_peak_bytes);
            assert_eq!(row["sentence"], finding.sentence);
        }
        assert_eq!(report["together"]["all"]["new_peak_bytes"], all.peak_bytes);
        let text = String::from_utf8(run(&file, &["-n", "1", "--wide"]).stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains(": the peak is 257.0 MiB, "), "{text}");
        // The blocks that make up the peak are listed first.
        assert!(
            lines[1] == "Held at the peak by:" && lines[2].starts_with("  128.0 MiB   49.8 %  "),
            "{text}"
        );
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
fn a_pytorch_model_that_recomputes_its_activations_has_the_predicted_peak() {
    let report = |name: &str| {
        json(&run(&fixture("advice").join(format!("{name}.optrace.jsonl.gz")), &["--json", "-n", "0"]))
    };
    let (kept, recomputed) = (report("kept"), report("recomputed"));
    let first = &kept["findings"][0];
    assert_eq!(first["kind"], "recompute");
    assert_eq!(
        first["modules"],
        serde_json::json!(["0", "1", "2", "3"].map(|block| format!("Net_0 / blocks.{block}")))
    );
    assert_eq!(first["new_peak_bytes"], recomputed["peak_bytes"]);
    let (before, after) = (kept["peak_bytes"].as_u64().unwrap(), recomputed["peak_bytes"].as_u64().unwrap());
    assert_eq!(first["saves_bytes"], before - after);
    assert!(after < before / 5 * 4, "{before} {after}");
}

#[test]
fn a_training_step_of_pytorch_gets_advice() {
    let report = json(&run(&fixture("modules/convnet/trace.optrace.jsonl.gz"), &["--json", "-n", "0"]));
    let peak = report["peak_bytes"].as_u64().unwrap();
    let findings = report["findings"].as_array().unwrap();
    let of = |kind: &'static str, category: Category| {
        findings
            .iter()
            .filter(move |finding| finding["kind"] == kind && finding["category"] == category.name())
    };
    // The first convolution's output, of 2²² bytes, is kept for the backward pass.
    let kept_output =
        of("idle", Category::Activation).find(|finding| finding["operator"] == "aten::conv2d").unwrap();
    assert_eq!(
        (&kept_output["module"], &kept_output["allocated_bytes"]),
        (&"Sequential_0 / 0".into(), &(4_u64 << 20).into())
    );
    assert_eq!(kept_output["next_used"]["operator"], "NativeBatchNormBackward0");
    // Both moments and the step count of each of ten weights.
    let state = of("idle", Category::OptimizerState).next().unwrap();
    assert_eq!(state["count"], 3 * 10);
    let together = &report["together"]["all"];
    for finding in findings {
        let saves = finding["saves_bytes"].as_u64().unwrap();
        assert_eq!(peak - saves, finding["new_peak_bytes"].as_u64().unwrap());
        assert!(saves <= together["saves_bytes"].as_u64().unwrap());
        assert!(saves <= finding["allocated_bytes"].as_u64().unwrap(), "{finding}");
    }
}
