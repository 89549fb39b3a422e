//! The grammar of settings strings: `key:value,key:value`, where a value is a word or a list in brackets.
//!
//! As in PyTorch, a string is parsed three times: first for the size of large segments, on which other values depend;
//! then for the options for all accelerators; and finally for the options for CUDA only. So if there is an error in an
//! option for CUDA only, all options of the first two kinds still take effect, wherever they are in the string.

use super::tokens::Tokens;
use super::{AllocatorBackend, AllocatorOptions, Reserve, Roundup, Settings, SettingsError};

const MIB: u64 = 1 << 20;

const KEYS: [&str; 22] = [
    "backend",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "expandable_segments",
    "expandable_segments_reserve",
    "expandable_segments_reserve_by_class",
    LARGE_SEGMENT_SIZE_KEY,
    "per_process_memory_fraction",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "graph_capture_record_stream_reuse",
    "throw_on_cudamalloc_oom",
    "pinned_num_register_threads",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_free_catch_all",
    "pinned_use_background_threads",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
    "pinned_reserve_segment_size_mb",
];

const LARGE_SEGMENT_SIZE_KEY: &str = "large_segment_size_mb";

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
        parse(text, self)
    }
}

/// Parses a string and applies its options.
fn parse(text: &str, settings: &mut Settings) -> Result<(), SettingsError> {
    let tokens = Tokens::of(text);
    apply_large_segment_size(&tokens, settings).map_err(|error| error.in_value_of(LARGE_SEGMENT_SIZE_KEY))?;
    // If the string does not contain `max_non_split_rounding_mb`, its value is the size of large segments.
    settings.options.max_non_split_rounding = settings.options.large_segment_size;
    apply_pass("Accelerator", &tokens, settings, parse_common_option)?;
    apply_pass("CUDA", &tokens, settings, parse_cuda_option)
}

/// A function that parses the value of a key at an index and returns the index of the value's last token, or `None` if
/// the key does not belong to the pass.
type ReadOption = fn(&str, &Tokens, usize, &mut Settings) -> Result<Option<usize>, SettingsError>;

/// Applies the options that belong to one pass.
fn apply_pass(
    name: &str,
    tokens: &Tokens,
    settings: &mut Settings,
    option: ReadOption,
) -> Result<(), SettingsError> {
    let mut index = 0;
    while index < tokens.len() {
        let key = tokens.get(index)?;
        if !KEYS.contains(&key) {
            return Err(SettingsError::value(format!(
                "Unrecognized key '{key}' in {name} allocator config."
            )));
        }
        // Any token after a key counts as the colon, and any token after a value as the comma.
        let value = index + 2;
        let read = option(key, tokens, value, settings).and_then(|last| match last {
            Some(last) => Ok(last),
            None => tokens.find_value_end(value),
        });
        index = read.map_err(|error| error.in_value_of(key))? + 2;
    }
    Ok(())
}

/// Applies the size of large segments, wherever its key is in the string.
fn apply_large_segment_size(tokens: &Tokens, settings: &mut Settings) -> Result<(), SettingsError> {
    for index in 0..tokens.len() {
        if tokens.get(index)? != LARGE_SEGMENT_SIZE_KEY {
            continue;
        }
        let size = tokens.parse_integer(index + 2)?;
        if size <= 10 {
            let text = "CachingAllocator option large_segment_size_mb must be > 10 MB";
            return Err(SettingsError::value(text));
        }
        // Larger sizes, which no device has, would cause an overflow.
        settings.options.large_segment_size = size.min(1 << 38) * MIB;
    }
    Ok(())
}

/// Parses the value of `key`, if it is an option for all accelerators, and returns the index of the value's last token.
fn parse_common_option(
    key: &str,
    tokens: &Tokens,
    value: usize,
    settings: &mut Settings,
) -> Result<Option<usize>, SettingsError> {
    let (options, others) = (&mut settings.options, &mut settings.others);
    let smallest = options.large_segment_size / MIB;
    match key {
        "max_split_size_mb" => {
            options.max_split_size = mib_to_bytes_at_least(tokens.parse_integer(value)?, smallest, key)?;
        }
        "max_non_split_rounding_mb" => {
            options.max_non_split_rounding =
                mib_to_bytes_at_least(tokens.parse_integer(value)?, smallest, key)?;
        }
        "garbage_collection_threshold" => {
            let threshold = tokens.parse_float(value)?;
            if !(threshold > 0.0 && threshold < 1.0) {
                let text = "garbage_collect_threshold is invalid, set it in (0.0, 1.0)";
                return Err(SettingsError::value(text));
            }
            options.garbage_collection_threshold = threshold;
        }
        "roundup_power2_divisions" => return parse_roundup(tokens, value, &mut options.roundup).map(Some),
        "expandable_segments" => options.expandable_segments = tokens.parse_boolean(value)?,
        "pinned_use_background_threads" => {
            tokens.parse_boolean(value)?;
        }
        "pinned_max_round_threshold_mb" => {
            others.pinned_max_round_threshold = Some(tokens.parse_integer(value)?.wrapping_mul(MIB));
        }
        "pinned_max_cached_size_mb" => {
            others.pinned_max_cached_size = Some(tokens.parse_integer(value)?.wrapping_mul(MIB));
        }
        _ => return Ok(None),
    }
    Ok(Some(value))
}

/// Converts a size from MiB to bytes and checks that it is at least `smallest` MiB. A size that is too large is
/// truncated.
fn mib_to_bytes_at_least(mib: u64, smallest: u64, key: &str) -> Result<u64, SettingsError> {
    if mib < smallest {
        return Err(SettingsError::value(format!(
            "CachingAllocator option {key} too small, must be >= {smallest}"
        )));
    }
    Ok(mib.min(u64::MAX / MIB) * MIB)
}

/// Parses either one number of divisions for all intervals, or a list of MiB and divisions such as `[256:1,512:2,>:8]`,
/// where `>` stands for all sizes above the last one.
fn parse_roundup(tokens: &Tokens, value: usize, roundup: &mut Roundup) -> Result<usize, SettingsError> {
    let mut index = value;
    if tokens.get(index)? != "[" {
        let divisions = tokens.parse_integer(index)?;
        if !divisions.is_power_of_two() {
            return Err(SettingsError::value("For roundups, the divisions has to be power of 2 "));
        }
        roundup.fill(0..Roundup::INTERVALS, divisions);
        return Ok(index);
    }
    let mut last: Option<usize> = None;
    index += 1;
    while tokens.get(index)? != "]" {
        let key = index;
        let divisions = tokens.parse_integer(key + 2)?;
        if divisions != 0 && !divisions.is_power_of_two() {
            let text = "For roundups, the divisions has to be power of 2 or 0 to disable roundup ";
            return Err(SettingsError::value(text));
        }
        if tokens.get(key)? == ">" {
            roundup.fill(last.unwrap_or(0) + 1..Roundup::INTERVALS, divisions);
        } else {
            let boundary = tokens.parse_integer(key)?;
            if !boundary.is_power_of_two() {
                return Err(SettingsError::value("For roundups, the intervals have to be power of 2 "));
            }
            let interval = (boundary.ilog2() as usize).min(Roundup::INTERVALS - 1);
            // Sizes below the first key use that key's divisions.
            roundup.fill(if last.is_none() { 0 } else { interval }..interval + 1, divisions);
            last = Some(interval);
        }
        index = key + 3;
        if tokens.get(index)? != "]" {
            tokens.expect(index, ",")?;
            index += 1;
        }
    }
    Ok(index)
}

/// Parses the value of `key`, if it is an option for CUDA only, and returns the index of the value's last token.
fn parse_cuda_option(
    key: &str,
    tokens: &Tokens,
    value: usize,
    settings: &mut Settings,
) -> Result<Option<usize>, SettingsError> {
    let others = &mut settings.others;
    match key {
        "backend" => parse_backend(tokens.get(value)?, &mut settings.backend)?,
        "expandable_segments_reserve" => {
            if let Some(reserve) = parse_reserve(tokens.get(value)?, &mut settings.warnings) {
                settings.options.reserve = reserve;
            }
        }
        "expandable_segments_reserve_by_class" => {
            return parse_reserve_by_class(tokens, value, &mut settings.warnings).map(Some);
        }
        "per_process_memory_fraction" => {
            let fraction = tokens.parse_float(value)?;
            if !(0.0..=1.0).contains(&fraction) {
                let text = "per_process_memory_fraction is invalid, set it in [0.0, 1.0]";
                return Err(SettingsError::value(text));
            }
            settings.options.per_process_memory_fraction = fraction;
        }
        "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => {
            others.release_lock_on_cudamalloc = tokens.parse_boolean(value)?;
        }
        "graph_capture_record_stream_reuse" => {
            others.graph_capture_record_stream_reuse = tokens.parse_boolean(value)?;
        }
        "throw_on_cudamalloc_oom" => {
            settings.options.throw_on_cudamalloc_oom = tokens.parse_boolean(value)?
        }
        "pinned_free_catch_all" => {
            tokens.parse_boolean(value)?;
        }
        "pinned_use_cuda_host_register" | "pinned_use_hip_host_register" => {
            others.pinned_use_cuda_host_register = tokens.parse_boolean(value)?;
        }
        "pinned_num_register_threads" => {
            others.pinned_num_register_threads = Some(parse_thread_count(tokens, value)?)
        }
        "pinned_reserve_segment_size_mb" => {
            if tokens.parse_integer(value)? == 0 {
                return Err(SettingsError::value("Pinned reserve segment size has to be greater than 0"));
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(value))
}

fn parse_thread_count(tokens: &Tokens, value: usize) -> Result<u64, SettingsError> {
    let threads = tokens.parse_integer(value)?;
    if !threads.is_power_of_two() {
        return Err(SettingsError::value(format!(
            "Number of register threads has to be power of 2, got {threads}"
        )));
    }
    if threads > 128 {
        return Err(SettingsError::value(format!(
            "Number of register threads should be less than or equal to 128, got {threads}"
        )));
    }
    Ok(threads)
}

/// Parses the backend. The first settings string selects it; later strings can only name the same one.
fn parse_backend(name: &str, chosen: &mut Option<AllocatorBackend>) -> Result<(), SettingsError> {
    let backends = [AllocatorBackend::Native, AllocatorBackend::CudaMallocAsync];
    let Some(named) = backends.into_iter().find(|backend| backend.name() == name) else {
        let text = "Unknown allocator backend, options are native and cudaMallocAsync";
        return Err(SettingsError::value(text));
    };
    match *chosen.get_or_insert(named) {
        loaded if loaded == named => Ok(()),
        loaded => Err(SettingsError::internal(format!(
            "INTERNAL ASSERT FAILED: Allocator backend parsed at runtime != allocator backend parsed at load time, {} \
             != {}",
            named.name(),
            loaded.name()
        ))),
    }
}

/// Parses a reserve; an invalid one is ignored with a warning, as in PyTorch.
fn parse_reserve(text: &str, warnings: &mut Vec<String>) -> Option<Reserve> {
    let read = Reserve::parse(text);
    if read.is_none() {
        warnings.push(format!(
            "Ignoring invalid expandable-segment reserve value '{text}' in PYTORCH_CUDA_ALLOC_CONF (expected a positive, \
             finite fraction like 0.5 or an absolute size like 40G); using default."
        ));
    }
    read
}

/// Parses `[name:reserve,name:reserve]`, the reserves for classes of streams. Only PyTorch's internal code assigns
/// streams to classes, so the values are merely checked. As in PyTorch, any token is accepted in place of the
/// bracket and the colons.
fn parse_reserve_by_class(
    tokens: &Tokens,
    value: usize,
    warnings: &mut Vec<String>,
) -> Result<usize, SettingsError> {
    let mut index = value + 1;
    while tokens.get(index)? != "]" {
        parse_reserve(tokens.get(index + 2)?, warnings);
        index += 3;
        if tokens.get(index)? == "," {
            index += 1;
        }
    }
    Ok(index)
}
