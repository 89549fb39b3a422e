//! `torch.cuda.memory`: the functions people know, under the names they know. All sizes in bytes.

use crate::api::caching::CachingAllocator;
use crate::api::error::AllocatorError;
use crate::api::pytorch::AllocatorState;
use crate::api::summary;
use crate::memory::device_memory::{DeviceMemory, MemoryInfo};
use crate::settings::AllocatorSettings;
use crate::state::caller::{self, Caller};
use crate::state::history::{HistoryOptions, TraceEntry};
use crate::state::pools::PoolId;
use crate::state::segments::SegmentInfo;
use crate::state::stats::DeviceStats;
use crate::steps::oom::OutOfMemoryError;
use memtrack_formats::SnapshotFiles;
use memtrack_model::event::{Action, DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use memtrack_symbols::Symbolizer;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

impl<M: DeviceMemory> CachingAllocator<M> {
    /// Hands out a block and returns its address; 0 for 0 bytes.
    ///
    /// # Errors
    /// As [`Self::allocate`].
    pub fn caching_allocator_alloc(
        &self,
        size: u64,
        device: DeviceId,
        stream: StreamId,
    ) -> Result<u64, AllocatorError> {
        self.allocate(size, device, stream).map(|allocation| allocation.address)
    }

    /// Takes a block back.
    ///
    /// # Errors
    /// As [`Self::free`].
    pub fn caching_allocator_delete(&self, address: u64) -> Result<(), AllocatorError> {
        self.free(address)
    }

    /// Gives everything that is cached on any device back to it, as far as no live block is in the way.
    ///
    /// # Errors
    /// When a device fails.
    pub fn empty_cache(&self) -> Result<(), AllocatorError> {
        for mut device in self.devices() {
            let context = Caller::of_free(&device.history);
            device.release_cached(None, context)?;
        }
        Ok(())
    }

    /// All statistics of a device.
    ///
    /// # Errors
    /// When there is no such device; so do all functions below that name one.
    pub fn statistics(&self, device: DeviceId) -> Result<DeviceStats, AllocatorError> {
        Ok(self.device(device)?.stats.clone())
    }

    /// The statistics under dotted keys, sorted.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn memory_stats(&self, device: DeviceId) -> Result<BTreeMap<String, i64>, AllocatorError> {
        Ok(self.statistics(device)?.flat())
    }

    /// The statistics as nested dictionaries.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn memory_stats_as_nested_dict(&self, device: DeviceId) -> Result<serde_json::Value, AllocatorError> {
        Ok(self.statistics(device)?.nested())
    }

    /// Every peak becomes what is now.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn reset_peak_memory_stats(&self, device: DeviceId) -> Result<(), AllocatorError> {
        self.device(device)?.stats.reset_peak();
        Ok(())
    }

    /// Sums and counters begin again at 0.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn reset_accumulated_memory_stats(&self, device: DeviceId) -> Result<(), AllocatorError> {
        self.device(device)?.stats.reset_accumulated();
        Ok(())
    }

    /// What is handed out now.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn memory_allocated(&self, device: DeviceId) -> Result<u64, AllocatorError> {
        Ok(self.device(device)?.stats.allocated_bytes.all.current as u64)
    }

    /// The most that was handed out since the beginning or the last reset.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn max_memory_allocated(&self, device: DeviceId) -> Result<u64, AllocatorError> {
        Ok(self.device(device)?.stats.allocated_bytes.all.peak as u64)
    }

    /// What is taken from the device now.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn memory_reserved(&self, device: DeviceId) -> Result<u64, AllocatorError> {
        Ok(self.device(device)?.stats.reserved_bytes.all.current as u64)
    }

    /// The most that was taken from the device since the beginning or the last reset.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn max_memory_reserved(&self, device: DeviceId) -> Result<u64, AllocatorError> {
        Ok(self.device(device)?.stats.reserved_bytes.all.peak as u64)
    }

    /// The device's free and total memory, as the driver says it: of all processes.
    ///
    /// # Errors
    /// When there is no such device or it cannot say.
    pub fn mem_get_info(&self, device: DeviceId) -> Result<MemoryInfo, AllocatorError> {
        Ok(self.device(device)?.memory.memory_info()?)
    }

    /// The processes that use the device, as PyTorch's text: the device by NVML's number. Where there is no NVML the
    /// text says so.
    ///
    /// # Errors
    /// When there is no such device, or NVML fails.
    pub fn list_gpu_processes(&self, device: DeviceId) -> Result<String, AllocatorError> {
        Ok(self.device(device)?.memory.list_gpu_processes(device)?)
    }

    /// The statistics as PyTorch's table; abbreviated, without the rows of pools.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn memory_summary(&self, device: DeviceId, abbreviated: bool) -> Result<String, AllocatorError> {
        Ok(summary::memory_summary(&self.statistics(device)?, device.0, abbreviated))
    }

    /// Of the device's memory, at most this share is used; 1 lifts the limit.
    ///
    /// # Errors
    /// When there is no such device, or `fraction` is not from 0 to 1.
    pub fn set_per_process_memory_fraction(
        &self,
        fraction: f64,
        device: DeviceId,
    ) -> Result<(), AllocatorError> {
        let mut device = self.device(device)?;
        if !(0.0..=1.0).contains(&fraction) {
            return Err(AllocatorError::InvalidFraction(fraction));
        }
        device.set_fraction(fraction);
        Ok(())
    }

    /// The share of the device's memory that may be used.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn get_per_process_memory_fraction(&self, device: DeviceId) -> Result<f64, AllocatorError> {
        let device = self.device(device)?;
        Ok(device.limit.map_or(1.0, |limit| limit as f64 / device.total_memory as f64))
    }

    /// Changes settings at run time, by PyTorch's rules: see [`Settings::apply`](crate::Settings::apply).
    ///
    /// # Errors
    /// When the string is wrong. What was read before the error is then in force: see [`Settings::apply`](crate::Settings::apply).
    pub fn set_allocator_settings(&self, text: &str) -> Result<(), AllocatorError> {
        let mut settings = self.settings();
        let applied = settings.apply(text);
        for mut device in self.devices() {
            device.options = *settings.options();
        }
        Ok(applied?)
    }

    /// The settings in force.
    pub fn allocator_settings(&self) -> AllocatorSettings {
        self.settings().report()
    }

    /// PyTorch's name of this allocator.
    pub fn get_allocator_backend(&self) -> &'static str {
        "native"
    }

    /// `observer` is told each time memory runs out, after all that were attached before it. No lock is held
    /// meanwhile, so it may take a snapshot.
    pub fn attach_out_of_memory_observer(
        &self,
        observer: impl Fn(&OutOfMemoryError) + Send + Sync + 'static,
    ) {
        self.observers().push(Arc::new(observer));
    }

    /// Records events from now on, beside those that are kept already; or with `None` no more, and forgets what was
    /// recorded. Blocks keep the stacks they have.
    pub fn record_memory_history(&self, options: Option<&HistoryOptions>) {
        Caller::prepare(options);
        for mut device in self.devices() {
            device.history.set(options);
        }
    }

    /// The events of a device, oldest first.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn history(&self, device: DeviceId) -> Result<Vec<TraceEntry>, AllocatorError> {
        Ok(self.device(device)?.history.entries())
    }

    /// Takes the events of a device out of its history, oldest first.
    ///
    /// # Errors
    /// When there is no such device.
    pub fn take_history(&self, device: DeviceId) -> Result<Vec<TraceEntry>, AllocatorError> {
        Ok(self.device(device)?.history.drain())
    }

    /// The segments of all devices with their blocks, by device and address. Leaves a `snapshot` event in each history.
    pub fn memory_snapshot(&self) -> Vec<SegmentInfo> {
        let mut all = Vec::new();
        for mut device in self.devices() {
            let segments = device.segments();
            let active = segments.iter().map(|segment| segment.active_size).sum();
            let place = (StreamId(0), PoolId(0));
            device.record(Action::Snapshot, 0, active, place, Caller::default());
            all.extend(segments);
        }
        all
    }

    /// Everything, as `torch.cuda.memory._snapshot` says it: the events of each device's history, then its segments,
    /// then the settings.
    pub fn snapshot(&self) -> PytorchSnapshot {
        let state = self.state();
        let mut symbols = Symbolizer::new(&state.names.modules);
        state.into_snapshot(&mut symbols)
    }

    fn state(&self) -> AllocatorState {
        // As in PyTorch, the history is copied before the `snapshot` event is added to it.
        let traces = self.devices().map(|device| device.history.entries()).collect();
        let segments = self.memory_snapshot();
        let settings = self.allocator_settings();
        AllocatorState { segments, traces, settings, names: caller::names() }
    }

    /// Writes [`Self::snapshot`] to a file that pytorch.org/memory_viz and memtrack open, replacing what is there.
    ///
    /// # Errors
    /// When the file cannot be written, or its suffix is none of `.pickle`, `.json` and `.memtrack`.
    pub fn dump_snapshot(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let state = self.state();
        let mut symbols = Symbolizer::new(&state.names.modules);
        state.into_snapshot(&mut symbols).save_as(path, &mut symbols)
    }

    /// Whether memtrack's recorder hears of this allocator's events while it is on; at the beginning it does.
    pub fn report_to_recorder(&self, reports: bool) {
        for mut device in self.devices() {
            device.reports = reports;
        }
    }
}
