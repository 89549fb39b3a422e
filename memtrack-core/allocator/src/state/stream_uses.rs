//! The streams that use a block besides the stream that it was allocated for.

use crate::state::hash_order_map::HashOrderMap;
use memtrack_model::event::StreamId;

/// A set of streams, in the order of PyTorch's hash tables.
#[derive(Debug, Default)]
pub(crate) struct StreamUses(HashOrderMap<StreamId, ()>);

/// Returns PyTorch's hash of a stream, which combines the device type, the device and the stream's number.
pub(crate) fn stream_hash(device: u16, number: u64) -> u64 {
    (1u64 << 56).wrapping_add(u64::from(device) << 48).wrapping_add(number)
}

impl StreamUses {
    pub(crate) fn insert(&mut self, hash: u64, stream: StreamId) {
        if self.0.get_mut(hash, stream).is_none() {
            self.0.insert(hash, stream, ());
        }
    }

    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.0.keys()
    }

    /// Removes streams from the set; returns `None` if no streams are left.
    pub(crate) fn remove_streams(mut self: Box<Self>, streams: &[(u64, StreamId)]) -> Option<Box<Self>> {
        for &(hash, stream) in streams {
            self.0.remove(hash, stream);
        }
        (!self.0.is_empty()).then_some(self)
    }
}
