//! Copies and fills, complete when the call returns. Device memory is host memory, so all directions share one function.

use std::ffi::c_void;

use crate::call::{entries, get};
use crate::context::Context;
use crate::status::{CuResult, Status};
use crate::work;

/// From this size on, memory is zeroed by the kernel instead of written, so that simulated gigabytes cost nothing.
const MIN_MADVISE_BYTES: usize = 1 << 20;
const PAGE: usize = 4096;
/// `CU_MEMORYTYPE_ARRAY`.
const ARRAY: i32 = 3;

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rectangle {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
}

/// The source or the destination of a 2D copy.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side {
    x: usize,
    y: usize,
    memory: i32,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

entries! {
    fn cuMemcpy as cuMemcpy_ptds(to: u64, from: u64, bytes: usize) { copy(to, from, bytes) }
    fn cuMemcpyHtoD_v2 as cuMemcpyHtoD_v2_ptds(to: u64, from: u64, bytes: usize) { copy(to, from, bytes) }
    fn cuMemcpyDtoH_v2 as cuMemcpyDtoH_v2_ptds(to: u64, from: u64, bytes: usize) { copy(to, from, bytes) }
    fn cuMemcpyDtoD_v2 as cuMemcpyDtoD_v2_ptds(to: u64, from: u64, bytes: usize) { copy(to, from, bytes) }

    fn cuMemcpyAsync as cuMemcpyAsync_ptsz(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        on(stream, &[(to, bytes), (from, bytes)], || copy(to, from, bytes))
    }
    fn cuMemcpyHtoDAsync_v2 as cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        on(stream, &[(to, bytes), (from, bytes)], || copy(to, from, bytes))
    }
    fn cuMemcpyDtoHAsync_v2 as cuMemcpyDtoHAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        on(stream, &[(to, bytes), (from, bytes)], || copy(to, from, bytes))
    }
    fn cuMemcpyDtoDAsync_v2 as cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, bytes: usize, stream: *mut c_void) {
        on(stream, &[(to, bytes), (from, bytes)], || copy(to, from, bytes))
    }

    fn cuMemcpyPeer as cuMemcpyPeer_ptds(
        to: u64, to_context: *mut c_void, from: u64, from_context: *mut c_void, bytes: usize,
    ) {
        Context::of(to_context)?;
        Context::of(from_context)?;
        copy(to, from, bytes)
    }
    fn cuMemcpyPeerAsync as cuMemcpyPeerAsync_ptsz(
        to: u64, to_context: *mut c_void, from: u64, from_context: *mut c_void, bytes: usize, stream: *mut c_void,
    ) {
        Context::of(to_context)?;
        Context::of(from_context)?;
        on(stream, &[(to, bytes), (from, bytes)], || copy(to, from, bytes))
    }

    fn cuMemcpy2D_v2 as cuMemcpy2D_v2_ptds(rectangle: *const c_void) { copy_rectangle(rectangle) }
    fn cuMemcpy2DUnaligned_v2 as cuMemcpy2DUnaligned_v2_ptds(rectangle: *const c_void) { copy_rectangle(rectangle) }
    fn cuMemcpy2DAsync_v2 as cuMemcpy2DAsync_v2_ptsz(rectangle: *const c_void, stream: *mut c_void) {
        on(stream, &[], || copy_rectangle(rectangle))
    }

    fn cuMemsetD8_v2 as cuMemsetD8_v2_ptds(to: u64, value: u8, count: usize) { fill(to, value, count) }
    fn cuMemsetD16_v2 as cuMemsetD16_v2_ptds(to: u64, value: u16, count: usize) { fill(to, value, count) }
    fn cuMemsetD32_v2 as cuMemsetD32_v2_ptds(to: u64, value: u32, count: usize) { fill(to, value, count) }
    fn cuMemsetD8Async as cuMemsetD8Async_ptsz(to: u64, value: u8, count: usize, stream: *mut c_void) {
        on(stream, &[(to, count * size_of_val(&value))], || fill(to, value, count))
    }
    fn cuMemsetD16Async as cuMemsetD16Async_ptsz(to: u64, value: u16, count: usize, stream: *mut c_void) {
        on(stream, &[(to, count * size_of_val(&value))], || fill(to, value, count))
    }
    fn cuMemsetD32Async as cuMemsetD32Async_ptsz(to: u64, value: u32, count: usize, stream: *mut c_void) {
        on(stream, &[(to, count * size_of_val(&value))], || fill(to, value, count))
    }
}

/// Runs `act` as work on a stream that uses the memory ranges `uses`, each an address and a size.
fn on(stream: *mut c_void, uses: &[(u64, usize)], act: impl FnOnce() -> CuResult) -> CuResult {
    let context = Context::of_stream(stream)?;
    act()?;
    for &(address, bytes) in uses.iter().filter(|(_, bytes)| *bytes > 0) {
        work::queued(context, stream, address, bytes);
    }
    Ok(())
}

fn pointer<T>(address: u64) -> *mut T {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

fn copy(to: u64, from: u64, bytes: usize) -> CuResult {
    if bytes == 0 {
        return Ok(());
    }
    if to == 0 || from == 0 {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the caller promises that both ranges are valid, as with the real driver; both are host memory here.
    unsafe { std::ptr::copy(pointer::<u8>(from), pointer(to), bytes) };
    Ok(())
}

fn copy_rectangle(rectangle: *const c_void) -> CuResult {
    let Rectangle { from, to, width, height } = get(rectangle.cast::<Rectangle>())?;
    if from.memory == ARRAY || to.memory == ARRAY {
        return Err(Status::NOT_SUPPORTED);
    }
    (0..height).try_for_each(|row| copy(to.row(row, width), from.row(row, width), width))
}

impl Side {
    /// Returns the address of a row. `CU_MEMORYTYPE_HOST` is 1; a pitch of 0 means rows without gaps.
    fn row(&self, row: usize, width: usize) -> u64 {
        let start = if self.memory == 1 { self.host } else { self.device };
        let pitch = if self.pitch == 0 { width } else { self.pitch };
        start + ((self.y + row) * pitch + self.x) as u64
    }
}

fn fill<T: Copy + Default + PartialEq>(to: u64, value: T, count: usize) -> CuResult {
    if count == 0 {
        return Ok(());
    }
    if to == 0 {
        return Err(Status::INVALID_VALUE);
    }
    let bytes = count * size_of::<T>();
    if value == T::default() && bytes >= MIN_MADVISE_BYTES && crate::machine::machine()?.area_of(to).is_some()
    {
        return zero_pages(to, bytes);
    }
    // SAFETY: the caller promises that the range is valid.
    unsafe { std::slice::from_raw_parts_mut(pointer::<T>(to), count) }.fill(value);
    Ok(())
}

/// Zeroes whole pages by discarding them, and the partial pages at the ends by writing.
fn zero_pages(to: u64, bytes: usize) -> CuResult {
    let start = (to as usize).next_multiple_of(PAGE);
    let end = (to as usize + bytes) / PAGE * PAGE;
    // SAFETY: the caller promises that the range is valid; its pages are private memory of the mock, which reads as zero
    // afterwards.
    unsafe {
        std::ptr::write_bytes(pointer::<u8>(to), 0, start - to as usize);
        libc::madvise(pointer(start as u64), end - start, libc::MADV_DONTNEED);
        std::ptr::write_bytes(pointer::<u8>(end as u64), 0, to as usize + bytes - end);
    }
    Ok(())
}
