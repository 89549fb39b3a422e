//! Typed device memory from the caching allocator, for code that uses cudarc. A buffer can be the source or
//! destination of a copy and an argument to a kernel. Dropping a buffer returns its memory to the cache.
//!
//! **Streams are kept alive** for as long as memory belongs to them. Cached memory still belongs to its stream after the last
//! buffer is dropped. The allocator later uses the stream's handle to wait for the stream before it unmaps its pages,
//! and a new stream with the same handle would receive the memory while the destroyed stream's work still uses it. The
//! allocator therefore holds a reference to the stream of each buffer. When a buffer is created on a new stream, idle
//! streams that have no other references are released along with their memory.
//!
//! **What if a client passes a handle instead of the stream object?** Then the client must keep the stream alive. If
//! the driver detects that the stream was destroyed, the allocator waits for the whole device.
#![allow(unsafe_code)]

use crate::api::caching::CachingAllocator;
use crate::error::AllocatorError;
use crate::memory::cuda_memory::CudaMemory;
use crate::state::blocks::{PoolId, StreamUses};
use crate::state::device::Device;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, LaunchArgs, PushKernelArg, SyncOnDrop,
    ValidAsZeroBits,
};
use memtrack_model::event::{DeviceId, StreamId};
use memtrack_model::snapshot::pytorch::PoolKind;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The reason a buffer could not be created or copied.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum BufferError {
    /// The allocation failed.
    Allocator(AllocatorError),
    /// The driver failed to fill or copy the buffer.
    Driver(cudarc::driver::DriverError),
}

impl fmt::Display for BufferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocator(error) => error.fmt(f),
            // cudarc's own message would query the driver, and would panic if the driver is unloaded.
            Self::Driver(error) => write!(f, "the CUDA driver failed: {:?}", error.0),
        }
    }
}

impl std::error::Error for BufferError {}

impl From<AllocatorError> for BufferError {
    fn from(error: AllocatorError) -> Self {
        Self::Allocator(error)
    }
}

impl From<cudarc::driver::DriverError> for BufferError {
    fn from(error: cudarc::driver::DriverError) -> Self {
        Self::Driver(error)
    }
}

/// `length` values of `T` on a device, for work on one stream.
///
/// Work on the buffer's stream needs no synchronisation. It runs in order, and after the buffer is dropped, its
/// memory is reused only for work on that stream, which is kept alive for as long as the allocator has memory
/// for it. A copy queued on another stream first waits for the buffer's stream, and the call returns when the
/// copy is done. Kernels launched on another stream must be ordered by the caller; [`Self::record_stream`] then
/// keeps the memory until that stream is done with it.
pub struct DeviceBuffer<T> {
    allocator: CachingAllocator<CudaMemory>,
    stream: Arc<CudaStream>,
    address: CUdeviceptr,
    length: usize,
    values: PhantomData<T>,
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} values at {:#x})", self.length, self.address)
    }
}

impl<T: DeviceRepr> DeviceBuffer<T> {
    /// Allocates uninitialised memory for `length` values.
    ///
    /// # Safety
    /// The memory must be written before it is read, unless every bit pattern is a valid `T`.
    ///
    /// # Errors
    /// Fails when there is not enough memory.
    pub unsafe fn uninit(
        allocator: &CachingAllocator<CudaMemory>,
        stream: &Arc<CudaStream>,
        length: usize,
    ) -> Result<Self, AllocatorError> {
        let bytes = (length as u64).checked_mul(size_of::<T>() as u64).ok_or(AllocatorError::TooLarge)?;
        let device = DeviceId(stream.context().ordinal() as u16);
        allocator.retain_stream(device, stream)?;
        let address = allocator.allocate(bytes, device, StreamId(stream.cu_stream() as u64))?.address;
        let (allocator, stream) = (allocator.clone(), Arc::clone(stream));
        Ok(Self { allocator, stream, address, length, values: PhantomData })
    }

    /// Allocates a buffer of `length` zeros.
    ///
    /// # Errors
    /// Fails when there is not enough memory, or the driver fails.
    pub fn zeros(
        allocator: &CachingAllocator<CudaMemory>,
        stream: &Arc<CudaStream>,
        length: usize,
    ) -> Result<Self, BufferError>
    where
        T: ValidAsZeroBits,
    {
        // SAFETY: the memory is written below.
        let mut buffer = unsafe { Self::uninit(allocator, stream, length)? };
        if length > 0 {
            stream.memset_zeros(&mut buffer)?;
        }
        Ok(buffer)
    }

    /// Creates a buffer that contains a copy of `values`.
    ///
    /// # Errors
    /// Fails when there is not enough memory, or the driver fails.
    pub fn from_host(
        allocator: &CachingAllocator<CudaMemory>,
        stream: &Arc<CudaStream>,
        values: &[T],
    ) -> Result<Self, BufferError> {
        // SAFETY: the memory is written below.
        let mut buffer = unsafe { Self::uninit(allocator, stream, values.len())? };
        if !values.is_empty() {
            stream.memcpy_htod(values, &mut buffer)?;
        }
        Ok(buffer)
    }

    /// Copies the buffer to host memory and waits until the copy is done.
    ///
    /// # Errors
    /// Fails when the driver fails.
    pub fn to_host(&self) -> Result<Vec<T>, BufferError>
    where
        T: Clone + Default,
    {
        let mut values = vec![T::default(); self.length];
        if self.length > 0 {
            self.stream.memcpy_dtoh(self, &mut values)?;
            self.stream.synchronize()?;
        }
        Ok(values)
    }
}

impl<T> DeviceBuffer<T> {
    /// Records that `stream` also uses the buffer. After the buffer is dropped, its memory is not reused until
    /// the work queued on `stream` is done.
    pub fn record_stream(&self, stream: &Arc<CudaStream>) {
        // This cannot fail, because the device that allocated the buffer exists.
        let _ = self.allocator.retain_stream(DeviceId(self.stream.context().ordinal() as u16), stream);
        self.allocator.record_stream(self.address, StreamId(stream.cu_stream() as u64));
    }

    /// Returns the buffer's device address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the buffer's address, after making `stream` wait for the work queued on the buffer's stream. The
    /// use on `stream` ends when the returned guard is dropped.
    fn ordered_pointer<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        if stream.cu_stream() == self.stream.cu_stream() {
            return (self.address, SyncOnDrop::Sync(None));
        }
        // cudarc returns this error from its next call, as it does for its own slices.
        stream.context().record_err(stream.join(&self.stream));
        (self.address, SyncOnDrop::sync_stream(stream))
    }
}

impl<T> Drop for DeviceBuffer<T> {
    fn drop(&mut self) {
        // The block belongs to this buffer, so this fails only if the driver fails, and that error cannot be reported.
        let _ = self.allocator.free(self.address);
    }
}

impl<T> DeviceSlice<T> for DeviceBuffer<T> {
    fn len(&self) -> usize {
        self.length
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }
}

impl<T> DevicePtr<T> for DeviceBuffer<T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.ordered_pointer(stream)
    }
}

impl<T> DevicePtrMut<T> for DeviceBuffer<T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.ordered_pointer(stream)
    }
}

// SAFETY: the pushed pointer points to the buffer's address, which lives as long as the arguments do.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b DeviceBuffer<T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, buffer: &'b DeviceBuffer<T>) -> &mut Self {
        self.arg(&buffer.address)
    }
}

// SAFETY: the pushed pointer points to the buffer's address, which lives as long as the arguments do.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut DeviceBuffer<T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, buffer: &'b mut DeviceBuffer<T>) -> &mut Self {
        self.arg(&buffer.address)
    }
}

impl CachingAllocator<CudaMemory> {
    /// Retains a stream for as long as memory on the device belongs to it or is used on it.
    ///
    /// # Errors
    /// Fails when there is no such device.
    pub(crate) fn retain_stream(
        &self,
        device: DeviceId,
        stream: &Arc<CudaStream>,
    ) -> Result<(), AllocatorError> {
        let mut device = self.lock_device(device)?;
        if !device.memory.retains_stream(stream) {
            device.release_idle_streams();
            device.memory.retain_stream(stream);
        }
        Ok(())
    }
}

impl Device<CudaMemory> {
    /// Releases idle streams that have no other references, along with their cached memory. A stream whose memory
    /// cannot be released stays retained.
    fn release_idle_streams(&mut self) {
        if self.private.is_capturing() {
            return;
        }
        let context = self.history.capture_free();
        let unused = self.memory.unused_streams();
        if unused.is_empty() || self.process_events(context).is_err() {
            return;
        }
        for stream in unused {
            if !self.memory.is_stream_done(stream) {
                continue;
            }
            for kind in [PoolKind::Large, PoolKind::Small] {
                // If a segment cannot be released, its stream stays retained.
                let _ = self.release_blocks_of(PoolId::of(0, kind), Some(stream), context);
            }
            if !self.has_memory_of(stream) {
                self.memory.release_stream(stream);
            }
        }
    }

    /// Returns whether any memory belongs to a stream or is used on it.
    fn has_memory_of(&self, stream: StreamId) -> bool {
        self.blocks.iter().any(|(_, block)| {
            let is_used = |uses: &StreamUses| uses.streams().any(|other| other == stream);
            block.stream == stream || block.uses.as_deref().is_some_and(is_used)
        })
    }
}
