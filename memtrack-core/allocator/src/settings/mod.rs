//! The allocator's options, as in PyTorch: the values ([`AllocatorOptions`]), the parser of settings strings
//! (`grammar`), and their errors ([`SettingsError`]).
//!
//! **Which options have no effect?** Options for locks, CUDA graphs and pinned memory are only parsed and reported.

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

/// The options that the algorithm uses. All sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AllocatorOptions {
    /// Blocks of this size or more are never split; `u64::MAX` means no limit.
    pub max_split_size: u64,
    /// The maximum number of bytes by which an unsplit block may exceed the requested size.
    pub max_non_split_rounding: u64,
    /// Old cached blocks are released when reserved memory exceeds this share of the limit; 0 means that they never
    /// are.
    pub garbage_collection_threshold: f64,
    /// The rounding of requests between powers of two.
    pub roundup: Roundup,
    /// Whether new memory is mapped into growing ranges instead of being allocated as separate segments.
    pub expandable_segments: bool,
    /// The size of the segments that the large pool allocates from the device.
    pub large_segment_size: u64,
    /// The amount of address space that an expandable range reserves.
    pub reserve: Reserve,
    /// The share of the device's memory that an allocator may reserve. With `throw_on_cudamalloc_oom`, every request is
    /// checked against it; without that option, only its value at the allocator's creation has an effect.
    pub per_process_memory_fraction: f64,
    /// Whether a request that would exceed `per_process_memory_fraction` is rejected without first releasing cached
    /// memory. If a request exceeds a limit that was set at run time, cached memory is released nevertheless.
    pub throw_on_cudamalloc_oom: bool,
}

/// Reads an environment variable, unless the program has more privileges than its caller (setuid).
#[cfg(feature = "record")]
fn read_variable(name: &str) -> Option<String> {
    memtrack_recorder::environment::text(name)
}

/// Reads an environment variable. This is safe even in setuid programs, because without the recorder, no variable
/// contains the name of a file to write.
#[cfg(not(feature = "record"))]
fn read_variable(name: &str) -> Option<String> {
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
    /// Returns PyTorch's name for the allocator.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::CudaMallocAsync => "cudaMallocAsync",
        }
    }
}

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
    /// Parses a string in the grammar of `PYTORCH_CUDA_ALLOC_CONF`.
    ///
    /// # Errors
    /// Fails when a key is unknown or a value is invalid.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let mut settings = Self { backend: None, ..Self::default() };
        settings.apply(text)?;
        settings.backend.get_or_insert_default();
        Ok(settings)
    }

    /// Reads the settings from the environment: from `PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_HIP_ALLOC_CONF` or
    /// `PYTORCH_ALLOC_CONF`, in this order, or else uses the defaults. The first variable that is set applies, even if
    /// it is empty.
    ///
    /// # Errors
    /// The same as for [`Self::parse`].
    pub fn from_environment() -> Result<Self, SettingsError> {
        let named = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
        match named.into_iter().find_map(read_variable) {
            Some(text) => Self::parse(&text),
            None => Ok(Self::default()),
        }
    }

    /// Changes options at run time, as PyTorch does. `max_split_size_mb`, `garbage_collection_threshold` and
    /// `roundup_power2_divisions` are first reset to their defaults, and `max_non_split_rounding_mb` to the size of
    /// large segments; other options keep their values.
    ///
    /// # Errors
    /// The same as for [`Self::parse`]. As in PyTorch, options that are parsed before the error still take effect: the
    /// size of large segments is parsed first, and options for CUDA only are parsed last. [`Self::text`] then returns
    /// `text`.
    pub fn apply(&mut self, text: &str) -> Result<(), SettingsError> {
        let defaults = AllocatorOptions::default();
        self.options.max_split_size = defaults.max_split_size;
        self.options.max_non_split_rounding = self.options.large_segment_size;
        self.options.garbage_collection_threshold = defaults.garbage_collection_threshold;
        self.options.roundup = defaults.roundup;
        text.clone_into(&mut self.text);
        self.warnings.clear();
        grammar::parse(text, self)
    }

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
