//! `/metrics`: the recorder's sums in the OpenMetrics text format. No snapshot is taken, so a scrape costs some
//! microseconds and can be frequent. docs/SERVICE.md lists the metrics, with OpenTelemetry's names for them.
//!
//! Names follow Prometheus: base units, and the suffixes `_bytes`, `_seconds` and `_total`. Counters begin at 0 when
//! monitoring starts.

use crate::http::Response;
use memtrack_model::event::{DeviceId, DeviceKind};
use memtrack_recorder::allocator::own_bytes;
use memtrack_recorder::events::{DeviceSums, RunningSums, running_sums, virtual_and_resident_bytes};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, NoLabelSet, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::HashSet;
use std::fmt::{self, Write as _};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The older format, for clients that do not name the other one: `promtool check metrics`, and `curl` for a person.
const TEXT_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The ratio between the detection limit and the mean interval between samples: −ln 0.05.
const DETECTION_FACTOR: f64 = 2.996;

/// Returns the metrics: in the OpenMetrics format, unless the client accepts certain types and does not name that one.
pub(super) fn respond(accept: Option<&str>) -> Response<'static> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Readings::now()));
    let mut body = String::new();
    match text::encode(&mut body, &registry) {
        Ok(()) if accept.is_some_and(|types| !types.contains("application/openmetrics-text")) => {
            Response::ok(TEXT_CONTENT_TYPE, in_text_format(&body).into_bytes())
        }
        Ok(()) => Response::ok(CONTENT_TYPE, body.into_bytes()),
        Err(fmt::Error) => Response::refusal(500, "the metrics cannot be written"),
    }
}

/// Converts OpenMetrics to Prometheus's text format, in which a counter is named like its value, with the suffix `_total`.
fn in_text_format(metrics: &str) -> String {
    let counters: HashSet<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(metrics.len());
    for line in metrics.lines() {
        let about =
            ["# HELP ", "# TYPE "].into_iter().find_map(|start| Some((start, line.strip_prefix(start)?)));
        match about.and_then(|(start, rest)| Some((start, rest.split_once(' ')?))) {
            Some((start, (name, rest))) => {
                let suffix = if counters.contains(name) { "_total" } else { "" };
                let _ = writeln!(text, "{start}{name}{suffix} {rest}");
            }
            // What OpenMetrics adds: units, and the end.
            None if line.starts_with('#') => {}
            None => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    text
}

/// All numbers of one scrape.
#[derive(Debug)]
struct Readings {
    virtual_bytes: u64,
    resident_bytes: u64,
    own_bytes: i64,
    running: Option<RunningSums>,
}

impl Readings {
    fn now() -> Self {
        let [virtual_bytes, resident_bytes] = virtual_and_resident_bytes();
        Self { virtual_bytes, resident_bytes, own_bytes: own_bytes(), running: running_sums() }
    }
}

impl Collector for Readings {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut writer = Writer(encoder);
        let on = i64::from(self.running.is_some());
        writer.gauge("memtrack_monitored", None, "Whether memory is being monitored: 1 or 0", on)?;
        let about = "Resident set of the process";
        writer.gauge("memtrack_process_resident", Some(Unit::Bytes), about, self.resident_bytes as i64)?;
        let about = "Address space that the process has mapped";
        writer.gauge("memtrack_process_virtual", Some(Unit::Bytes), about, self.virtual_bytes as i64)?;
        let about = "Memory of memtrack itself: events, live blocks, stacks, tables";
        writer.gauge("memtrack_own", Some(Unit::Bytes), about, self.own_bytes)?;
        let Some(running) = &self.running else { return Ok(()) };
        let started = running.started_ns as f64 / 1e9;
        let about = "Start of monitoring since the Unix epoch";
        writer.gauge("memtrack_start_time", Some(Unit::Seconds), about, started)?;
        writer.devices(running)?;
        writer.sampling(running)?;
        writer.omissions(running)
    }
}

/// Writes families of metrics.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn gauge(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?.encode_gauge(&value)
    }

    fn counter(
        &mut self,
        name: &str,
        unit: Option<Unit>,
        help: &str,
        value: impl EncodeCounterValue,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    /// Writes a family with a row for each device that has a value.
    fn family(
        &mut self,
        (name, unit, kind, help): (&str, Option<Unit>, MetricType, &str),
        devices: &[DeviceSums],
        value: impl Fn(&DeviceSums) -> Option<i64>,
    ) -> fmt::Result {
        let rows: Vec<(DeviceId, i64)> =
            devices.iter().filter_map(|row| Some((row.device, value(row)?))).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        for (device, value) in rows {
            let labels = [("device", label_of(device))];
            let mut metric = family.encode_family(&labels)?;
            match kind {
                MetricType::Counter => metric.encode_counter::<NoLabelSet, _, u64>(&(value as u64), None)?,
                _ => metric.encode_gauge(&value)?,
            }
        }
        Ok(())
    }

    fn devices(&mut self, running: &RunningSums) -> fmt::Result {
        use MetricType::{Counter, Gauge};

        let devices = &running.devices;
        let bytes = || Some(Unit::Bytes);
        let about = "Allocated since monitoring started, minus freed; below 0 if older memory was freed";
        self.family(("memtrack_live", bytes(), Gauge, about), devices, |row| Some(row.sums.allocated()))?;
        let about = "Blocks allocated since monitoring started, minus blocks freed";
        self.family(("memtrack_live_blocks", None, Gauge, about), devices, |row| {
            Some(row.allocations().wrapping_sub(row.frees()) as i64)
        })?;
        let about = "Bytes allocated since monitoring started";
        self.family(("memtrack_allocated", bytes(), Counter, about), devices, |row| {
            Some(row.allocated_bytes() as i64)
        })?;
        let about = "Bytes freed since monitoring started";
        self.family(("memtrack_freed", bytes(), Counter, about), devices, |row| {
            Some(row.freed_bytes() as i64)
        })?;
        let about = "Blocks allocated since monitoring started";
        self.family(("memtrack_allocations", None, Counter, about), devices, |row| {
            Some(row.allocations() as i64)
        })?;
        let about = "Blocks freed since monitoring started";
        self.family(("memtrack_frees", None, Counter, about), devices, |row| Some(row.frees() as i64))?;
        let about = "Segments that the device's allocator has obtained since monitoring started";
        self.family(("memtrack_reserved", bytes(), Gauge, about), devices, reserved)?;
        let about = "Reserved memory that no block uses: the allocator's cache";
        self.family(("memtrack_retained", bytes(), Gauge, about), devices, |row| {
            Some(reserved(row)? - row.sums.active())
        })?;
        let about = "Events recorded";
        self.family(("memtrack_events_recorded", None, Counter, about), devices, |row| {
            Some(row.sums.recorded as i64)
        })?;
        let about = "Recorded events that were dropped because newer ones needed their place";
        self.family(("memtrack_events_dropped", None, Counter, about), devices, |row| {
            Some(row.dropped as i64)
        })
    }

    fn sampling(&mut self, running: &RunningSums) -> fmt::Result {
        let about = "Blocks with a stack that are live";
        self.gauge("memtrack_tracked_blocks", None, about, running.tracked_blocks as i64)?;
        let Some(sampling) = &running.sampling else { return Ok(()) };
        let about = "Small heap blocks that were counted exactly but have no stack";
        self.counter("memtrack_unrecorded_blocks", None, about, sampling.unrecorded_blocks)?;
        let about = "Bytes of small heap blocks that were counted exactly but have no stack";
        self.counter("memtrack_unrecorded", Some(Unit::Bytes), about, sampling.unrecorded_bytes)?;
        let interval = sampling.widest_interval_bytes as f64;
        let about = "Widest mean interval between samples so far; 0 if every block was recorded";
        self.gauge("memtrack_sample_interval", Some(Unit::Bytes), about, interval)?;
        let limit = (DETECTION_FACTOR * interval).min(sampling.unrecorded_bytes as f64);
        let about = "Small blocks that a line may hold and be missing in the profile with 5 % probability, at the widest interval so far";
        self.gauge("memtrack_detection_limit", Some(Unit::Bytes), about, limit)?;
        if let Some(peak) = &running.peak {
            let about = "Lower bound on the peak of the heap's live bytes since small blocks are sampled";
            self.gauge("memtrack_peak_lower_bound", Some(Unit::Bytes), about, peak.bytes as i64)?;
            let about = "Upper bound on the peak of the heap's live bytes since small blocks are sampled";
            self.gauge("memtrack_peak_upper_bound", Some(Unit::Bytes), about, peak.most_bytes as i64)?;
        }
        if running.budget > 0.0 {
            let about = "Share of processor time that recording may take";
            self.gauge("memtrack_budget", Some(Unit::Other("ratio".into())), about, running.budget)?;
            let about = "Processor time spent on recording";
            self.counter("memtrack_own_cpu", Some(Unit::Seconds), about, sampling.spent_seconds)?;
            let about = "Processor time of the recorded threads";
            self.counter("memtrack_recorded_cpu", Some(Unit::Seconds), about, sampling.cpu_seconds)?;
        }
        Ok(())
    }

    fn omissions(&mut self, running: &RunningSums) -> fmt::Result {
        let folded = &running.folded;
        let about = "Events without a stack because the table of stacks was full";
        self.counter("memtrack_omitted_stacks", None, about, folded.stacks)?;
        let about = "Blocks that were only counted because the table of live blocks was full";
        self.counter("memtrack_omitted_blocks", None, about, folded.blocks)?;
        let about = "Threads recorded as the unknown thread because there were too many";
        self.counter("memtrack_omitted_threads", None, about, folded.threads)
    }
}

/// Returns the reserved bytes of a device whose allocator has reported segments.
fn reserved(row: &DeviceSums) -> Option<i64> {
    let reserved = row.sums.reserved();
    (row.device.kind().has_segments() && reserved > 0).then_some(reserved)
}

/// Returns the value of the label `device`: `host`, `pinned`, `mapped`, or the number of an accelerator.
fn label_of(device: DeviceId) -> String {
    match device.kind() {
        DeviceKind::Host => "host".into(),
        DeviceKind::Pinned => "pinned".into(),
        DeviceKind::Mapped => "mapped".into(),
        DeviceKind::Device => device.0.to_string(),
    }
}
