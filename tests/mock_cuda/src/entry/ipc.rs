//! Memory of other processes. A handle contains the size and the process. The bytes themselves are not shared: opening a
//! handle always returns new memory.

use crate::call::{entries, put};
use crate::context::Context;
use crate::counters::Kind;
use crate::machine::machine;
use crate::status::Status;

/// The beginning of every valid handle; a handle without it is refused.
const MAGIC: u64 = 0x6D65_6D74_7261_636B;

/// `CUipcMemHandle`: 64 bytes that only the driver reads.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Handle([u64; 8]);

entries! {
    fn cuIpcGetMemHandle(handle: *mut Handle, address: u64) {
        let area = machine()?.area_of(address).ok_or(Status::INVALID_VALUE)?;
        let (start, block) = machine()?.area(area).block_around(address).ok_or(Status::INVALID_VALUE)?;
        let process = u64::from(std::process::id());
        put(handle, Handle([MAGIC, process, start, block.bytes, 0, 0, 0, 0]))
    }

    fn cuIpcOpenMemHandle_v2(address: *mut u64, handle: Handle, flags: u32) {
        let _ = flags;
        put(address, 0)?;
        if handle.0[0] != MAGIC {
            return Err(Status::INVALID_VALUE);
        }
        let context = Context::current()?;
        let mut device = machine()?.area(context.device);
        put(address, device.allocate(Kind::Ipc, handle.0[3], context.number)?)
    }

    fn cuIpcCloseMemHandle(address: u64) {
        machine()?.free(address, &[Kind::Ipc])
    }
}
