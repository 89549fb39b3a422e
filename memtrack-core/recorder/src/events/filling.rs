//! The chunk that a thread is filling: appends an event, and replaces the chunk when it is full.
#![allow(unsafe_code)]

use super::HookContext;
use super::chunk::Chunk;
use super::ring::CHUNK_EVENTS;
use crate::probes;
use crate::settings;
use crate::shared_memory::{EVENTS_PER_PAGE, PageKind, Purpose, arena, is_connected, page_content};
use crate::signals::CancellationBlocked;
use memtrack_model::event::{DeviceId, Event};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// The capacity of the first chunk of a thread; each further chunk is twice as large, up to [`CHUNK_EVENTS`].
pub(super) const FIRST_CHUNK_EVENTS: u32 = 32;

/// The maximum total capacity, in events, of all chunks that are being filled (12 MiB), apart from the first small
/// ones. It bounds the memory of half-empty chunks, however many threads have been busy at some time.
pub(super) const MAX_FILLING_EVENTS: u64 = 1 << 18;

/// Returns the capacity of the chunk that follows a chunk of `before` events. Updates `filling_events`, the total
/// capacity of the chunks that are being filled.
fn next_capacity(before: u32, filling_events: &AtomicU64) -> u32 {
    let all = filling_events.load(Ordering::Relaxed).saturating_sub(u64::from(before));
    let wanted = (before * 2).clamp(FIRST_CHUNK_EVENTS, CHUNK_EVENTS);
    let most = settings::eighth_if_small(MAX_FILLING_EVENTS as usize) as u64;
    let next = if all + u64::from(wanted) > most { FIRST_CHUNK_EVENTS } else { wanted };
    filling_events.fetch_add(u64::from(next).wrapping_sub(u64::from(before)), Ordering::Relaxed);
    next
}

impl HookContext {
    /// Appends an event to the thread's chunk.
    #[inline(always)]
    pub(super) fn event(self, slot: usize, mut event: Event) {
        if settings::skips(event.action) {
            return;
        }
        event.thread = self.thread.thread_id();
        self.thread.state.totals(slot).count_recorded();
        let place = &self.thread.state.chunks[slot];
        let chunk = place.load(Ordering::Relaxed);
        let pushed = match probes::are_watched() {
            // SAFETY: the chunk in the slot is alive, since only this thread removes it (`replace_chunk`), and no other
            // thread pushes to it.
            false => unsafe { chunk.as_ref().and_then(|chunk| chunk.push(event)) },
            true => None,
        };
        match pushed {
            Some(false) => {}
            // A chunk is passed to the ring as soon as it is full, not one event later.
            Some(true) => self.replace_chunk(event.device, None, place),
            None => self.event_slowly(event, place),
        }
    }

    /// Appends an event for which the chunk has no room, or fires the event's probe and appends it.
    #[cold]
    fn event_slowly(self, event: Event, place: &AtomicPtr<Chunk<Event>>) {
        if probes::are_watched() {
            probes::fire(&event, self.thread.state.countdown.block_bytes());
            let chunk = place.load(Ordering::Relaxed);
            // SAFETY: as in `event`.
            match unsafe { chunk.as_ref().and_then(|chunk| chunk.push(event)) } {
                Some(false) => return,
                Some(true) => return self.replace_chunk(event.device, None, place),
                None => {}
            }
        }
        self.replace_chunk(event.device, Some(&event), place);
        let chunk = place.load(Ordering::Relaxed);
        // SAFETY: `replace_chunk` left a fresh chunk there, or null, and this thread is its only writer.
        if let Some(chunk) = unsafe { chunk.as_ref() } {
            // A new chunk has room for more than one event.
            // SAFETY: as above.
            unsafe { chunk.push(event) };
        }
    }

    /// Passes the full chunk to the ring (and the stream) and replaces it with a new one. `next` is the first event of the
    /// new chunk, if it is known.
    #[cold]
    fn replace_chunk(self, device: DeviceId, next: Option<&Event>, place: &AtomicPtr<Chunk<Event>>) {
        let _no_cancellation = CancellationBlocked::now();
        let old = place.load(Ordering::Relaxed);
        // SAFETY: a pointer there came from `Arc::into_raw` below and is converted back once, here.
        let full = (!old.is_null()).then(|| unsafe { Arc::from_raw(old.cast_const()) });
        self.recorder.live.shrink_some_shards();
        if is_connected() {
            // The command has the full page. If there is no other page, the event is lost, and the command counts it.
            place.store(shared_chunk(full.is_some(), device, next), Ordering::Release);
            return;
        }
        let before = full.as_ref().map_or(0, |full| full.capacity());
        let capacity = next_capacity(before, &self.recorder.filling_events);
        let fresh = Arc::into_raw(Arc::new(Chunk::new(capacity))).cast_mut();
        self.recorder.store_full_chunk(device, full, || place.store(fresh, Ordering::Release));
    }
}

/// Returns a chunk in a page of shared memory, as a pointer from `Arc::into_raw`; null if there is no page for the event
/// `next` (if it is not known, for the device's next event). `has_filled_page` is set if the thread has just filled a page.
#[cold]
fn shared_chunk(has_filled_page: bool, device: DeviceId, next: Option<&Event>) -> *mut Chunk<Event> {
    let purpose = match next {
        Some(event) => Purpose::of(event, settings::sample_threshold_bytes()),
        None => Purpose::of_next(device),
    };
    let page = arena().and_then(|arena| {
        if has_filled_page {
            arena.count_completed_page();
        }
        arena.take_page(PageKind::Events, purpose)
    });
    let chunk = page.and_then(|page| {
        let slots = NonNull::new(page_content(page.as_ptr()).cast())?;
        // SAFETY: the page was just taken, stays mapped, and has room for this many events after its header.
        Some(unsafe {
            let len = NonNull::from(&page.as_ref().len);
            Chunk::in_page(len, slots, EVENTS_PER_PAGE)
        })
    });
    chunk.map_or(std::ptr::null_mut(), |chunk| Arc::into_raw(Arc::new(chunk)).cast_mut())
}
