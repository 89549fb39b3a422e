//! Events: the only handles that are pointers, because an event stores a time, and cudarc creates two events per buffer.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::call::{entries, put};
use crate::context::Context;
use crate::machine::machine;
use crate::report::EVENTS;
use crate::settings::settings;
use crate::status::{CuResult, Status};
use crate::work::{self, Point};

#[derive(Default)]
struct Event {
    /// Nanoseconds since the first event, plus one; 0 until the event is recorded.
    time: AtomicU64,
    /// The number of queries that will still return "not ready".
    queries: AtomicU64,
    /// The point of the stream at which the event was recorded.
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
        event_ref(event)?;
        // SAFETY: `cuEventCreate` allocated the event, and the caller destroys it once.
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
        let left = &event_ref(event)?.queries;
        match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => Err(Status::NOT_READY),
            Err(_) => reached(event),
        }
    }

    fn cuEventSynchronize(event: *mut c_void) {
        event_ref(event)?.queries.store(0, Ordering::Relaxed);
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

fn event_ref(event: *mut c_void) -> CuResult<&'static Event> {
    // SAFETY: the caller promises that `event` is null or a live event.
    unsafe { event.cast::<Event>().as_ref() }.ok_or(Status::INVALID_HANDLE)
}

/// Returns the point of the stream at which an event was recorded; `None` if it was never recorded.
///
/// # Errors
/// `INVALID_HANDLE` if `event` is null.
pub(super) fn point(event: *mut c_void) -> CuResult<Option<Point>> {
    Ok(*event_ref(event)?.point.lock().unwrap_or_else(PoisonError::into_inner))
}

fn reached(event: *mut c_void) -> CuResult {
    if let Some(point) = point(event)? {
        work::reached(point);
    }
    Ok(())
}

fn record(event: *mut c_void, stream: *mut c_void) -> CuResult {
    static START: OnceLock<Instant> = OnceLock::new();
    let context = Context::of_stream(stream)?;
    let since = START.get_or_init(Instant::now).elapsed().as_nanos() as u64;
    let event = event_ref(event)?;
    *event.point.lock().unwrap_or_else(PoisonError::into_inner) = Some(work::point(context, stream));
    event.time.store(since + 1, Ordering::Relaxed);
    event.queries.store(settings().event_queries, Ordering::Relaxed);
    Ok(())
}

fn elapsed(milliseconds: *mut f32, start: *mut c_void, end: *mut c_void) -> CuResult {
    let time = |event| match event_ref(event)?.time.load(Ordering::Relaxed) {
        0 => Err(Status::INVALID_HANDLE),
        time => Ok(time as f64),
    };
    put(milliseconds, ((time(end)? - time(start)?) / 1e6) as f32)
}
