//! Streams. All work is complete when a call returns, but `work` still records which work the program has waited for.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call::{entries, get, put};
use crate::context::Context;
use crate::handle::{self, Tag};
use crate::machine::machine;
use crate::status::{CuResult, Status};
use crate::work;

static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// `CUstreamCaptureMode`; the mock captures nothing.
    static CAPTURE_MODE: Cell<i32> = const { Cell::new(0) };
}

entries! {
    fn cuStreamCreate(stream: *mut *mut c_void, flags: u32) {
        create(stream, flags)
    }

    fn cuStreamCreateWithPriority(stream: *mut *mut c_void, flags: u32, priority: i32) {
        let _ = priority;
        create(stream, flags)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut i32) {
        let wanted = get(mode)?;
        if !(0..=2).contains(&wanted) {
            return Err(Status::INVALID_VALUE);
        }
        put(mode, CAPTURE_MODE.replace(wanted))
    }

    fn cuStreamDestroy_v2(stream: *mut c_void) {
        work::destroyed(stream)
    }

    fn cuStreamSynchronize as cuStreamSynchronize_ptsz(stream: *mut c_void) {
        let context = Context::of_stream(stream)?;
        machine()?.area(context.device).synchronized();
        work::stream_done(context, stream);
        Ok(())
    }

    fn cuStreamQuery as cuStreamQuery_ptsz(stream: *mut c_void) {
        let context = Context::of_stream(stream)?;
        work::stream_done(context, stream);
        Ok(())
    }

    fn cuStreamWaitEvent as cuStreamWaitEvent_ptsz(stream: *mut c_void, event: *mut c_void, flags: u32) {
        let _ = flags;
        let point = super::event::point(event)?;
        let context = Context::of_stream(stream)?;
        if let Some(point) = point {
            work::wait(context, stream, point);
        }
        Ok(())
    }

    fn cuStreamGetCtx as cuStreamGetCtx_ptsz(stream: *mut c_void, context: *mut *mut c_void) {
        put(context, Context::of_stream(stream)?.handle())
    }

    fn cuStreamGetFlags as cuStreamGetFlags_ptsz(stream: *mut c_void, flags: *mut u32) {
        Context::of_stream(stream)?;
        put(flags, 0)
    }

    fn cuStreamGetPriority as cuStreamGetPriority_ptsz(stream: *mut c_void, priority: *mut i32) {
        Context::of_stream(stream)?;
        put(priority, 0)
    }

    fn cuStreamIsCapturing as cuStreamIsCapturing_ptsz(stream: *mut c_void, status: *mut i32) {
        Context::of_stream(stream)?;
        put(status, 0)
    }

    fn cuStreamAttachMemAsync as cuStreamAttachMemAsync_ptsz(
        stream: *mut c_void, address: u64, length: usize, flags: u32,
    ) {
        let _ = (address, length, flags);
        Context::of_stream(stream).map(drop)
    }
}

fn create(stream: *mut *mut c_void, flags: u32) -> CuResult {
    let context = Context::current()?;
    let created = handle::make(Tag::Stream, context.number, NEXT.fetch_add(1, Ordering::Relaxed));
    put(stream, created)?;
    work::created(created, context.number, flags);
    Ok(())
}
