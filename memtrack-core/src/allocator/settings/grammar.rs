//! The grammar of settings strings: `key:value,key:value`, where a value is a word or a list in brackets.

use super::roundup::Roundup;
use super::tokens::Tokens;
use super::{AllocatorBackend, Reserve, Settings, SettingsError};
use crate::allocator::sizes::LARGE_BUFFER;

const MIB: u64 = 1 << 20;

/// Applies the string from left to right.
pub(super) fn parse(text: &str, settings: &mut Settings) -> Result<(), SettingsError> {
    let tokens = Tokens::of(text);
    let mut place = 0;
    while place < tokens.len() {
        let key = tokens.get(place)?;
        place = option(key, &tokens, place + 1, settings).map_err(|error| error.of_key_unless_known(key))?;
        // Whatever follows a value counts as the comma.
        place += 2;
    }
    Ok(())
}

impl SettingsError {
    fn of_key_unless_known(self, key: &str) -> Self {
        if self.text().starts_with("Unrecognized key") { self } else { self.of_key(key) }
    }
}

/// Reads the value of `key`, whose colon is at `place`. Returns the place of the value's last token.
fn option(key: &str, tokens: &Tokens, place: usize, settings: &mut Settings) -> Result<usize, SettingsError> {
    const KEYS: [&str; 22] = [
        "backend",
        "max_split_size_mb",
        "max_non_split_rounding_mb",
        "garbage_collection_threshold",
        "roundup_power2_divisions",
        "expandable_segments",
        "expandable_segments_reserve",
        "expandable_segments_reserve_by_class",
        "large_segment_size_mb",
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
    if !KEYS.contains(&key) {
        return Err(SettingsError::value(format!(
            "Unrecognized key '{key}' in Accelerator allocator config."
        )));
    }
    tokens.expect(place, ":")?;
    let value = place + 1;
    let options = &mut settings.options;
    match key {
        "max_split_size_mb" => {
            let smallest = options.large_segment_size / MIB;
            options.max_split_size = at_least(tokens.integer(value)?, smallest, key)?;
        }
        "max_non_split_rounding_mb" => {
            options.max_non_split_rounding = at_least(tokens.integer(value)?, LARGE_BUFFER / MIB, key)?;
        }
        "garbage_collection_threshold" => {
            let threshold = tokens.float(value)?;
            if !(threshold > 0.0 && threshold < 1.0) {
                let text = "garbage_collect_threshold is invalid, set it in (0.0, 1.0)";
                return Err(SettingsError::value(text));
            }
            options.garbage_collection_threshold = threshold;
        }
        "roundup_power2_divisions" => return roundup(tokens, value, &mut options.roundup),
        "expandable_segments" => options.expandable_segments = tokens.truth(value)?,
        "expandable_segments_reserve" => {
            if let Some(reserve) = reserve(tokens.get(value)?, &mut settings.warnings) {
                options.reserve = reserve;
            }
        }
        "expandable_segments_reserve_by_class" => {
            return reserve_by_class(tokens, value, &mut settings.warnings);
        }
        "large_segment_size_mb" => {
            let size = tokens.integer(value)?;
            if size <= 10 {
                let text = "CachingAllocator option large_segment_size_mb must be > 10 MB";
                return Err(SettingsError::value(text));
            }
            // Larger ones than a device can have would only overflow.
            options.large_segment_size = size.min(1 << 38) * MIB;
        }
        "per_process_memory_fraction" => {
            let fraction = tokens.float(value)?;
            if !(0.0..=1.0).contains(&fraction) {
                let text = "per_process_memory_fraction is invalid, set it in [0.0, 1.0]";
                return Err(SettingsError::value(text));
            }
            settings.initial_fraction = fraction;
        }
        "backend" => backend(tokens.get(value)?, &mut settings.backend)?,
        _ => return other(key, tokens, value, settings),
    }
    Ok(value)
}

/// The options that are only kept.
fn other(key: &str, tokens: &Tokens, value: usize, settings: &mut Settings) -> Result<usize, SettingsError> {
    let others = &mut settings.others;
    match key {
        "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc" => {
            others.release_lock_on_cudamalloc = tokens.truth(value)?;
        }
        "graph_capture_record_stream_reuse" => {
            others.graph_capture_record_stream_reuse = tokens.truth(value)?;
        }
        "pinned_use_cuda_host_register" | "pinned_use_hip_host_register" => {
            others.pinned_use_cuda_host_register = tokens.truth(value)?
        }
        "pinned_num_register_threads" => {
            let threads = tokens.integer(value)?;
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
            others.pinned_num_register_threads = Some(threads);
        }
        "pinned_max_round_threshold_mb" => {
            others.pinned_max_round_threshold = Some(tokens.integer(value)?.saturating_mul(MIB));
        }
        "pinned_max_cached_size_mb" => {
            others.pinned_max_cached_size = Some(tokens.integer(value)?.saturating_mul(MIB));
        }
        "pinned_reserve_segment_size_mb" => {
            if tokens.integer(value)? == 0 {
                return Err(SettingsError::value("Pinned reserve segment size has to be greater than 0"));
            }
        }
        // "throw_on_cudamalloc_oom", "pinned_use_background_threads", "pinned_free_catch_all"
        _ => {
            tokens.truth(value)?;
        }
    }
    Ok(value)
}

/// A size in MiB that must not be too small, in bytes; one that is too large is cut.
fn at_least(mib: u64, smallest: u64, key: &str) -> Result<u64, SettingsError> {
    if mib < smallest {
        return Err(SettingsError::value(format!(
            "CachingAllocator option {key} too small, must be >= {smallest}"
        )));
    }
    Ok(mib.min(u64::MAX / MIB) * MIB)
}

/// The first string chooses the backend; later ones can only name the same.
fn backend(name: &str, chosen: &mut Option<AllocatorBackend>) -> Result<(), SettingsError> {
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

/// One number for all intervals, or `[256:1,512:2,>:8]`: MiB and divisions, `>` for all that is above the last.
fn roundup(tokens: &Tokens, value: usize, roundup: &mut Roundup) -> Result<usize, SettingsError> {
    let mut place = value;
    if tokens.get(place)? != "[" {
        let divisions = tokens.integer(place)?;
        if !divisions.is_power_of_two() {
            return Err(SettingsError::value("For roundups, the divisions has to be power of 2 "));
        }
        roundup.fill(0..Roundup::INTERVALS, divisions);
        return Ok(place);
    }
    let mut last: Option<usize> = None;
    place += 1;
    while tokens.get(place)? != "]" {
        let key = place;
        tokens.expect(key + 1, ":")?;
        let divisions = tokens.integer(key + 2)?;
        if divisions != 0 && !divisions.is_power_of_two() {
            let text = "For roundups, the divisions has to be power of 2 or 0 to disable roundup ";
            return Err(SettingsError::value(text));
        }
        if tokens.get(key)? == ">" {
            roundup.fill(last.unwrap_or(0) + 1..Roundup::INTERVALS, divisions);
        } else {
            let boundary = tokens.integer(key)?;
            if !boundary.is_power_of_two() {
                return Err(SettingsError::value("For roundups, the intervals have to be power of 2 "));
            }
            let interval = (boundary.ilog2() as usize).min(Roundup::INTERVALS - 1);
            // What is below the first key is as the first.
            roundup.fill(if last.is_none() { 0 } else { interval }..interval + 1, divisions);
            last = Some(interval);
        }
        place = key + 3;
        if tokens.get(place)? != "]" {
            tokens.expect(place, ",")?;
            place += 1;
        }
    }
    Ok(place)
}

/// A reserve; one that cannot be read is passed over, as in PyTorch.
fn reserve(text: &str, warnings: &mut Vec<String>) -> Option<Reserve> {
    let read = Reserve::parse(text);
    if read.is_none() {
        warnings.push(format!(
            "Ignoring invalid expandable-segment reserve value '{text}' in PYTORCH_CUDA_ALLOC_CONF (expected a positive, \
             finite fraction like 0.5 or an absolute size like 40G); using default."
        ));
    }
    read
}

/// `[name:reserve,name:reserve]`: reserves of streams of a class. Only PyTorch's own code puts streams into classes, so
/// that all are of none here and the values are only read.
fn reserve_by_class(
    tokens: &Tokens,
    value: usize,
    warnings: &mut Vec<String>,
) -> Result<usize, SettingsError> {
    tokens.expect(value, "[")?;
    let mut place = value + 1;
    while tokens.get(place)? != "]" {
        tokens.expect(place + 1, ":")?;
        reserve(tokens.get(place + 2)?, warnings);
        place += 3;
        if tokens.get(place)? == "," {
            place += 1;
        }
    }
    Ok(place)
}
