//! The driver's calls about streams and pools, in the current context.
#![allow(unsafe_code)]

use crate::memory::cuda_context::{check, failed, is_no_stream};
use crate::memory::device_memory::DeviceError;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUmemPool_attribute as Attribute};
use memtrack_model::event::StreamId;

/// Returns the driver's handle of a stream.
pub(super) fn handle(stream: StreamId) -> sys::CUstream {
    stream.0 as sys::CUstream
}

/// Orders later work on `later` after the work queued on `earlier`.
pub(super) fn wait_on(later: StreamId, earlier: StreamId) -> Result<(), DeviceError> {
    let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
    let event = result::event::create(flags).map_err(|error| failed("cuEventCreate", error.0))?;
    // SAFETY: the event is fresh, the streams are alive by the client's promise; a destroyed event is kept by the driver
    // for as long as it is waited for.
    unsafe {
        let recorded = sys::cuEventRecord(event, handle(earlier));
        let recorded = if is_no_stream(recorded) {
            // Work queued on a stream that was destroyed continues: it is waited for, and the event is
            // useless.
            check("cuCtxSynchronize", sys::cuCtxSynchronize())
        } else {
            check("cuEventRecord", recorded)
        };
        let waits = recorded
            .and_then(|()| check("cuStreamWaitEvent", sys::cuStreamWaitEvent(handle(later), event, 0)));
        check("cuEventDestroy", sys::cuEventDestroy_v2(event)).and(waits)
    }
}

pub(super) fn get(pool: sys::CUmemoryPool, attribute: Attribute) -> Result<i64, DeviceError> {
    let mut bytes = 0u64;
    // SAFETY: the pool is a device's, and the requested attributes are 64-bit numbers.
    let done = unsafe { result::mem_pool::get_attribute(pool, attribute, (&raw mut bytes).cast()) };
    done.map(|()| bytes as i64).map_err(|error| failed("cuMemPoolGetAttribute", error.0))
}

pub(super) fn set(pool: sys::CUmemoryPool, attribute: Attribute, value: u64) -> Result<(), DeviceError> {
    let mut value = value;
    // SAFETY: the pool is a device's; an attribute is 32 or 64 bits, and the low half of these values comes first.
    let done = unsafe { result::mem_pool::set_attribute(pool, attribute, (&raw mut value).cast()) };
    done.map_err(|error| failed("cuMemPoolSetAttribute", error.0))
}
