//! Failed requests: out of memory, with PyTorch's message, or rejected before a segment is requested from the device
//! (`throw_on_cudamalloc_oom`).

use crate::error::{AllocatorError, OomRejection, OutOfMemoryError};
use crate::memory::DeviceMemory;
use crate::settings::sizes::format_size;
use crate::state::blocks::PoolId;
use crate::state::device::Device;
use crate::steps::malloc::Request;
use memtrack_model::event::Action;
use memtrack_model::snapshot::pytorch::PoolKind;
use memtrack_model::{DeviceProcess, OutOfMemory};

const ADVICE: &str = " If reserved but unallocated memory is large try setting \
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  \
    (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)";

const EXPANDABLE_ADVICE: &str = " expandable_segments is enabled. If instead the process is running out of virtual \
    address space (VSZ), expandable segments may be over-reserving VA (each segment reserves ~9/8 of device memory, \
    times the number of streams); reduce it via PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve / \
    expandable_segments_reserve_by_class.";

impl<M: DeviceMemory> Device<M> {
    /// Rejects a request if a segment for it would exceed `per_process_memory_fraction`. The limit set by
    /// `set_per_process_memory_fraction` is checked when the segment is allocated.
    pub(crate) fn reject_preemptively(&mut self, request: &Request) -> Result<(), AllocatorError> {
        if !self.options.throw_on_cudamalloc_oom {
            return Ok(());
        }
        // Truncate this limit, as PyTorch does, although PyTorch rounds the limit set by
        // `set_per_process_memory_fraction`.
        let allowed = (self.options.per_process_memory_fraction * self.total_memory as f64) as u64;
        if self.reserved.saturating_add(request.segment) <= allowed {
            return Ok(());
        }
        self.stats.num_oom_rejections += 1;
        Err(AllocatorError::OomRejection(OomRejection {
            device: self.id,
            stream: request.stream,
            requested_bytes: request.requested,
            reserved_bytes: self.reserved,
            device_total_bytes: self.total_memory,
        }))
    }

    /// Records the failure of a request and returns the error.
    #[cold]
    pub(crate) fn record_out_of_memory(&mut self, request: &Request) -> AllocatorError {
        let info = match self.memory.memory_info() {
            Ok(info) => info,
            Err(error) => return error.into(),
        };
        let place = (request.stream, request.pool);
        self.record(Action::Oom, info.free_bytes, request.size, place, request.context);
        self.stats.num_ooms += 1;
        AllocatorError::OutOfMemory(Box::new(OutOfMemoryError {
            facts: OutOfMemory::new(
                self.id,
                request.stream,
                request.requested,
                info.free_bytes,
                info.total_bytes,
            ),
            segment_bytes: request.segment,
            limit_bytes: self.limit,
            message: self.format_message(request, info.free_bytes, info.total_bytes),
        }))
    }

    fn format_message(&self, request: &Request, free: u64, total: u64) -> String {
        let allocated = self.stats.allocated_bytes.all.current as u64;
        let reserved = self.stats.reserved_bytes.all.current as u64;
        let private = self.private_free_bytes();
        let with_private = match private {
            0 => String::new(),
            _ => format!("with {} allocated in private pools (e.g., CUDA Graphs), ", format_size(private)),
        };
        let allowed = self.limit.map_or(String::new(), |limit| format!("{} allowed; ", format_size(limit)));
        format!(
            "CUDA out of memory. Tried to allocate {}. GPU {} has a total capacity of {} of which {} is free. {}{}Of the \
             allocated memory {} is allocated by PyTorch, {}and {} is reserved by PyTorch but unallocated.{}",
            format_size(request.segment),
            self.id.0,
            format_size(total),
            format_size(free),
            self.format_processes(),
            allowed,
            format_size(allocated + private),
            with_private,
            format_size(reserved.saturating_sub(allocated + private)),
            self.format_advice(request),
        )
    }

    /// Returns the number of bytes in free blocks of private pools.
    fn private_free_bytes(&self) -> u64 {
        let kinds = [PoolKind::Small, PoolKind::Large];
        let pools = self.private.pairs().flat_map(|pair| kinds.map(|kind| PoolId::of(pair, kind)));
        pools.map(|pool| self.pool(pool).free_bytes(&self.blocks)).sum()
    }

    fn format_processes(&self) -> String {
        let sentence = |process: DeviceProcess| {
            let used = format_size(process.used_bytes?);
            Some(if process.pid == std::process::id() {
                format!("Including non-PyTorch memory, this process has {used} memory in use. ")
            } else {
                format!("Process {} has {used} memory in use. ", process.pid)
            })
        };
        self.memory.processes().into_iter().filter_map(sentence).collect()
    }

    fn format_advice(&self, request: &Request) -> String {
        if !self.options.expandable_segments {
            return ADVICE.to_owned();
        }
        // Raising the reserve does not help if the request exceeds the device's memory.
        let fits = request.segment <= self.total_memory;
        match self.options.reserve.max_request_bytes(self.total_memory) {
            Some(limit) if fits && request.segment > limit => format!(
                " This allocation exceeds the expandable-segment reserve of {} for this stream, and a single allocation \
                 cannot span expandable segments. Raise PYTORCH_CUDA_ALLOC_CONF expandable_segments_reserve or \
                 expandable_segments_reserve_by_class (or unset it) so that a segment is at least {}.",
                format_size(limit),
                format_size(request.segment),
            ),
            _ => EXPANDABLE_ADVICE.to_owned(),
        }
    }
}
