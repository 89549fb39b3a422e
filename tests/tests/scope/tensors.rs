//! The tensors that `#[track_memory]` reads from arguments and results, and the records of these tensors.

use memtrack_core::event::DeviceId;
use memtrack_core::operators::{self, Dtype, ReportTensors, TensorInfo, TensorReader};
use memtrack_core::profile::optrace::{Arg, Op, OpKind, OperatorTrace, RecordKind, TensorId};
use memtrack_core::recorder::{self, Options};
use memtrack_core::snapshot::{Loaded, Snapshot, SnapshotFiles};
use memtrack_core::{Recording, scope, start_monitor, start_monitor_with, stop, track_memory};
use memtrack_tests::alone;
use std::fmt::Display;

/// A user's tensor type, whose values are identified by number.
#[derive(Clone, Debug, PartialEq)]
struct Tensor(u64);

impl ReportTensors for Tensor {
    fn report(&self, to: &mut TensorReader<'_>) {
        let sizes = [self.0 as usize, 2];
        let info = TensorInfo::new(self.0, DeviceId(0), Dtype::F32, &sizes[..]);
        to.tensor(&info.storage(0x1000 * self.0, 8 * self.0));
    }
}

/// A type without tensors.
struct Other;

#[track_memory]
fn add(left: &Tensor, right: &Tensor) -> Tensor {
    Tensor(left.0 + right.0)
}

#[track_memory]
fn fill(tensor: &mut Tensor, _value: f32) {
    tensor.0 += 100;
}

#[track_memory]
fn wrapped(
    list: &[&Tensor],
    maybe: Option<Tensor>,
    pair: (Tensor, usize),
    _other: &Other,
) -> Result<Vec<Tensor>, String> {
    let first = list.first().ok_or("the list is empty")?;
    Ok(vec![(*first).clone(), maybe.unwrap_or(pair.0)])
}

#[track_memory]
fn generic<T: Display, U>(_text: T, _any: U, tensor: Tensor) -> impl Display {
    tensor.0
}

#[track_memory]
fn borrowed<'a>(tensors: &'a mut [Tensor], _name: &str) -> &'a mut Tensor {
    &mut tensors[0]
}

#[track_memory]
fn by_impl(tensor: impl Into<u64> + Clone) -> Box<dyn Fn() -> u64> {
    let number = tensor.into();
    Box::new(move || number)
}

#[track_memory]
fn early(tensor: &Tensor) -> Tensor {
    if tensor.0 == 7 {
        return Tensor(70);
    }
    Tensor(1)
}

#[track_memory]
fn never(_tensor: &Tensor) -> Tensor {
    panic!("as it must")
}

#[track_memory]
async fn waits(tensor: Tensor) -> Tensor {
    tensor
}

#[track_memory]
impl Tensor {
    fn twice(&self) -> Self {
        Self(2 * self.0)
    }

    #[track_caller]
    fn located(self) -> (Self, &'static str) {
        (self, std::panic::Location::caller().file())
    }
}

#[track_memory(backward)]
fn backward(_loss: &Tensor) {}

/// Discards a result.
fn done<T>(_: T) {}

fn recorded(run: impl FnOnce()) -> Recording {
    recorded_with(&Options::new().operators(), run)
}

fn recorded_with(options: &Options, run: impl FnOnce()) -> Recording {
    start_monitor_with(options).unwrap();
    run();
    stop()
}

fn ops(trace: &OperatorTrace) -> Vec<(String, &Op)> {
    let mut ops = Vec::new();
    for record in &trace.records {
        if let RecordKind::Op(op) = &record.what {
            ops.push((trace.strings.get(op.name).into_owned(), op));
        }
    }
    ops
}

/// Returns the numbers of the input and output tensors; the numbers of written tensors are negative.
fn numbers(trace: &OperatorTrace, op: &Op) -> (Vec<i64>, Vec<i64>) {
    let number = |tensor: TensorId| {
        let identity = trace.strings.get(trace.tensors[tensor as usize].identity);
        i64::from_str_radix(identity.trim_start_matches("0x"), 16).unwrap()
    };
    let of_arg = |arg: &Arg| match *arg {
        Arg::Tensor(tensor, Some(true)) => -number(tensor),
        Arg::Tensor(tensor, Some(false)) => number(tensor),
        ref other => panic!("{other:?}"),
    };
    (op.args.iter().map(of_arg).collect(), op.outs.iter().map(|&out| number(out)).collect())
}

/// Runs the closure, and returns the name, inputs and outputs of its only operator.
fn only(run: impl FnOnce()) -> (String, Vec<i64>, Vec<i64>) {
    let trace = recorded(run).operator_trace().unwrap();
    let ops = ops(&trace);
    assert_eq!(ops.len(), 1, "{ops:?}");
    let (inputs, outputs) = numbers(&trace, ops[0].1);
    assert_eq!(ops[0].1.known, !inputs.is_empty() || !outputs.is_empty());
    (ops[0].0.clone(), inputs, outputs)
}

fn op(name: &str, inputs: &[i64], outputs: &[i64]) -> (String, Vec<i64>, Vec<i64>) {
    (name.to_owned(), inputs.to_vec(), outputs.to_vec())
}

#[test]
fn tensors_in_arguments_and_results_are_read_inside_any_wrapper() {
    alone!();
    let [one, two, three] = [1, 2, 3].map(Tensor);
    assert_eq!(only(|| done(add(&one, &two))), op("add", &[1, 2], &[3]));
    assert_eq!(only(|| fill(&mut Tensor(4), 0.5)), op("fill", &[-4], &[]));
    let run = || done(wrapped(&[&one, &two], Some(Tensor(5)), (Tensor(6), 1), &Other));
    assert_eq!(only(run), op("wrapped", &[1, 2, 5, 6], &[1, 5]));
    assert_eq!(only(|| assert_eq!(three.twice(), Tensor(6))), op("twice", &[3], &[6]));
    let run = || assert_eq!(borrowed(&mut [Tensor(8)], "name"), &Tensor(8));
    assert_eq!(only(run), op("borrowed", &[-8], &[8]));
}

#[test]
fn functions_behave_as_without_the_attribute() {
    alone!();
    assert_eq!(
        only(|| assert_eq!(generic("text", Other, Tensor(9)).to_string(), "9")),
        op("generic", &[9], &[])
    );
    assert_eq!(only(|| assert_eq!(by_impl(5_u32)(), 5)), op("by_impl", &[], &[]));
    // The result of an early return is not read, and neither is a result that an error replaced.
    assert_eq!(only(|| assert_eq!(early(&Tensor(7)), Tensor(70))), op("early", &[7], &[]));
    assert_eq!(only(|| assert_eq!(early(&Tensor(8)), Tensor(1))), op("early", &[8], &[1]));
    assert_eq!(only(|| done(wrapped(&[], None, (Tensor(6), 1), &Other))), op("wrapped", &[6], &[]));
    let (found, file) = Tensor(1).located();
    assert_eq!((found, file), (Tensor(1), file!()));
    let run = || done(std::panic::catch_unwind(|| never(&Tensor(2))).unwrap_err());
    assert_eq!(only(run), op("never", &[2], &[]));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(only(|| assert_eq!(runtime.block_on(waits(Tensor(3))), Tensor(3))), op("waits", &[], &[]));
}

#[test]
fn the_builder_reports_operators_that_no_attribute_can() {
    alone!();
    let run = || {
        let operator = operators::operator("fused").input(&Tensor(1)).written(&Tensor(2)).input(&3_u8);
        operator.output(&(Tensor(4), Tensor(5)));
    };
    assert_eq!(only(run), op("fused", &[1, -2], &[4, 5]));
}

#[test]
fn a_list_longer_than_a_line_is_recorded_completely() {
    alone!();
    let many: Vec<Tensor> = (1..=1_000).map(Tensor).collect();
    let expected: Vec<i64> = (1..=1_000).collect();
    let run = || done(operators::operator("cat").input(&many));
    assert_eq!(only(run), ("cat".to_owned(), expected, Vec::new()));
}

#[test]
fn memory_events_inside_an_operator_are_inside_its_record() {
    alone!();
    let device = DeviceId(0);
    // Other threads of the test program use the heap in the meantime.
    let options = Options::new().operators().without_host_heap();
    let recording = recorded_with(&options, || {
        let _model = scope::root("Net");
        let _layer = scope::module("layer");
        let inner = |address| {
            let operator = operators::operator("matmul").input(&Tensor(1));
            recorder::record_alloc(device, Default::default(), address, 512);
            operator.output(&Tensor(2));
        };
        inner(0x2000);
        recorder::record_free(device, Default::default(), 0x2000, 512);
        backward(&Tensor(2));
    });
    let trace = recording.operator_trace().unwrap();
    let kinds: Vec<&str> = trace
        .records
        .iter()
        .map(|record| match &record.what {
            RecordKind::Op(op) if op.kind == OpKind::Backward => "backward",
            RecordKind::Op(_) => "op",
            RecordKind::Memory(memory) if memory.is_free => "free",
            RecordKind::Memory(_) => "alloc",
            RecordKind::Module(_) => "module",
            RecordKind::Mark(_) => "begin",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["begin", "module", "module", "op", "alloc", "free", "backward"]);
    let parents: Vec<_> = trace.records.iter().map(|record| record.parent).collect();
    assert_eq!(parents, [None, None, Some(1), Some(2), Some(3), Some(2), Some(2)]);
    assert!(trace.records.is_sorted_by_key(|record| record.time_ns));
    let ends = |record: usize| trace.records[record].end_ns.unwrap();
    assert!(ends(3) <= trace.records[5].time_ns && ends(3) >= trace.records[4].time_ns && ends(1) >= ends(6));
    let RecordKind::Module(layer) = &trace.records[2].what else { panic!() };
    assert_eq!(trace.strings.get(layer.path), "layer");
}

#[test]
fn registrations_are_recorded_with_their_tensors() {
    alone!();
    let recording = recorded(|| {
        operators::parameters("net", [("weight", &Tensor(1)), ("bias", &Tensor(2))]);
        operators::buffers("net", [("mean", Tensor(3))]);
        operators::gradient(&Tensor(1), &Tensor(4));
        operators::optimizer_state("Adam", &Tensor(1), "exp_avg", &Tensor(5));
        operators::optimizer_state("Adam", &Tensor(1), "exp_avg_sq", &Tensor(6));
    });
    let trace = recording.operator_trace().unwrap();
    let id = |tensor: TensorId| trace.strings.get(trace.tensors[tensor as usize].identity).into_owned();
    let what: Vec<String> = trace
        .records
        .iter()
        // Another thread of the test program may allocate during the recording.
        .filter(|record| !matches!(record.what, RecordKind::Mark(_) | RecordKind::Memory(_)))
        .map(|record| match &record.what {
            RecordKind::Module(module) => {
                let params: Vec<_> = module.params.iter().map(|param| id(param.tensor)).collect();
                let buffers: Vec<_> = module.buffers.iter().map(|buffer| id(buffer.tensor)).collect();
                format!("{} {params:?} {buffers:?}", trace.strings.get(module.path))
            }
            RecordKind::Grad { param, grad } => format!("{:?} {}", param.map(id), id(*grad)),
            RecordKind::Optimizer(optimizer) => {
                let [only] = &optimizer.params[..] else { panic!("{optimizer:?}") };
                let state = only.state.iter().map(|state| (trace.strings.get(state.name), id(state.tensor)));
                format!("{} {:?}", id(only.tensor), state.collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        what,
        [
            r#"net ["0x1", "0x2"] []"#,
            r#"net [] ["0x3"]"#,
            r#"Some("0x1") 0x4"#,
            r#"0x1 [("exp_avg", "0x5"), ("exp_avg_sq", "0x6")]"#
        ]
    );
}

#[test]
fn nothing_is_read_unless_operators_are_requested() {
    alone!();
    /// Panics when its tensors are read.
    struct Tripwire;
    impl ReportTensors for Tripwire {
        fn report(&self, _: &mut TensorReader<'_>) {
            panic!("it is read");
        }
    }
    #[track_memory]
    fn touches(_tensor: &Tripwire) -> Tripwire {
        Tripwire
    }
    let all = || {
        touches(&Tripwire);
        operators::operator("op").input(&Tripwire).output(&Tripwire);
        operators::parameters(
            "net",
            std::iter::once_with(|| -> (&str, Tripwire) { panic!("it is requested") }),
        );
        operators::gradient(&Tripwire, &Tripwire);
    };
    all();
    start_monitor();
    all();
    let recording = stop();
    assert!(recording.snapshot().operators.is_empty() && recording.operator_trace().is_none());
    // When operators are recorded, a panic while tensors are read does not reach the program.
    let recording = recorded(|| done(touches(&Tripwire)));
    assert_eq!(ops(&recording.operator_trace().unwrap()).len(), 1);
}

#[test]
fn a_recording_keeps_operators_and_their_tensors() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let streamed = folder.path().join("streamed.memtrack");
    start_monitor_with(&Options::new().operators().stream_to(&streamed)).unwrap();
    let sum = std::thread::spawn(|| add(&Tensor(1), &Tensor(2))).join().unwrap();
    done(add(&sum, &sum));
    let recording = stop();
    let saved = folder.path().join("saved.memtrack");
    recording.save(&saved).unwrap();
    let expected = recording.operator_trace().unwrap();
    assert_eq!(ops(&expected).len(), 2);
    for path in [saved, streamed] {
        let Loaded { snapshot, .. } = Snapshot::open(&path, Default::default()).unwrap();
        assert_eq!(snapshot.operators, recording.snapshot().operators);
        let trace = memtrack_core::profile::recorded::operator_trace(&snapshot).unwrap().trace;
        let lines = |trace: &OperatorTrace| {
            ops(trace).iter().map(|(name, op)| (name.clone(), numbers(trace, op))).collect::<Vec<_>>()
        };
        assert_eq!(lines(&trace), lines(&expected), "{}", path.display());
    }
}

#[cfg(target_os = "linux")]
#[test]
#[allow(unsafe_code)]
fn a_forked_child_begins_a_new_log() {
    alone!();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("child.memtrack");
    start_monitor_with(&Options::new().operators()).unwrap();
    done(add(&Tensor(1), &Tensor(2)));
    let saved = path.clone();
    // SAFETY: the child allocates, which the C library allows after a fork, and exits without returning.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            done(add(&Tensor(3), &Tensor(4)));
            libc::_exit(i32::from(stop().save(&saved).is_err()));
        }
        let mut status = -1;
        assert_eq!((libc::waitpid(child, &mut status, 0), status), (child, 0));
    }
    done(add(&Tensor(5), &Tensor(6)));
    let inputs = |snapshot: &Snapshot| {
        let trace = memtrack_core::profile::recorded::operator_trace(snapshot).unwrap().trace;
        ops(&trace).iter().map(|(_, op)| numbers(&trace, op).0).collect::<Vec<_>>()
    };
    assert_eq!(inputs(stop().snapshot()), [vec![1, 2], vec![5, 6]]);
    assert_eq!(inputs(&Snapshot::open(&path, Default::default()).unwrap().snapshot), [vec![3, 4]]);
}
