//! Arrays. Their handle is the address of their memory; copies to and from them are not supported.

use std::ffi::c_void;

use crate::books::Kind;
use crate::call::{entries, get, put};
use crate::context::Context;
use crate::machine::machine;
use crate::status::{Answer, Status};

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Flat {
    width: usize,
    height: usize,
    format: i32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Solid {
    width: usize,
    height: usize,
    depth: usize,
    format: i32,
    channels: u32,
    flags: u32,
}

entries! {
    fn cuArrayCreate_v2(array: *mut u64, descriptor: *const c_void) {
        let Flat { width, height, format, channels } = get(descriptor.cast::<Flat>())?;
        let bytes = Solid { width, height, depth: 0, format, channels, flags: 0 }.bytes()?;
        create(array, bytes)
    }

    fn cuArray3DCreate_v2(array: *mut u64, descriptor: *const c_void) {
        create(array, get(descriptor.cast::<Solid>())?.bytes()?)
    }

    fn cuArrayDestroy(array: u64) {
        destroy(array)
    }

    fn cuMipmappedArrayCreate(array: *mut u64, descriptor: *const c_void, levels: u32) {
        let mut level = get(descriptor.cast::<Solid>())?;
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

impl Solid {
    /// All its elements; a height or depth of 0 means a line or a plane.
    fn bytes(&self) -> Answer<u64> {
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

/// The next level's length: nothing stays nothing, one stays one.
fn half(length: usize) -> usize {
    length.min(1).max(length / 2)
}

fn create(array: *mut u64, bytes: u64) -> Answer {
    put(array, 0)?;
    put(array, machine()?.allocate(Context::current()?, Kind::Array, bytes)?)
}

fn destroy(array: u64) -> Answer {
    machine()?.free(array, &[Kind::Array]).map_err(|_| Status::INVALID_HANDLE)
}
