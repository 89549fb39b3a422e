//! Rejection of requests before a segment is requested from the device (`throw_on_cudamalloc_oom`).

use crate::api::caching::{CachingAllocator, lock};
use crate::api::error::AllocatorError;
use crate::memory::device_memory::DeviceMemory;
use crate::state::device::Device;
use crate::steps::malloc::Request;
use memtrack_model::event::{DeviceId, StreamId};
use std::sync::Arc;

/// A request that was rejected because a new segment for it would have exceeded the share of the device's memory
/// set by `per_process_memory_fraction`. As in PyTorch, no event is recorded for a rejection, either in
/// histories or by memtrack's recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OomRejection {
    /// The device.
    pub device: DeviceId,
    /// The stream that the request was for.
    pub stream: StreamId,
    /// The number of bytes requested.
    pub requested_bytes: u64,
    /// The number of bytes that the allocator had reserved from the device.
    pub reserved_bytes: u64,
    /// The device's total memory in bytes.
    pub device_total_bytes: u64,
}

/// A callback for rejected requests.
pub(crate) type RejectionObserver = Arc<dyn Fn(&OomRejection) + Send + Sync>;

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
}

impl<M: DeviceMemory> CachingAllocator<M> {
    /// Attaches an observer that is called each time `throw_on_cudamalloc_oom` causes a request to be rejected.
    /// No lock is held during the call.
    pub fn attach_oom_rejection_observer(&self, observer: impl Fn(&OomRejection) + Send + Sync + 'static) {
        lock(&self.shared.rejection_observers).push(Arc::new(observer));
    }

    #[cold]
    pub(crate) fn report_rejection(&self, rejection: &OomRejection) {
        let observers = lock(&self.shared.rejection_observers).clone();
        for observer in observers {
            observer(rejection);
        }
    }
}
