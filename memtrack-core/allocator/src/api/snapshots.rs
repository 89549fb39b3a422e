//! An allocator's history and snapshots: its recorded events, and its state in the form of PyTorch snapshots.

use crate::api::caching::CachingAllocator;
use crate::api::error::AllocatorError;
use crate::api::pytorch::AllocatorState;
use crate::memory::device_memory::DeviceMemory;
use crate::state::caller::{self, Caller};
use crate::state::history::{HistoryOptions, TraceEntry};
use crate::state::pools::PoolId;
use memtrack_formats::SnapshotFiles;
use memtrack_model::event::{Action, DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::{PytorchSnapshot, SegmentInfo};
use memtrack_symbols::Symbolizer;
use std::io;
use std::path::Path;

impl<M: DeviceMemory> CachingAllocator<M> {
    /// Starts recording events, keeping any that were recorded before; `None` stops recording and discards the recorded
    /// events. Live blocks keep the stacks of their allocations in either case.
    pub fn record_memory_history(&self, options: Option<&HistoryOptions>) {
        Caller::prepare(options);
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
        AllocatorState { segments, traces, settings, names: caller::snapshot_names() }
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
