//! An allocator's history and snapshots: its recorded events, and its state in the form of PyTorch snapshots, with the
//! same keys in the same order.

use crate::api::caching::CachingAllocator;
use crate::error::AllocatorError;
use crate::memory::DeviceMemory;
use crate::recorder::{self, Caller};
use crate::settings::AllocatorSettings;
use crate::state::blocks::PoolId;
use crate::state::history::{HistoryOptions, TraceEntry};
use memtrack_formats::SnapshotFiles;
use memtrack_formats::pytorch::StringInterner;
use memtrack_formats::pytorch::convert::Builder;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, StreamId, ThreadId};
use memtrack_model::options::Context;
use memtrack_model::snapshot::Value;
use memtrack_model::snapshot::pytorch::{PytorchSnapshot, SegmentInfo};
use memtrack_model::{NameFrames, Snapshot};
use memtrack_symbols::Symbolizer;
use std::io;
use std::path::Path;

impl<M: DeviceMemory> CachingAllocator<M> {
    /// Starts recording events, keeping any that were recorded before; `None` stops recording and discards the recorded
    /// events. Live blocks keep the stacks of their allocations in either case.
    pub fn record_memory_history(&self, options: Option<&HistoryOptions>) {
        recorder::prepare(options.is_some_and(|options| options.context != Context::None));
        for mut device in self.lock_devices() {
            device.history.set(options);
        }
    }

    /// Returns a device's events, oldest first.
    ///
    /// # Errors
    /// Fails when there is no such device.
    pub fn history(&self, device: DeviceId) -> Result<Vec<TraceEntry>, AllocatorError> {
        Ok(self.lock_device(device)?.history.entries())
    }

    /// Removes a device's events from its history and returns them, oldest first.
    ///
    /// # Errors
    /// Fails when there is no such device.
    pub fn take_history(&self, device: DeviceId) -> Result<Vec<TraceEntry>, AllocatorError> {
        Ok(self.lock_device(device)?.history.drain())
    }

    /// Returns the segments of all devices with their blocks, sorted by device and address. Also adds a
    /// `snapshot` event to each history.
    pub fn memory_snapshot(&self) -> Vec<SegmentInfo> {
        let mut all = Vec::new();
        for mut device in self.lock_devices() {
            let segments = device.segments();
            let active = segments.iter().map(|segment| segment.active_size).sum();
            let place = (StreamId(0), PoolId(0));
            device.record(Action::Snapshot, 0, active, place, Caller::default());
            all.extend(segments);
        }
        all
    }

    /// Returns the whole state, like `torch.cuda.memory._snapshot`: the events in each device's history, the
    /// segments and the settings.
    pub fn snapshot(&self) -> PytorchSnapshot {
        let state = self.capture_state();
        let mut symbols = Symbolizer::new(&state.names.modules);
        state.into_snapshot(&mut symbols)
    }

    fn capture_state(&self) -> AllocatorState {
        // As in PyTorch, the history is copied before the `snapshot` event is added to it.
        let traces = self.lock_devices().map(|device| device.history.entries()).collect();
        let segments = self.memory_snapshot();
        let settings = self.allocator_settings();
        AllocatorState { segments, traces, settings, names: recorder::snapshot_names() }
    }

    /// Writes [`Self::snapshot`] to a file that pytorch.org/memory_viz and memtrack can open; an existing file
    /// is replaced.
    ///
    /// # Errors
    /// Fails when the file cannot be written or its suffix is not `.pickle`, `.json` or `.memtrack`.
    pub fn dump_snapshot(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let state = self.capture_state();
        let mut symbols = Symbolizer::new(&state.names.modules);
        state.into_snapshot(&mut symbols).save_as(path, &mut symbols)
    }

    /// Sets whether this allocator's events are reported to memtrack's recorder while the recorder is on. The
    /// default is `true`.
    pub fn report_to_recorder(&self, reports: bool) {
        for mut device in self.lock_devices() {
            device.reports = reports;
        }
    }
}

/// An allocator's state at one point in time.
struct AllocatorState {
    /// The segments of all devices.
    segments: Vec<SegmentInfo>,
    /// The events of each device.
    traces: Vec<Vec<TraceEntry>>,
    /// The current settings.
    settings: AllocatorSettings,
    /// The stacks, scopes and binaries that events and blocks refer to.
    names: Snapshot,
}

impl AllocatorState {
    /// Converts the state to a snapshot, in which `names` names the frames of the stacks.
    fn into_snapshot(self, names: &mut dyn NameFrames) -> PytorchSnapshot {
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
