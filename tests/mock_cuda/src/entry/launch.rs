//! Kernel launches, which are only counted, and host functions, which are called immediately.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use crate::call::{entries, put};
use crate::context::Context;
use crate::handle::{self, Tag};
use crate::report::LAUNCHES;
use crate::status::{CuResult, Status};

type HostFunction = Option<extern "C" fn(*mut c_void)>;
type StreamCallback = Option<extern "C" fn(*mut c_void, i32, *mut c_void)>;

entries! {
    fn cuLaunchKernel as cuLaunchKernel_ptsz(
        function: *mut c_void, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: *mut c_void, parameters: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        let _ = (shared, parameters, extra);
        launch(function, [grid_x, grid_y, grid_z, block_x, block_y, block_z], stream)
    }

    fn cuLaunchCooperativeKernel as cuLaunchCooperativeKernel_ptsz(
        function: *mut c_void, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        shared: u32, stream: *mut c_void, parameters: *mut *mut c_void,
    ) {
        let _ = (shared, parameters);
        launch(function, [grid_x, grid_y, grid_z, block_x, block_y, block_z], stream)
    }

    fn cuLaunchHostFunc as cuLaunchHostFunc_ptsz(stream: *mut c_void, function: HostFunction, data: *mut c_void) {
        Context::of_stream(stream)?;
        function.ok_or(Status::INVALID_VALUE)?(data);
        Ok(())
    }

    fn cuStreamAddCallback as cuStreamAddCallback_ptsz(
        stream: *mut c_void, function: StreamCallback, data: *mut c_void, flags: u32,
    ) {
        let _ = flags;
        Context::of_stream(stream)?;
        function.ok_or(Status::INVALID_VALUE)?(stream, 0, data);
        Ok(())
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut i32, function: *mut c_void, block_size: i32, shared: usize,
    ) {
        let _ = shared;
        handle::read(Tag::Function, function)?;
        put(blocks, 2048 / block_size.clamp(1, 2048))
    }

    fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut i32, block: *mut i32, function: *mut c_void, shared_of: *const c_void, shared: usize, limit: i32,
    ) {
        let _ = (shared_of, shared);
        handle::read(Tag::Function, function)?;
        put(grid, 132 * 2)?;
        put(block, if limit > 0 { limit.min(1024) } else { 1024 })
    }
}

fn launch(function: *mut c_void, sizes: [u32; 6], stream: *mut c_void) -> CuResult {
    handle::read(Tag::Function, function)?;
    Context::of_stream(stream)?;
    if sizes.contains(&0) {
        return Err(Status::INVALID_VALUE);
    }
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
    Ok(())
}
