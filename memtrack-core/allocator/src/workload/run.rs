//! Runs a workload. Each operation is one call to the allocator, and its result contains the events that the devices
//! record during the call.

use super::operation::Operation;
use super::read::Workload;
use super::result::{EventLine, ResultLine, SegmentLine, SegmentNumbers, Summary};
use crate::{
    AllocatorError, Backend, CachingAllocator, Context, DeviceStats, HistoryOptions, MemPool, MemPoolOptions,
    PoolRoute, SegmentInfo, SimulatedMemory,
};
use memtrack_model::event::{Action, DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::PytorchSnapshot;
use serde_json::{Number, Value};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Runs a workload and writes the results, one JSON object per line. Errors in operations are part of the results.
///
/// # Errors
/// Fails when `output` cannot be written.
pub fn simulate(workload: &Workload, output: &mut impl Write) -> io::Result<()> {
    let mut run = Run::new(workload).map_err(io::Error::other)?;
    run.write(output, ResultLine { op: "config", ..ResultLine::default() })?;
    for (index, operation) in workload.operations.iter().enumerate() {
        let mut line =
            ResultLine { i: index + 1, op: operation.name(), id: operation.id(), ..ResultLine::default() };
        if let Err(error) = run.run_operation(operation, &mut line) {
            match &error {
                _ if error.is_out_of_memory() => {
                    line.oom = true;
                    line.message = Some(error.to_string());
                }
                // PyTorch's messages do not contain the key.
                AllocatorError::Settings(settings) => {
                    line.error = Some(format!("{}: {}", error.kind(), settings.text()));
                }
                _ => line.error = Some(format!("{}: {error}", error.kind())),
            }
        }
        run.write(output, line)?;
    }
    let end = run.final_line(workload.operations.len() + 1).map_err(io::Error::other)?;
    run.write(output, end)
}

/// Runs a workload and returns the final snapshot and statistics of its devices, taken before its pools are dropped.
///
/// # Errors
/// Fails when the first line requests devices that cannot be simulated.
pub fn record(workload: &Workload) -> Result<(PytorchSnapshot, Vec<DeviceStats>), AllocatorError> {
    let mut run = Run::new(workload)?;
    for operation in &workload.operations {
        // Operations may fail, which is part of the recorded behaviour.
        let _ = run.run_operation(operation, &mut ResultLine::default());
    }
    let stats = run.devices().map(|device| run.allocator.statistics(device)).collect::<Result<_, _>>()?;
    Ok((run.allocator.snapshot(), stats))
}

/// The state of a running workload.
struct Run {
    allocator: CachingAllocator<SimulatedMemory>,
    memories: Vec<SimulatedMemory>,
    segment_numbers: Vec<SegmentNumbers>,
    /// The number of events so far, by device.
    recorded: Vec<u64>,
    /// The addresses of live blocks, by id. Blocks of 0 bytes have the address 0.
    live: HashMap<String, u64>,
    pools: HashMap<String, MemPool<SimulatedMemory>>,
    /// The routes with their pools and devices, oldest first.
    routes: Vec<(String, u16, PoolRoute<SimulatedMemory>)>,
}

impl Run {
    fn new(workload: &Workload) -> Result<Self, AllocatorError> {
        let config = &workload.config;
        let memories: Vec<_> =
            (0..config.devices).map(|device| SimulatedMemory::new(device, config.total_bytes)).collect();
        let allocator = CachingAllocator::new(memories.iter().cloned(), &workload.settings)?;
        allocator.report_to_recorder(false);
        for device in 0..config.devices {
            if let Some(fraction) = config.fraction {
                allocator.set_per_process_memory_fraction(fraction, DeviceId(device))?;
            }
        }
        let history = HistoryOptions::new().context(Context::None);
        allocator.record_memory_history(Some(&history));
        Ok(Self {
            segment_numbers: memories.iter().map(|_| SegmentNumbers::default()).collect(),
            recorded: vec![0; memories.len()],
            allocator,
            memories,
            live: HashMap::new(),
            pools: HashMap::new(),
            routes: Vec::new(),
        })
    }

    fn devices(&self) -> impl Iterator<Item = DeviceId> + use<> {
        (0..self.memories.len() as u16).map(DeviceId)
    }

    fn write(&mut self, output: &mut impl Write, mut line: ResultLine<'_>) -> io::Result<()> {
        line.events = self.take_events().map_err(io::Error::other)?;
        // Segments that an operation creates become known only through its events, so look them up after `take_events`.
        if let (Some(address), Some(device)) = (line.seg, line.off) {
            let (segment, offset) = self.segment_numbers[device as usize].find(address);
            (line.seg, line.off) = (Some(segment), Some(offset));
        }
        serde_json::to_writer(&mut *output, &line)?;
        output.write_all(b"\n")
    }

    /// Returns the events that the devices have recorded since the last call.
    fn take_events(&mut self) -> Result<Vec<EventLine>, AllocatorError> {
        let mut lines = Vec::new();
        for device in self.devices() {
            let ordinal = usize::from(device.0);
            let (segment_numbers, memory) = (&mut self.segment_numbers[ordinal], &self.memories[ordinal]);
            for entry in self.allocator.take_history(device)? {
                self.recorded[ordinal] += 1;
                match entry.action {
                    Action::SegmentAlloc => segment_numbers.add(entry.address),
                    Action::SegmentMap => segment_numbers.add_range(entry.address, memory),
                    _ => {}
                }
                let (segment, offset) = match entry.action {
                    Action::Snapshot => (None, None),
                    Action::Oom => (None, Some(entry.address)),
                    _ => {
                        let (segment, offset) = segment_numbers.find(entry.address);
                        (Some(segment), Some(offset))
                    }
                };
                let action = entry.action.name();
                lines.push(EventLine(
                    device.0,
                    action,
                    segment,
                    offset,
                    entry.size,
                    entry.stream.0,
                    entry.pool,
                ));
            }
        }
        Ok(lines)
    }

    fn run_operation<'a>(
        &mut self,
        operation: &'a Operation,
        line: &mut ResultLine<'a>,
    ) -> Result<(), AllocatorError> {
        match operation {
            Operation::Alloc { id, size, stream, device } => {
                self.run_alloc(id, size, StreamId(*stream), DeviceId(*device), line)?;
            }
            Operation::Free { id } => match self.live.remove(&id.to_string()) {
                Some(address) => self.allocator.free(address)?,
                None => line.noop = true,
            },
            Operation::RecordStream { id, stream } => match self.live.get(&id.to_string()) {
                Some(&address) => self.allocator.record_stream(address, StreamId(*stream)),
                None => line.noop = true,
            },
            Operation::EventsReady { ready } => {
                self.memories.iter().for_each(|memory| memory.set_events_ready(*ready));
            }
            Operation::EmptyCache => self.allocator.empty_cache()?,
            Operation::ResetPeak => {
                self.devices().try_for_each(|device| self.allocator.reset_peak_memory_stats(device))?;
            }
            Operation::ResetAccumulated => {
                self.devices()
                    .try_for_each(|device| self.allocator.reset_accumulated_memory_stats(device))?;
            }
            Operation::SetFraction { device, fraction } => self.set_fraction(fraction, *device, line)?,
            Operation::Settings { value } => self.allocator.set_allocator_settings(value)?,
            Operation::Stats => line.stats = Some(self.collect_stats()?),
            Operation::Snapshot { file } => {
                line.file = Some(file.as_deref());
                self.add_snapshot(line);
            }
            Operation::BeginPool { pool, device, use_on_oom, no_split } => {
                let options = MemPoolOptions::new().use_on_oom(*use_on_oom).no_split(*no_split);
                self.begin_pool(pool, DeviceId(*device), options, line)?;
            }
            Operation::EndPool { pool, device } => {
                let name = pool.to_string();
                let of = |(routed, on, _): &(String, u16, _)| *routed == name && on == device;
                match self.routes.iter().rposition(of) {
                    Some(place) => drop(self.routes.remove(place)),
                    None => line.error = Some(format!("KeyError: no request goes to pool {pool}")),
                }
            }
            Operation::DeletePool { pool } => {
                if self.pools.remove(&pool.to_string()).is_none() {
                    line.error = Some(format!("KeyError: there is no pool {pool}"));
                }
            }
        }
        Ok(())
    }

    fn run_alloc<'a>(
        &mut self,
        id: &Value,
        size: &Number,
        stream: StreamId,
        device: DeviceId,
        line: &mut ResultLine<'a>,
    ) -> Result<(), AllocatorError> {
        let Some(size) = size.as_u64().filter(|&size| i64::try_from(size).is_ok()) else {
            // PyTorch's error for a tensor of such a size.
            line.error = Some(if size.as_i64().is_some() {
                format!("RuntimeError: Trying to create tensor with negative dimension {size}: [{size}]")
            } else {
                "RuntimeError: Overflow when unpacking long long".into()
            });
            return Ok(());
        };
        let allocation = self.allocator.allocate(size, device, stream)?;
        if allocation.address == 0 {
            line.null = true;
        } else {
            // `write` converts the address and the device to a segment and an offset.
            line.seg = Some(allocation.address);
            line.off = Some(device.0.into());
            line.size = Some(allocation.size);
        }
        self.live.insert(id.to_string(), allocation.address);
        Ok(())
    }

    fn set_fraction(
        &mut self,
        fraction: &Number,
        device: u16,
        line: &mut ResultLine<'_>,
    ) -> Result<(), AllocatorError> {
        match fraction.as_f64().filter(|_| fraction.is_f64()) {
            Some(fraction) => self.allocator.set_per_process_memory_fraction(fraction, DeviceId(device)),
            None => {
                let text = "TypeError: Invalid type for fraction argument, must be `float`";
                line.error = Some(text.into());
                Ok(())
            }
        }
    }

    fn begin_pool(
        &mut self,
        pool: &Value,
        device: DeviceId,
        options: MemPoolOptions,
        line: &mut ResultLine<'_>,
    ) -> Result<(), AllocatorError> {
        let name = pool.to_string();
        if !self.pools.contains_key(&name) {
            self.pools.insert(name.clone(), self.allocator.mem_pool(device, options)?);
        }
        if let Some(pool) = self.pools.get(&name) {
            line.pool_id = Some(pool.id());
            self.routes.push((name, device.0, pool.use_on(device)?));
        }
        Ok(())
    }

    /// Returns the statistics of every device.
    fn collect_stats(&self) -> Result<Vec<BTreeMap<String, i64>>, AllocatorError> {
        self.devices().map(|device| self.allocator.memory_stats(device)).collect()
    }

    /// Adds the segments and the settings to a line.
    fn add_snapshot(&self, line: &mut ResultLine<'_>) {
        let mut segments: Vec<SegmentLine> =
            self.allocator.memory_snapshot().iter().map(|segment| self.segment_to_line(segment)).collect();
        segments.sort_by_key(|segment| (segment.device, segment.seg, segment.off));
        line.segments = Some(segments);
        line.allocator_settings = Some(self.allocator.allocator_settings());
    }

    fn segment_to_line(&self, segment: &SegmentInfo) -> SegmentLine {
        let segment_numbers = &self.segment_numbers[usize::from(segment.device.0)];
        let (ordinal, offset) = segment_numbers.find(segment.address);
        let blocks = segment.blocks.iter();
        SegmentLine {
            device: segment.device.0,
            seg: ordinal,
            off: offset,
            total_size: segment.total_size,
            allocated_size: segment.allocated_size,
            active_size: segment.active_size,
            requested_size: segment.requested_size,
            stream: segment.stream.0,
            segment_type: segment.segment_type(),
            segment_pool_id: segment.pool,
            is_expandable: segment.is_expandable,
            blocks: blocks
                .map(|block| {
                    let at = offset + (block.address - segment.address);
                    (at, block.size, block.requested_size, block.state.name())
                })
                .collect(),
        }
    }

    /// Returns the last line of a result, which describes the final state.
    fn final_line(&mut self, i: usize) -> Result<ResultLine<'static>, AllocatorError> {
        let mut line = ResultLine { i, op: "end", ..ResultLine::default() };
        line.trace_lengths = Some(self.recorded.clone());
        line.stats = Some(self.collect_stats()?);
        let infos = self.devices().map(|device| self.allocator.mem_get_info(device));
        let infos = infos.map(|info| info.map(|info| (info.free_bytes, info.total_bytes)));
        line.mem_get_info = Some(infos.collect::<Result<_, _>>()?);
        let summary = |device, abbreviated| self.allocator.memory_summary(device, abbreviated);
        let summaries = self
            .devices()
            .map(|device| Ok(Summary { full: summary(device, false)?, abbreviated: summary(device, true)? }));
        line.summary = Some(summaries.collect::<Result<_, AllocatorError>>()?);
        self.allocator.record_memory_history(None);
        self.add_snapshot(&mut line);
        Ok(line)
    }
}
