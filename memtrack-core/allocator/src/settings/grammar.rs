//! The grammar of settings strings: `key:value,key:value`, where a value is a word or a list in brackets.
//!
//! As in PyTorch, a string is parsed three times: first for the size of large segments, on which other values depend;
//! then for the options for all accelerators; and finally for the options for CUDA only. So if there is an error in an
//! option for CUDA only, all options of the first two kinds still take effect, wherever they are in the string.

use super::tokens::Tokens;
use super::{Settings, SettingsError, all_accelerators, only_cuda};

pub(super) const MIB: u64 = 1 << 20;

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

/// Parses a string and applies its options.
pub(super) fn parse(text: &str, settings: &mut Settings) -> Result<(), SettingsError> {
    let tokens = Tokens::of(text);
    apply_large_segment_size(&tokens, settings).map_err(|error| error.in_value_of(LARGE_SEGMENT_SIZE_KEY))?;
    // If the string does not contain `max_non_split_rounding_mb`, its value is the size of large segments.
    settings.options.max_non_split_rounding = settings.options.large_segment_size;
    apply_pass("Accelerator", &tokens, settings, all_accelerators::parse_option)?;
    apply_pass("CUDA", &tokens, settings, only_cuda::parse_option)
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
