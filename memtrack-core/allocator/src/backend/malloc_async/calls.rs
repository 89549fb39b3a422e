//! Driver calls for streams and pools, made in the current context.
#![allow(unsafe_code)]

use crate::memory::cuda_context::{call_error, check, is_invalid_stream};
use crate::memory::device_memory::DeviceError;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUmemPool_attribute as Attribute};
use memtrack_model::event::StreamId;

/// Returns the driver's handle for a stream.
pub(super) fn stream_handle(stream: StreamId) -> sys::CUstream {
    stream.0 as sys::CUstream
}

/// Makes future work on `later` wait for the work queued on `earlier`.
pub(super) fn wait_on(later: StreamId, earlier: StreamId) -> Result<(), DeviceError> {
    let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
    let event = result::event::create(flags).map_err(|error| call_error("cuEventCreate", error.0))?;
    // SAFETY: the event was created above, and the client guarantees that the streams are alive; the driver keeps a
    // destroyed event for as long as a stream waits for it.
    unsafe {
        let recorded = sys::cuEventRecord(event, stream_handle(earlier));
        let recorded = if is_invalid_stream(recorded) {
            // Work queued on a destroyed stream continues, but the event cannot be recorded there, so wait for the
            // whole device.
            check("cuCtxSynchronize", sys::cuCtxSynchronize())
        } else {
            check("cuEventRecord", recorded)
        };
        let waits = recorded.and_then(|()| {
            check("cuStreamWaitEvent", sys::cuStreamWaitEvent(stream_handle(later), event, 0))
        });
        check("cuEventDestroy", sys::cuEventDestroy_v2(event)).and(waits)
    }
}

pub(super) fn get_attribute(pool: sys::CUmemoryPool, attribute: Attribute) -> Result<i64, DeviceError> {
    let mut bytes = 0u64;
    // SAFETY: the pool is a device's default pool, and the requested attributes are 64-bit numbers.
    let done = unsafe { result::mem_pool::get_attribute(pool, attribute, (&raw mut bytes).cast()) };
    done.map(|()| bytes as i64).map_err(|error| call_error("cuMemPoolGetAttribute", error.0))
}

pub(super) fn set_attribute(
    pool: sys::CUmemoryPool,
    attribute: Attribute,
    value: u64,
) -> Result<(), DeviceError> {
    let mut value = value;
    // SAFETY: the pool is a device's default pool; an attribute has 32 or 64 bits, and the low half of the value comes
    // first.
    let done = unsafe { result::mem_pool::set_attribute(pool, attribute, (&raw mut value).cast()) };
    done.map_err(|error| call_error("cuMemPoolSetAttribute", error.0))
}
