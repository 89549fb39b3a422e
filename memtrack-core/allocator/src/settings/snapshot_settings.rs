//! The settings in the form used in snapshots.

use super::{Roundup, Settings};
use serde::{Serialize, Serializer, ser::SerializeMap};

/// The `allocator_settings` of a snapshot, with PyTorch's keys in PyTorch's order. Sizes are in bytes; −1 means no
/// limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct AllocatorSettings {
    /// The last applied settings string.
    #[serde(rename = "PYTORCH_CUDA_ALLOC_CONF")]
    pub text: String,
    /// Blocks of this size or more are never split.
    pub max_split_size: i64,
    /// Old cached blocks are released when reserved memory exceeds this share of the limit.
    pub garbage_collection_threshold: f64,
    /// Whether new memory is mapped into growing ranges.
    pub expandable_segments: bool,
    /// The number of threads that register pinned memory.
    pub pinned_num_register_threads: u64,
    /// Whether the allocator's lock is released while the driver allocates.
    pub release_lock_on_cudamalloc: bool,
    /// Whether pinned memory is registered instead of allocated.
    pub pinned_use_cuda_host_register: bool,
    /// Whether graph capture reclaims deferred frees.
    pub graph_capture_record_stream_reuse: bool,
    /// Pinned memory above this size is not rounded.
    pub max_round_threshold: i64,
    /// Pinned memory above this size is not cached.
    pub max_cached_size: i64,
    /// The rounding divisions of each interval. The key is the size in MiB at which the interval starts.
    #[serde(serialize_with = "serialize_by_interval")]
    pub roundup_power2_divisions: Roundup,
}

fn serialize_by_interval<S: Serializer>(roundup: &Roundup, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(Roundup::INTERVALS))?;
    for (interval, divisions) in roundup.divisions().iter().enumerate() {
        map.serialize_entry(&(1u64 << interval).to_string(), divisions)?;
    }
    map.end()
}

/// Converts a size like PyTorch's cast, which wraps values that are too large.
fn to_signed(size: Option<u64>) -> i64 {
    size.map_or(-1, |size| size as i64)
}

impl Settings {
    /// Returns the settings in the form used in snapshots.
    pub fn report(&self) -> AllocatorSettings {
        let Self { options, others, .. } = self;
        AllocatorSettings {
            text: self.text.clone(),
            // Having no limit is stored as `u64::MAX`, which PyTorch's cast converts to −1.
            max_split_size: options.max_split_size as i64,
            garbage_collection_threshold: options.garbage_collection_threshold,
            expandable_segments: options.expandable_segments,
            pinned_num_register_threads: others.pinned_num_register_threads.unwrap_or(1),
            release_lock_on_cudamalloc: others.release_lock_on_cudamalloc,
            pinned_use_cuda_host_register: others.pinned_use_cuda_host_register,
            graph_capture_record_stream_reuse: others.graph_capture_record_stream_reuse,
            max_round_threshold: to_signed(others.pinned_max_round_threshold),
            max_cached_size: to_signed(others.pinned_max_cached_size),
            roundup_power2_divisions: options.roundup,
        }
    }
}
