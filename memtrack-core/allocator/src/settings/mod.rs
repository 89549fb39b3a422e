//! The allocator's options, as in PyTorch: the values ([`AllocatorOptions`]), the parser of settings strings
//! (`grammar`), their errors ([`SettingsError`]), and their form in snapshots ([`AllocatorSettings`]).
//!
//! **Which options have no effect?** Options for locks, CUDA graphs and pinned memory are only parsed and reported.

mod error;
mod grammar;
mod options;
pub(crate) mod sizes;
mod tokens;

pub use error::SettingsError;
pub use options::{AllocatorBackend, AllocatorOptions, Reserve, Roundup};

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// All options, including those that the algorithm does not use, and the last applied settings string.
///
/// ```
/// use memtrack_core::allocator::Settings;
///
/// let mut settings = Settings::parse("max_split_size_mb:64,expandable_segments:True").unwrap();
/// assert_eq!(settings.options().max_split_size, 64 << 20);
/// // As in PyTorch, an option that the string lacks is reset to its default, except for a few that stay.
/// settings.apply("garbage_collection_threshold:0.8").unwrap();
/// assert_eq!(settings.options().max_split_size, u64::MAX);
/// assert!(settings.options().expandable_segments);
/// ```
///
/// **Without effect.** All of PyTorch's keys are parsed, checked and reported, but the following change nothing here:
/// `release_lock_on_cudamalloc` (a device is locked while the driver allocates a segment; other devices are not),
/// `graph_capture_record_stream_reuse` (blocks that other streams use become free after a capture, which is the
/// default), `expandable_segments_reserve_by_class` (only PyTorch's internal C++ code assigns streams to classes), and
/// `pinned_*`, because no host memory is allocated here.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    text: String,
    options: AllocatorOptions,
    /// `None` while the first string is being parsed, because only that string may select the backend.
    backend: Option<AllocatorBackend>,
    others: UnusedOptions,
    warnings: Vec<String>,
}

/// Options that are stored and reported but have no effect here. They concern pinned memory, CUDA graphs and locking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UnusedOptions {
    release_lock_on_cudamalloc: bool,
    graph_capture_record_stream_reuse: bool,
    pinned_num_register_threads: Option<u64>,
    pinned_use_cuda_host_register: bool,
    pinned_max_round_threshold: Option<u64>,
    pinned_max_cached_size: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            text: String::new(),
            options: AllocatorOptions::default(),
            backend: Some(AllocatorBackend::Native),
            others: UnusedOptions::default(),
            warnings: Vec::new(),
        }
    }
}

impl Settings {
    /// Returns the last applied string, whether valid or not.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns PyTorch's warnings about the ignored parts of the last applied string.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the options that the algorithm uses.
    pub fn options(&self) -> &AllocatorOptions {
        &self.options
    }

    /// Returns the allocator that the `backend` option selected in the first settings string.
    pub fn backend(&self) -> AllocatorBackend {
        self.backend.unwrap_or_default()
    }

    /// Returns the share of a device's memory that an allocator created with these settings may use: the last value of
    /// `per_process_memory_fraction`.
    pub fn initial_fraction(&self) -> f64 {
        self.options.per_process_memory_fraction
    }
}

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
