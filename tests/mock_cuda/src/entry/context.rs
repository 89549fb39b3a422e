//! Contexts. The last release of a primary context, its reset, and the destruction of any other context free its memory.

use std::ffi::c_void;

use crate::call::{entries, put};
use crate::context::{self, Context};
use crate::machine::machine;
use crate::status::{CuResult, Status};
use crate::work;

entries! {
    fn cuDevicePrimaryCtxRetain(handle: *mut *mut c_void, device: i32) {
        let mut state = machine()?.device(device)?;
        put(handle, std::ptr::null_mut())?;
        let context = Context::primary(device as usize);
        if state.primary_references == 0 {
            state.count_context(true);
        }
        state.primary_references += 1;
        put(handle, context.handle())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        let references = {
            let mut state = machine()?.device(device)?;
            state.primary_references = state.primary_references.checked_sub(1).ok_or(Status::INVALID_CONTEXT)?;
            state.primary_references
        };
        if references == 0 { Context::numbered(device as u16)?.destroy() } else { Ok(()) }
    }

    fn cuDevicePrimaryCtxReset_v2(device: i32) {
        {
            let mut state = machine()?.device(device)?;
            if state.primary_references == 0 {
                return Ok(());
            }
            state.primary_references = 0;
        }
        Context::numbered(device as u16)?.destroy()
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) {
        let _ = flags;
        let state = machine()?.device(device)?;
        if state.primary_references > 0 { Err(Status::PRIMARY_CONTEXT_ACTIVE) } else { Ok(()) }
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32) {
        let references = machine()?.device(device)?.primary_references;
        put(flags, 0)?;
        put(active, i32::from(references > 0))
    }

    fn cuCtxCreate_v2(handle: *mut *mut c_void, flags: u32, device: i32) {
        let _ = flags;
        create(handle, device)
    }

    fn cuCtxCreate_v3(handle: *mut *mut c_void, affinity: *mut c_void, count: i32, flags: u32, device: i32) {
        let _ = (affinity, count, flags);
        create(handle, device)
    }

    fn cuCtxCreate_v4(handle: *mut *mut c_void, parameters: *mut c_void, flags: u32, device: i32) {
        let _ = (parameters, flags);
        create(handle, device)
    }

    fn cuCtxDestroy_v2(handle: *mut c_void) {
        let context = Context::of(handle)?;
        if context.is_primary() {
            return Err(Status::INVALID_CONTEXT);
        }
        if Context::current() == Ok(context) {
            context::set_current(None);
        }
        context.destroy()
    }

    fn cuCtxGetCurrent(handle: *mut *mut c_void) {
        machine()?;
        put(handle, context::current_handle())
    }

    fn cuCtxSetCurrent(handle: *mut c_void) {
        machine()?;
        context::set_current(if handle.is_null() { None } else { Some(Context::of(handle)?) });
        Ok(())
    }

    fn cuCtxPushCurrent_v2(handle: *mut c_void) {
        machine()?;
        context::push(Context::of(handle)?)
    }

    fn cuCtxPopCurrent_v2(handle: *mut *mut c_void) {
        let top = context::pop()?;
        if handle.is_null() { Ok(()) } else { put(handle, top) }
    }

    fn cuCtxGetDevice(device: *mut i32) {
        put(device, Context::current()?.device as i32)
    }

    fn cuCtxGetId(handle: *mut c_void, id: *mut u64) {
        let context = if handle.is_null() { Context::current()? } else { Context::of(handle)? };
        put(id, u64::from(context.number) + 1)
    }

    fn cuCtxGetApiVersion(handle: *mut c_void, version: *mut u32) {
        if !handle.is_null() {
            Context::of(handle)?;
        }
        put(version, 3_020)
    }

    fn cuCtxGetFlags(flags: *mut u32) {
        Context::current()?;
        put(flags, 0)
    }

    fn cuCtxSetFlags(flags: u32) {
        let _ = flags;
        Context::current().map(drop)
    }

    fn cuCtxSynchronize() {
        let context = Context::current()?;
        machine()?.area(context.device).synchronized();
        work::context_done(context.number);
        Ok(())
    }

    fn cuCtxGetLimit(value: *mut usize, limit: i32) {
        let _ = limit;
        Context::current()?;
        put(value, 0)
    }

    fn cuCtxSetLimit(limit: i32, value: usize) {
        let _ = (limit, value);
        Context::current().map(drop)
    }

    fn cuCtxGetCacheConfig(config: *mut i32) {
        Context::current()?;
        put(config, 0)
    }

    fn cuCtxSetCacheConfig(config: i32) {
        let _ = config;
        Context::current().map(drop)
    }

    fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        Context::current()?;
        put(least, 0)?;
        put(greatest, -5)
    }

    fn cuCtxEnablePeerAccess(peer: *mut c_void, flags: u32) {
        let _ = flags;
        // Enabled pairs are not recorded: every device can access every other device.
        if Context::of(peer)? == Context::current()? { Err(Status::PEER_ACCESS_ALREADY_ENABLED) } else { Ok(()) }
    }

    fn cuCtxDisablePeerAccess(peer: *mut c_void) {
        if Context::of(peer)? == Context::current()? { Err(Status::PEER_ACCESS_NOT_ENABLED) } else { Ok(()) }
    }
}

fn create(handle: *mut *mut c_void, device: i32) -> CuResult {
    let machine = machine()?;
    machine.device(device)?.count_context(true);
    let context = Context::create(device as usize)?;
    context::push(context)?;
    put(handle, context.handle())
}
