//! Streams. All work is done when a call returns, so there is nothing to wait for but what a wait makes the pools do.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call::{entries, get, put};
use crate::context::Context;
use crate::handle::{self, Tag};
use crate::machine::machine;
use crate::report::STREAMS;
use crate::status::{Answer, Status};

static NEXT: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// `CUstreamCaptureMode`; nothing is captured here.
    static CAPTURE_MODE: Cell<i32> = const { Cell::new(0) };
}

entries! {
    fn cuStreamCreate(stream: *mut *mut c_void, flags: u32) {
        let _ = flags;
        create(stream)
    }

    fn cuStreamCreateWithPriority(stream: *mut *mut c_void, flags: u32, priority: i32) {
        let _ = (flags, priority);
        create(stream)
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut i32) {
        let wanted = get(mode)?;
        if !(0..=2).contains(&wanted) {
            return Err(Status::INVALID_VALUE);
        }
        put(mode, CAPTURE_MODE.replace(wanted))
    }

    fn cuStreamDestroy_v2(stream: *mut c_void) {
        handle::read(Tag::Stream, stream)?;
        STREAMS.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn cuStreamSynchronize as cuStreamSynchronize_ptsz(stream: *mut c_void) {
        machine()?.area(Context::of_stream(stream)?.device).synchronized();
        Ok(())
    }

    fn cuStreamQuery as cuStreamQuery_ptsz(stream: *mut c_void) {
        Context::of_stream(stream).map(drop)
    }

    fn cuStreamWaitEvent as cuStreamWaitEvent_ptsz(stream: *mut c_void, event: *mut c_void, flags: u32) {
        let _ = flags;
        if event.is_null() {
            return Err(Status::INVALID_HANDLE);
        }
        Context::of_stream(stream).map(drop)
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

fn create(stream: *mut *mut c_void) -> Answer {
    let context = Context::current()?;
    put(stream, handle::make(Tag::Stream, context.number, NEXT.fetch_add(1, Ordering::Relaxed)))?;
    STREAMS.fetch_add(1, Ordering::Relaxed);
    Ok(())
}
