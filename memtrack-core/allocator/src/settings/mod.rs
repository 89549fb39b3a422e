//! The allocator's options, as in PyTorch: their values ([`AllocatorOptions`]), the string that sets them (`grammar`), and
//! its errors ([`SettingsError`]).
//!
//! **Which options have no effect?** Those for locks, CUDA graphs and pinned memory are read and reported only.

mod all_accelerators;
mod error;
mod grammar;
mod numbers;
mod only_cuda;
mod reserve;
mod roundup;
pub(crate) mod sizes;
mod snapshot_settings;
mod tokens;

pub use error::SettingsError;
pub use reserve::Reserve;
pub use roundup::Roundup;
pub use snapshot_settings::AllocatorSettings;

use crate::settings::sizes::LARGE_BUFFER;

/// The options that the algorithm uses. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AllocatorOptions {
    /// Blocks of this size and more are never split; `u64::MAX`: no limit.
    pub max_split_size: u64,
    /// The maximum excess of an unsplit block over a request.
    pub max_non_split_rounding: u64,
    /// The share of the limit above which old cached blocks are released; 0: never.
    pub garbage_collection_threshold: f64,
    /// The rounding of requests between powers of two.
    pub roundup: Roundup,
    /// Whether new memory is mapped into growing ranges instead of being taken in segments.
    pub expandable_segments: bool,
    /// The size of the segments that the large pool takes from the device.
    pub large_segment_size: u64,
    /// The address space that an expandable range reserves.
    pub reserve: Reserve,
    /// The share of the device's memory that `throw_on_cudamalloc_oom` allows. It is a limit by itself only
    /// for an allocator that is created with it.
    pub per_process_memory_fraction: f64,
    /// Whether a request that would exceed that share is rejected, instead of releasing memory for it. If a
    /// limit that was set at run time is exceeded first, memory is released for that one.
    pub throw_on_cudamalloc_oom: bool,
}

/// Reads an environment variable, unless the program has more rights than its caller.
#[cfg(feature = "record")]
fn variable(name: &str) -> Option<String> {
    memtrack_recorder::environment::text(name)
}

/// Reads an environment variable. Without the recorder, none of them names a file.
#[cfg(not(feature = "record"))]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Default for AllocatorOptions {
    fn default() -> Self {
        Self {
            max_split_size: u64::MAX,
            max_non_split_rounding: LARGE_BUFFER,
            garbage_collection_threshold: 0.0,
            roundup: Roundup::default(),
            expandable_segments: false,
            large_segment_size: LARGE_BUFFER,
            reserve: Reserve::default(),
            per_process_memory_fraction: 1.0,
            throw_on_cudamalloc_oom: false,
        }
    }
}

/// The allocator that the settings select.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocatorBackend {
    /// The caching allocator.
    #[default]
    Native,
    /// The driver's stream-ordered pool.
    CudaMallocAsync,
}

impl AllocatorBackend {
    /// Returns PyTorch's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::CudaMallocAsync => "cudaMallocAsync",
        }
    }
}

/// All options, including those that the algorithm does not use, and the string that set them last.
///
/// ```
/// use memtrack_core::allocator::Settings;
///
/// let mut settings = Settings::parse("max_split_size_mb:64,expandable_segments:True").unwrap();
/// assert_eq!(settings.options().max_split_size, 64 << 20);
/// // As in PyTorch, an option that is not named falls back to its default, except for a few that stay.
/// settings.apply("garbage_collection_threshold:0.8").unwrap();
/// assert_eq!(settings.options().max_split_size, u64::MAX);
/// assert!(settings.options().expandable_segments);
/// ```
///
/// **Without effect.** All of PyTorch's keys are read, checked and reported; these change nothing here:
/// `release_lock_on_cudamalloc` (a device is locked while the driver allocates a segment; other devices are not),
/// `graph_capture_record_stream_reuse` (frees that other streams use wait for the end of a capture, as by default),
/// `expandable_segments_reserve_by_class` (only PyTorch's own C++ assigns streams to classes), and `pinned_*`, since no host
/// memory is allocated here.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    text: String,
    options: AllocatorOptions,
    /// `None` while the first string is read, which is the only one that may choose.
    backend: Option<AllocatorBackend>,
    others: UnusedOptions,
    warnings: Vec<String>,
}

/// Options that are kept and reported but change nothing here: they concern pinned memory, CUDA graphs and locking.
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
    /// Parses a string in the grammar of `PYTORCH_CUDA_ALLOC_CONF`.
    ///
    /// # Errors
    /// Fails when a key is unknown or a value is not allowed.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let mut settings = Self { backend: None, ..Self::default() };
        settings.apply(text)?;
        settings.backend.get_or_insert_default();
        Ok(settings)
    }

    /// Reads the settings of the environment: `PYTORCH_CUDA_ALLOC_CONF`, else `PYTORCH_HIP_ALLOC_CONF`, else
    /// `PYTORCH_ALLOC_CONF`, else the defaults. The first one that is set counts, even if it is empty.
    ///
    /// # Errors
    /// Fails as [`Self::parse`] does.
    pub fn from_environment() -> Result<Self, SettingsError> {
        let named = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
        match named.into_iter().find_map(variable) {
            Some(text) => Self::parse(&text),
            None => Ok(Self::default()),
        }
    }

    /// Changes options at run time, as PyTorch does: `max_split_size_mb`, `garbage_collection_threshold` and
    /// `roundup_power2_divisions` first fall back to their defaults, `max_non_split_rounding_mb` to the size of large segments;
    /// the others stay.
    ///
    /// # Errors
    /// Fails as [`Self::parse`] does. The options before the error then apply, as in PyTorch: the size of
    /// large segments is read first, CUDA-only options last. [`Self::text`] is `text`.
    pub fn apply(&mut self, text: &str) -> Result<(), SettingsError> {
        let fresh = AllocatorOptions::default();
        self.options.max_split_size = fresh.max_split_size;
        self.options.max_non_split_rounding = self.options.large_segment_size;
        self.options.garbage_collection_threshold = fresh.garbage_collection_threshold;
        self.options.roundup = fresh.roundup;
        text.clone_into(&mut self.text);
        self.warnings.clear();
        grammar::parse(text, self)
    }

    /// Returns the string that was applied last, valid or not.
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

    /// Returns the allocator that was selected at the start: `backend`.
    pub fn backend(&self) -> AllocatorBackend {
        self.backend.unwrap_or_default()
    }

    /// Returns the share of a device's memory that an allocator created with these settings may use:
    /// `per_process_memory_fraction` as it was set last.
    pub fn initial_fraction(&self) -> f64 {
        self.options.per_process_memory_fraction
    }
}
