//! A device that logs its calls, so that the work of two allocators can be compared although their addresses differ: an address
//! is replaced by its place, which is the number of a segment or range and an offset in it.

use memtrack_core::allocator::{DeviceError, DeviceMemory, DeviceProcess, MemoryInfo, TraceEntry};
use memtrack_core::event::{Action, StreamId};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A successful call to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    /// Allocated a segment or reserved a range: address and size.
    Allocate(u64, u64),
    /// Released a segment or range.
    Release(u64),
    /// Mapped pages.
    Map(u64),
    /// Unmapped pages.
    Unmap(u64),
}

/// A device that logs its calls. Streams are numbered by their handles, whatever the inner device does.
pub struct Watched<M> {
    inner: M,
    calls: Arc<Mutex<VecDeque<Call>>>,
    queries: u32,
}

/// The segments and ranges of a [`Watched`] device.
pub struct Places {
    calls: Arc<Mutex<VecDeque<Call>>>,
    count: usize,
    /// The size in bytes and the number of each live segment or range, by its address.
    live: BTreeMap<u64, (u64, usize)>,
}

/// A place: the number of a segment or range, counted from 0, and an offset in bytes in it.
pub type Offset = (usize, u64);

fn lock(calls: &Mutex<VecDeque<Call>>) -> MutexGuard<'_, VecDeque<Call>> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M> Watched<M> {
    /// Wraps a device. The first `queries` queries of each event report that the event is not done; later queries are passed to
    /// the device.
    pub fn new(inner: M, queries: u32) -> (Self, Places) {
        let calls = Arc::default();
        let places = Places { calls: Arc::clone(&calls), count: 0, live: BTreeMap::new() };
        (Self { inner, calls, queries }, places)
    }

    fn log<R>(
        &self,
        result: Result<R, DeviceError>,
        call: impl FnOnce(&R) -> Call,
    ) -> Result<R, DeviceError> {
        result.inspect(|result| lock(&self.calls).push_back(call(result)))
    }
}

impl Places {
    /// Returns the place of an event's address. The address of an out-of-memory event is a number of free bytes, which is
    /// returned unchanged as the offset, with the number 0. Events must be passed in order.
    ///
    /// # Panics
    /// When a segment's event matches no call, or an event's address is in no segment.
    pub fn of_event(&mut self, entry: &TraceEntry) -> Offset {
        let at = entry.address;
        let segment = |call: Call| matches!(call, Call::Allocate(address, _) if address == at);
        match entry.action {
            Action::Oom | Action::Snapshot => return (0, at),
            Action::SegmentAlloc => self.catch_up(segment),
            Action::SegmentMap => self.catch_up(|call| call == Call::Map(at)),
            _ => {}
        }
        let place = self.find(at);
        match entry.action {
            Action::SegmentFree => self.catch_up(|call| call == Call::Release(at)),
            Action::SegmentUnmap => self.catch_up(|call| call == Call::Unmap(at)),
            _ => {}
        }
        place
    }

    /// Applies the remaining calls, which have no event.
    pub fn settle(&mut self) {
        while self.next().is_some() {}
    }

    /// Returns the place of an address.
    ///
    /// # Panics
    /// When the address is in no segment and no range.
    pub fn find(&self, address: u64) -> Offset {
        let (start, (size, number)) = self.live.range(..=address).next_back().expect("there is a segment");
        assert!(address - start < *size, "{address:#x} is in no segment");
        (*number, address - start)
    }

    fn catch_up(&mut self, until: impl Fn(Call) -> bool) {
        while !until(self.next().expect("each segment event matches a call")) {}
    }

    fn next(&mut self) -> Option<Call> {
        let call = lock(&self.calls).pop_front()?;
        match call {
            Call::Allocate(address, size) => {
                self.live.insert(address, (size, self.count));
                self.count += 1;
            }
            Call::Release(address) => drop(self.live.remove(&address)),
            Call::Map(_) | Call::Unmap(_) => {}
        }
        Some(call)
    }
}

impl<M: DeviceMemory> DeviceMemory for Watched<M> {
    /// The number of further queries that report "not done" without asking the inner device, and the inner device's event.
    type Event = (Cell<u32>, M::Event);

    fn allocate(&self, size: u64) -> Result<u64, DeviceError> {
        self.log(self.inner.allocate(size), |&address| Call::Allocate(address, size))
    }

    fn release(&self, address: u64) -> Result<(), DeviceError> {
        self.log(self.inner.release(address), |()| Call::Release(address))
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
        self.log(self.inner.reserve(size), |&address| Call::Allocate(address, size))
    }

    fn map(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.log(self.inner.map(address, size, page), |()| Call::Map(address))
    }

    fn unmap(&self, address: u64, size: u64, page: u64) -> Result<(), DeviceError> {
        self.log(self.inner.unmap(address, size, page), |()| Call::Unmap(address))
    }

    fn unreserve(&self, address: u64, size: u64) -> Result<(), DeviceError> {
        self.log(self.inner.unreserve(address, size), |()| Call::Release(address))
    }

    fn processes(&self) -> Vec<DeviceProcess> {
        self.inner.processes()
    }
}
