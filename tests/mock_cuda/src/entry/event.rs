//! Events: the one handle that is a pointer, because a time belongs to it and cudarc makes two for each buffer.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::call::{entries, put};
use crate::context::Context;
use crate::machine::machine;
use crate::report::EVENTS;
use crate::settings::settings;
use crate::status::{Answer, Status};
use crate::work::{self, Point};

#[derive(Default)]
struct Event {
    /// Nanoseconds since the first event, plus one; 0 until it is recorded.
    time: AtomicU64,
    /// So often it is still not ready when it is asked.
    queries: AtomicU64,
    /// What it was recorded behind.
    point: Mutex<Option<Point>>,
}

entries! {
    fn cuEventCreate(event: *mut *mut c_void, flags: u32) {
        let _ = flags;
        Context::current()?;
        if event.is_null() {
            return Err(Status::INVALID_VALUE);
        }
        EVENTS.fetch_add(1, Ordering::Relaxed);
        put(event, Box::into_raw(Box::new(Event::default())).cast())
    }

    fn cuEventDestroy_v2(event: *mut c_void) {
        look(event)?;
        // SAFETY: `cuEventCreate` made it, and its caller ends it once.
        drop(unsafe { Box::from_raw(event.cast::<Event>()) });
        EVENTS.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    fn cuEventRecord as cuEventRecord_ptsz(event: *mut c_void, stream: *mut c_void) {
        record(event, stream)
    }

    fn cuEventRecordWithFlags as cuEventRecordWithFlags_ptsz(event: *mut c_void, stream: *mut c_void, flags: u32) {
        let _ = flags;
        record(event, stream)
    }

    fn cuEventQuery(event: *mut c_void) {
        let left = &look(event)?.queries;
        match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Err(Status::NOT_READY),
            Err(_) => reached(event),
        }
    }

    fn cuEventSynchronize(event: *mut c_void) {
        look(event)?.queries.store(0, Ordering::Relaxed);
        if let Ok(context) = Context::current() {
            machine()?.area(context.device).synchronized();
        }
        reached(event)
    }

    fn cuEventElapsedTime(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) {
        elapsed(milliseconds, start, end)
    }

    fn cuEventElapsedTime_v2(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) {
        elapsed(milliseconds, start, end)
    }
}

fn look(event: *mut c_void) -> Answer<&'static Event> {
    // SAFETY: the caller promises that it is null or an event that lives.
    unsafe { event.cast::<Event>().as_ref() }.ok_or(Status::INVALID_HANDLE)
}

/// What an event was recorded behind, if it was.
///
/// # Errors
/// Invalid handle for null.
pub(super) fn point(event: *mut c_void) -> Answer<Option<Point>> {
    Ok(*look(event)?.point.lock().unwrap_or_else(PoisonError::into_inner))
}

fn reached(event: *mut c_void) -> Answer {
    if let Some(point) = point(event)? {
        work::reached(point);
    }
    Ok(())
}

fn record(event: *mut c_void, stream: *mut c_void) -> Answer {
    static START: OnceLock<Instant> = OnceLock::new();
    let context = Context::of_stream(stream)?;
    let since = START.get_or_init(Instant::now).elapsed().as_nanos() as u64;
    let event = look(event)?;
    *event.point.lock().unwrap_or_else(PoisonError::into_inner) = Some(work::point(context, stream));
    event.time.store(since + 1, Ordering::Relaxed);
    event.queries.store(settings().event_queries, Ordering::Relaxed);
    Ok(())
}

fn elapsed(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) -> Answer {
    let time = |event| match look(event)?.time.load(Ordering::Relaxed) {
        0 => Err(Status::INVALID_HANDLE),
        time => Ok(time as f64),
    };
    put(milliseconds, ((time(end)? - time(start)?) / 1e6) as f32)
}
