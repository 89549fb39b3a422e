//! Arrays. Their handle is the address of their memory; copies to and from them are not supported.

use std::ffi::c_void;

use crate::call::{entries, get, put};
use crate::context::Context;
use crate::counters::Kind;
use crate::machine::machine;
use crate::status::{CuResult, Status};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor2d {
    width: usize,
    height: usize,
    format: i32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Descriptor3d {
    width: usize,
    height: usize,
    depth: usize,
    format: i32,
    channels: u32,
    flags: u32,
}

entries! {
    fn cuArrayCreate_v2(array: *mut u64, descriptor: *const c_void) {
        let Descriptor2d { width, height, format, channels } = get(descriptor.cast::<Descriptor2d>())?;
        let bytes = Descriptor3d { width, height, depth: 0, format, channels, flags: 0 }.bytes()?;
        create(array, bytes)
    }

    fn cuArray3DCreate_v2(array: *mut u64, descriptor: *const c_void) {
        create(array, get(descriptor.cast::<Descriptor3d>())?.bytes()?)
    }

    fn cuArrayDestroy(array: u64) {
        destroy(array)
    }

    fn cuMipmappedArrayCreate(array: *mut u64, descriptor: *const c_void, levels: u32) {
        let mut level = get(descriptor.cast::<Descriptor3d>())?;
        let mut bytes = level.bytes()?;
        for _ in 1..levels {
            (level.width, level.height, level.depth) = (half(level.width), half(level.height), half(level.depth));
            bytes += level.bytes()?;
        }
        create(array, bytes)
    }

    fn cuMipmappedArrayDestroy(array: u64) {
        destroy(array)
    }
}

impl Descriptor3d {
    /// Returns the size of all elements; a height of 0 means a 1D array, and a depth of 0 a 2D array.
    fn bytes(&self) -> CuResult<u64> {
        let component = match self.format {
            1 | 8 => 1,
            2 | 9 | 16 => 2,
            3 | 10 | 32 => 4,
            _ => return Err(Status::INVALID_VALUE),
        };
        let elements = (self.width as u64)
            .checked_mul(self.height.max(1) as u64)
            .and_then(|elements| elements.checked_mul(self.depth.max(1) as u64));
        elements
            .and_then(|elements| elements.checked_mul(u64::from(self.channels) * component))
            .ok_or(Status::INVALID_VALUE)
    }
}

/// Returns the length at the next mipmap level: 0 stays 0, and 1 stays 1.
fn half(length: usize) -> usize {
    length.min(1).max(length / 2)
}

fn create(array: *mut u64, bytes: u64) -> CuResult {
    put(array, 0)?;
    put(array, machine()?.allocate(Context::current()?, Kind::Array, bytes)?)
}

fn destroy(array: u64) -> CuResult {
    machine()?.free(array, &[Kind::Array]).map_err(|_| Status::INVALID_HANDLE)
}
