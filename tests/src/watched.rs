//! A device whose calls are noted, so that what two allocators did can be compared without addresses: a place is the
//! segment or range, by number, and how far into it.

use memtrack_core::allocator::{DeviceError, DeviceMemory, DeviceProcess, MemoryInfo, TraceEntry};
use memtrack_core::event::{Action, StreamId};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a device was asked and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// Gave a segment or reserved a range: address and size.
    Take(u64, u64),
    /// Took one back.
    Give(u64),
    /// Mapped pages.
    Map(u64),
    /// Took them away.
    Unmap(u64),
}

/// A device that notes its calls. Streams are numbered by their handles, whatever the device inside does.
pub struct Watched<M> {
    inner: M,
    calls: Arc<Mutex<VecDeque<Call>>>,
    queries: u32,
}

/// Where the segments and ranges of a [`Watched`] device lie.
pub struct Places {
    calls: Arc<Mutex<VecDeque<Call>>>,
    made: usize,
    /// Size and number by address.
    live: BTreeMap<u64, (u64, usize)>,
}

/// A segment or range, counted from 0, and an offset in it.
pub type Offset = (usize, u64);

fn lock(calls: &Mutex<VecDeque<Call>>) -> MutexGuard<'_, VecDeque<Call>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M> Watched<M> {
    /// Watches a device whose events are not done for so many `queries` each, and then when the device says so.
    pub fn new(inner: M, queries: u32) -> (Self, Places) {
        let calls = Arc::default();
        let places = Places { calls: Arc::clone(&calls), made: 0, live: BTreeMap::new() };
        (Self { inner, calls, queries }, places)
    }

    fn note<R>(
        &self,
        result: Result<R, DeviceError>,
        call: impl FnOnce(&R) -> Call,
    ) -> Result<R, DeviceError> {
        result.inspect(|result| lock(&self.calls).push_back(call(result)))
    }
}

impl Places {
    /// Where an event happened; of an out-of-memory event, the free bytes as they are. Events must come in their order.
    ///
    /// # Panics
    /// When an event of a segment has no call that fits it, or lies in no segment.
    pub fn of_event(&mut self, entry: &TraceEntry) -> Offset {
        let at = entry.address;
        let segment = |call: Call| matches!(call, Call::Take(address, _) if address == at);
        match entry.action {
            Action::Oom | Action::Snapshot => return (0, at),
            Action::SegmentAlloc => self.catch_up(segment),
            Action::SegmentMap => self.catch_up(|call| call == Call::Map(at)),
            _ => {}
        }
        let place = self.find(at);
        match entry.action {
            Action::SegmentFree => self.catch_up(|call| call == Call::Give(at)),
            Action::SegmentUnmap => self.catch_up(|call| call == Call::Unmap(at)),
            _ => {}
        }
        place
    }

    /// Takes note of calls that left no event.
    pub fn settle(&mut self) {
        while self.next().is_some() {}
    }

    /// Where an address lies.
    ///
    /// # Panics
    /// When it is in no segment and no range.
    pub fn find(&self, address: u64) -> Offset {
        let (start, (size, number)) = self.live.range(..=address).next_back().expect("there is a segment");
        assert!(address - start < *size, "{address:#x} is in no segment");
        (*number, address - start)
    }

    fn catch_up(&mut self, until: impl Fn(Call) -> bool) {
        while !until(self.next().expect("each event of a segment is of a call")) {}
    }

    fn next(&mut self) -> Option<Call> {
        let call = lock(&self.calls).pop_front()?;
        match call {
            Call::Take(address, size) => {
                self.live.insert(address, (size, self.made));
                self.made += 1;
            }
            Call::Give(address) => drop(self.live.remove(&address)),
            Call::Map(_) | Call::Unmap(_) => {}
        }
        Some(call)
    }
}

impl<M: DeviceMemory> DeviceMemory for Watched<M> {
    /// So many queries are left, and the device's own.
    type Event = (Cell<u32>, M::Event);

    fn allocate(&self, size: u64) -> Result<u64, DeviceError> {
        self.note(self.inner.allocate(size), |&address| Call::Take(address, size))
    }

    fn release(&self, address: u64) -> Result<(), DeviceError> {
        self.note(self.inner.release(address), |()| Call::Give(address))
    }

    fn memory_info(&self) -> Result<MemoryInfo, DeviceError> {
        self.inner.memory_info()
    }

    fn record_event(&self, stream: StreamId) -> Result<Self::Event, DeviceError> {
        Ok((Cell::new(self.queries), self.inner.record_event(stream)?))
    }

    fn is_done(&self, (queries, event): &Self::Event) -> Result<bool, DeviceError> {
        match queries.get().checked_sub(1) {
            Some(left) => {
                queries.set(left);
                Ok(false)
            }
            None => self.inner.is_done(event),
        }
    }

    fn wait(&self, (queries, event): &Self::Event) -> Result<(), DeviceError> {
        queries.set(0);
        self.inner.wait(event)
    }

    fn wait_for_stream(&self, stream: StreamId) -> Result<(), DeviceError> {
        self.inner.wait_for_stream(stream)
    }

    fn reserve(&self, size: u64) -> Result<u64, DeviceError> {
        self.note(self.inner.reserve(size), |&address| Call::Take(address, size))
    }

    fn map(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.note(self.inner.map(address, size, page), |()| Call::Map(address))
    }

    fn unmap(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.note(self.inner.unmap(address, size, page), |()| Call::Unmap(address))
    }

    fn unreserve(&self, address: u64, size: u64) -> Result<(), DeviceError> {
        self.note(self.inner.unreserve(address, size), |()| Call::Give(address))
    }

    fn processes(&self) -> Vec<DeviceProcess> {
        self.inner.processes()
    }
}
