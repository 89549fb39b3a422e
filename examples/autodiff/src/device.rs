//! A simulated device: it allocates addresses, counts memory, and reports to memtrack. The values are stored on the host.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use memtrack_core::event::{DeviceId, StreamId};
use memtrack_core::recorder;
use memtrack_core::references::{DeviceMemory, References, Visitor};

const CUDA_0: DeviceId = DeviceId(0);
const STREAM: StreamId = StreamId(0);
/// The first address. Not 0, which looks like a null pointer.
const FIRST_ADDRESS: u64 = 0x7000_0000_0000;
/// The alignment of buffers, in bytes.
const ALIGNMENT: u64 = 512;

/// A handle to the device; clones refer to the same device.
#[derive(Clone, Debug)]
pub struct Device(Rc<RefCell<Books>>);

#[derive(Debug)]
struct Books {
    next_address: u64,
    /// The addresses of freed buffers, for reuse, by buffer size in bytes.
    free: BTreeMap<u64, Vec<u64>>,
    in_use_bytes: u64,
}

impl Device {
    /// Makes an empty device.
    pub fn new() -> Self {
        let books = Books { next_address: FIRST_ADDRESS, free: BTreeMap::new(), in_use_bytes: 0 };
        Self(Rc::new(RefCell::new(books)))
    }

    /// Moves values to the device.
    pub fn buffer(&self, values: Vec<f32>) -> Buffer {
        let address = self.0.borrow_mut().allocate(size_bytes(&values));
        recorder::record_alloc(CUDA_0, STREAM, address, size_bytes(&values));
        Buffer { device: self.clone(), address, values }
    }

    /// Returns the bytes of live buffers.
    pub fn in_use_bytes(&self) -> u64 {
        self.0.borrow().in_use_bytes
    }
}

impl Default for Device {
    fn default() -> Self {
        Self::new()
    }
}

impl Books {
    fn allocate(&mut self, size_bytes: u64) -> u64 {
        self.in_use_bytes += size_bytes;
        self.free.get_mut(&size_bytes).and_then(Vec::pop).unwrap_or_else(|| {
            let address = self.next_address;
            self.next_address += size_bytes.next_multiple_of(ALIGNMENT);
            address
        })
    }
}

/// Values on the device, whose memory is freed when the buffer is dropped.
#[derive(Debug)]
pub struct Buffer {
    device: Device,
    address: u64,
    values: Vec<f32>,
}

impl Buffer {
    /// Returns the buffer's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the buffer's values.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Returns the buffer's values for changes in place.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// Returns the buffer's size in bytes.
    pub fn size_bytes(&self) -> u64 {
        size_bytes(&self.values)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        recorder::record_free(CUDA_0, STREAM, self.address, self.size_bytes());
        let mut books = self.device.0.borrow_mut();
        books.in_use_bytes -= self.size_bytes();
        books.free.entry(self.size_bytes()).or_default().push(self.address);
    }
}

// memtrack: the only manual implementation of `References`. Types that contain a buffer derive the trait.
impl References for Buffer {
    fn references(&self, to: &mut Visitor<'_>) {
        to.memory(DeviceMemory { device: CUDA_0, address: self.address, size_bytes: self.size_bytes() });
    }
}

fn size_bytes(values: &[f32]) -> u64 {
    size_of_val(values) as u64
}
