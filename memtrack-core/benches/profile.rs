//! The processor time needed to analyse an operator trace, not counting the time to read it:
//!
//! `cargo bench -p memtrack-core --features profile --bench profile -- [TRACE...]`
//!
//! Measures the given traces, and generated training runs with increasing numbers of steps, which show how the time
//! grows.

use memtrack_core::profile::analysis::analyse;
use memtrack_core::profile::export::CoalescedTimeline;
use memtrack_core::profile::optrace::DeviceIndex;
use memtrack_core::profile::optrace::{Mode, ReadTrace, read};
use std::fmt::Write;
use std::fs::File;

/// The number of samples of each time. The fastest and the median are printed.
const RUNS: usize = 11;

/// Returns the processor time that this thread has used so far, in seconds.
fn processor_seconds() -> f64 {
    let text =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    nanoseconds.expect("nanoseconds on the processor") / 1e9
}

/// Returns the fastest and the median of `samples` samples, in seconds per run. The clock has a resolution of a few
/// milliseconds, so a sample consists of many runs.
fn measure<T>(mut run: impl FnMut() -> T, samples: usize) -> (f64, f64) {
    // The first run also obtains memory from the system, so samples sized by its time would be too short for the clock.
    std::hint::black_box(run());
    let once = std::time::Instant::now();
    std::hint::black_box(run());
    let runs = (0.1 / once.elapsed().as_secs_f64().max(1e-9)).ceil().clamp(1.0, 10_000.0) as usize;
    let mut seconds: Vec<f64> = (0..samples)
        .map(|_| {
            let start = processor_seconds();
            for _ in 0..runs {
                std::hint::black_box(run());
            }
            (processor_seconds() - start) / runs as f64
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    (seconds[0], seconds[samples / 2])
}

fn print_report(name: &str, content: &[u8], runs: usize) {
    let (reading, _) = measure(|| read(content, Mode::Compat, u64::MAX).expect("a trace"), runs.min(3));
    let ReadTrace { trace, .. } = read(content, Mode::Compat, u64::MAX).expect("a trace");
    let measure_mode =
        |mode| measure(|| analyse(&trace, mode).expect("a trace with memory").changes().len(), runs);
    let (compat, median) = measure_mode(Mode::Compat);
    let (tolerant, _) = measure_mode(Mode::Tolerant);
    let profile = analyse(&trace, Mode::Compat).expect("a trace with memory");
    let (export, _) = measure(|| CoalescedTimeline::of(&profile, DeviceIndex(0)).rows.len(), runs);
    let events = trace.records.len();
    println!(
        "{name}: {events} events; analysis {:.3} ms (middle {:.3} ms), {:.0} ns an event; tolerant {:.3} ms; \
         coalescing {:.3} ms; reading {:.1} ms",
        compat * 1e3,
        median * 1e3,
        compat * 1e9 / events as f64,
        tolerant * 1e3,
        export * 1e3,
        reading * 1e3,
    );
}

/// Generates a training run for a chain of layers. In each step, a layer has four operators, three allocations and
/// three frees.
fn training_trace(steps: u64) -> String {
    const LAYERS: u64 = 16;
    let mut text = String::from(
        "{\"ev\":\"header\",\"format\":\"memtrack-optrace\",\"version\":1,\"time\":\"monotonic_ns\"}\n",
    );
    let (mut lines, mut time, mut id, mut handle, mut address) = (0, 0, 0, 0, 0x1_0000_u64);
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("a string");
        lines += 1;
    };
    macro_rules! tensor {
        ($address:expr) => {{
            handle += 1;
            line(format_args!(
                r#"{{"ev":"tensor","t":{handle},"impl":"{handle}","storage":"{:#x}","dev":"cuda:0","dtype":"f32","sizes":[256],"strides":[1],"layout":"strided"}}"#,
                $address
            ));
            handle
        }};
    }
    macro_rules! op {
        ($kind:expr, $known:expr, $args:expr, $memory:expr) => {{
            id += 1;
            time += 10;
            line(format_args!(
                r#"{{"ev":"op","id":{id},"parent":null,"ts":{time},"thread":1,"name":"op","kind":"{}","schema":{},"args":[{}]}}"#,
                $kind, $known, $args
            ));
            for (what, address) in $memory {
                time += 1;
                line(format_args!(
                    r#"{{"ev":"{what}","parent":{id},"ts":{time},"thread":1,"dev":"cuda:0","ptr":"{address:#x}","bytes":1024}}"#
                ));
            }
            line(format_args!(r#"{{"ev":"end","id":{id},"ts":{time}}}"#));
        }};
    }
    let weights: Vec<u64> = (0..LAYERS).map(|layer| 0x1000 + 0x100 * layer).collect();
    let handles: Vec<u64> = weights.iter().map(|&weight| tensor!(weight)).collect();
    for _ in 0..steps {
        let mut activations = Vec::new();
        address += 0x400;
        let mut input = tensor!(address);
        for weight in &handles {
            address += 0x400;
            let (made, scratch) = (address, address + 0x10_0000_0000);
            let args = format!(r#"{{"t":{input},"w":false}},{{"t":{weight},"w":false}}"#);
            op!("op", true, args, [("alloc", made), ("alloc", scratch), ("free", scratch)]);
            input = tensor!(made);
            op!("op", true, format!(r#"{{"t":{input},"w":true}}"#), [("", 0_u64); 0]);
            activations.push((input, made));
        }
        for (weight, (activation, made)) in handles.iter().zip(activations).rev() {
            address += 0x400;
            let gradient = address;
            op!("backward", false, format!(r#"{{"t":{activation},"w":null}}"#), [("alloc", gradient)]);
            let tensor = tensor!(gradient);
            op!(
                "op",
                true,
                format!(r#"{{"t":{weight},"w":true}},{{"t":{tensor},"w":false}}"#),
                [("free", made), ("free", gradient)]
            );
        }
    }
    let lines_now = lines;
    writeln!(text, "{{\"ev\":\"footer\",\"records\":{lines_now}}}").expect("a string");
    text
}

fn main() {
    for path in std::env::args().skip(1).filter(|argument| !argument.starts_with("--")) {
        let mut content = Vec::new();
        let file = File::open(&path).expect("a trace");
        std::io::Read::read_to_end(&mut { file }, &mut content).expect("a trace");
        print_report(&path, &content, RUNS);
    }
    for steps in [10, 100, 1_000, 8_000] {
        print_report(
            &format!("{steps} steps"),
            training_trace(steps).as_bytes(),
            if steps > 100 { 3 } else { RUNS },
        );
    }
}
