//! How long an operator trace takes to analyse, as PyTorch's memory profile does and with repairs; reading apart.
//!
//! `cargo bench -p memtrack-core --features profile --bench operator_trace -- TRACE...` prints processor times in ms:
//! of reading, and of the analysis in both modes. With `--copies N` also of the analysis of N copies one after another, with
//! tensors and addresses of their own, per million records. `tests/pytorch/optrace.sh --times` puts PyTorch's own time beside it.

use memtrack_core::profile::analysis::analyse;
use memtrack_core::profile::optrace::{Mode, read};
use memtrack_core::profile::optrace_model::{Arg, OperatorTrace, Record, RecordId, TensorId, What};
use memtrack_core::snapshot::{StringId, StringTable};
use std::collections::HashMap;
use std::hint::black_box;

/// Addresses of processes are below this.
const ADDRESSES: u64 = 1 << 48;

/// Processor time of this thread so far, user and system, in ms. Nothing here has another.
fn processor_ms() -> f64 {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    nanoseconds.expect("nanoseconds on the processor") / 1e6
}

/// The mean of as many runs as take a fifth of a second, in ms: the clock of a thread is only sure to be right at the
/// scheduler's ticks. The dropping of results counts.
fn mean<T>(mut run: impl FnMut() -> T) -> f64 {
    let start = processor_ms();
    for runs in 1.. {
        black_box(run());
        let time = processor_ms() - start;
        if time > 200.0 {
            return time / f64::from(runs);
        }
    }
    unreachable!("runs take time")
}

/// `copies` of a trace, one after another.
fn repeated(trace: &OperatorTrace, copies: usize) -> OperatorTrace {
    let mut all = trace.clone();
    let first = trace.records.first().map_or(0, |record| record.time_ns);
    let last = trace.records.iter().map(|record| record.end_ns.unwrap_or(0).max(record.time_ns)).max();
    let span = last.unwrap_or(0) - first + 1;
    for copy in 1..copies as u64 {
        let tensors = copy as TensorId * trace.tensors.len() as TensorId;
        let records = copy as RecordId * trace.records.len() as RecordId;
        let address = copy * ADDRESSES;
        let later = copy as i64 * span;
        let mut names = HashMap::new();
        let mut named = |strings: &mut StringTable, name: StringId| {
            *names.entry(name).or_insert_with(|| {
                let copied = format!("{copy} {}", trace.strings.get(name));
                strings.push(copied.as_bytes())
            })
        };
        for tensor in &trace.tensors {
            let mut tensor = tensor.clone();
            tensor.identity = named(&mut all.strings, tensor.identity);
            tensor.storage = tensor.storage.map(|storage| storage + address);
            all.tensors.push(tensor);
        }
        for record in &trace.records {
            let mut record = Record {
                time_ns: record.time_ns + later,
                end_ns: record.end_ns.map(|end| end + later),
                parent: record.parent.map(|parent| parent + records),
                ..record.clone()
            };
            let own = |tensor: &mut TensorId| *tensor += tensors;
            match &mut record.what {
                What::Op(op) => {
                    for arg in &mut op.args {
                        match arg {
                            Arg::None => {}
                            Arg::Tensor(tensor, _) => own(tensor),
                            Arg::Tensors(tensors, _) => tensors.iter_mut().for_each(own),
                        }
                    }
                    op.outs.iter_mut().for_each(own);
                }
                What::Memory(memory) => memory.address += address,
                What::Module(module) => {
                    module.identity = named(&mut all.strings, module.identity);
                    module.params.iter_mut().for_each(|param| {
                        own(&mut param.tensor);
                        param.grad.iter_mut().for_each(own);
                    });
                    module.buffers.iter_mut().for_each(|buffer| own(&mut buffer.tensor));
                }
                What::Optimizer(optimizer) => {
                    optimizer.identity = named(&mut all.strings, optimizer.identity);
                    optimizer.params.iter_mut().for_each(|param| {
                        own(&mut param.tensor);
                        param.grad.iter_mut().for_each(own);
                        param.state.iter_mut().for_each(|state| own(&mut state.tensor));
                    });
                }
                What::Grad { param, grad } => {
                    param.iter_mut().for_each(own);
                    own(grad);
                }
                What::Mark(_) => {}
            }
            all.records.push(record);
        }
    }
    all
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (mut copies, mut paths) = (1, Vec::new());
    while let Some(argument) = arguments.next() {
        if argument == "--copies" {
            copies = arguments.next().and_then(|number| number.parse().ok()).expect("a number of copies");
        } else {
            paths.push(argument);
        }
    }
    if paths.is_empty() {
        println!("name an operator trace");
    }
    for path in paths {
        let bytes = std::fs::read(&path).expect("a readable file");
        let reading = mean(|| read(&bytes[..], Mode::Compat, u64::MAX).expect("a whole trace"));
        let trace = read(&bytes[..], Mode::Compat, u64::MAX).expect("a whole trace").trace;
        let [compat, tolerant] =
            [Mode::Compat, Mode::Tolerant].map(|mode| mean(|| analyse(&trace, mode).is_ok()));
        let records = trace.records.len();
        println!(
            "{path}: {records} records; read {reading:.3}, analyse {compat:.3} ms, with repairs {tolerant:.3}"
        );
        if copies > 1 {
            let trace = repeated(&trace, copies);
            let million = trace.records.len() as f64 / 1e6;
            let time = mean(|| analyse(&trace, Mode::Compat).map(drop).expect("as the one trace"));
            println!(
                "{copies} copies: {million:.3} million records; analyse {time:.0} ms, {:.0} per million; once {:.0} per million",
                time / million,
                compat / (records as f64 / 1e6)
            );
        }
    }
}
