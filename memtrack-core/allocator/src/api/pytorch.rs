//! Conversion of the caching allocator's state to PyTorch snapshots, with the same keys in the same order.

use crate::{AllocatorSettings, TraceEntry};
use memtrack_formats::pytorch::StringInterner;
use memtrack_formats::pytorch::convert::Builder;
use memtrack_model::event::{DeviceId, Event, EventFlags, ThreadId};
use memtrack_model::snapshot::Value;
use memtrack_model::snapshot::pytorch::{PytorchSnapshot, SegmentInfo};
use memtrack_model::{NameFrames, Snapshot};

/// An allocator's state at one point in time.
pub(crate) struct AllocatorState {
    /// The segments of all devices.
    pub(crate) segments: Vec<SegmentInfo>,
    /// The events of each device.
    pub(crate) traces: Vec<Vec<TraceEntry>>,
    /// The current settings.
    pub(crate) settings: AllocatorSettings,
    /// The stacks, scopes and binaries that events and blocks refer to.
    pub(crate) names: Snapshot,
}

impl AllocatorState {
    /// Converts the state to a snapshot, in which `names` names the frames of the stacks.
    pub(crate) fn into_snapshot(self, names: &mut dyn NameFrames) -> PytorchSnapshot {
        let mut built = Builder::new(&self.names, names);
        for (device, trace) in (0..).map(DeviceId).zip(&self.traces) {
            built.add_trace(trace.iter().map(|entry| (entry_to_event(device, entry), entry.pool)));
        }
        for segment in &self.segments {
            built.add_segment(segment);
        }
        let settings = settings_to_value(&self.settings, built.strings());
        built.set_settings(settings);
        built.finish()
    }
}

fn entry_to_event(device: DeviceId, entry: &TraceEntry) -> Event {
    Event {
        // The clock of this snapshot ticks once per nanosecond.
        ticks: entry.time_ns,
        address: entry.address,
        size_bytes: entry.size,
        stream: entry.stream,
        stack: entry.stack,
        scope: entry.scope,
        thread: ThreadId::NONE,
        device,
        action: entry.action,
        flags: EventFlags::default(),
    }
}

fn settings_to_value(settings: &AllocatorSettings, strings: &mut StringInterner) -> Value {
    let mut text = |text: &str| Value::Str(strings.intern(text.as_bytes()));
    let divisions = settings.roundup_power2_divisions.divisions().iter().enumerate();
    let divisions = divisions
        .map(|(interval, &of)| (text(&(1u64 << interval).to_string()), Value::integer(of.into())))
        .collect();
    let entries = [
        ("PYTORCH_CUDA_ALLOC_CONF", text(&settings.text)),
        ("max_split_size", Value::Int(settings.max_split_size)),
        ("garbage_collection_threshold", Value::Float(settings.garbage_collection_threshold)),
        ("expandable_segments", Value::Bool(settings.expandable_segments)),
        ("pinned_num_register_threads", Value::integer(settings.pinned_num_register_threads.into())),
        ("release_lock_on_cudamalloc", Value::Bool(settings.release_lock_on_cudamalloc)),
        ("pinned_use_cuda_host_register", Value::Bool(settings.pinned_use_cuda_host_register)),
        ("graph_capture_record_stream_reuse", Value::Bool(settings.graph_capture_record_stream_reuse)),
        ("max_round_threshold", Value::Int(settings.max_round_threshold)),
        ("max_cached_size", Value::Int(settings.max_cached_size)),
        ("roundup_power2_divisions", Value::Dict(divisions)),
    ];
    Value::Dict(entries.into_iter().map(|(key, value)| (text(key), value)).collect())
}
