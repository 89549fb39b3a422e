//! Parses the options that PyTorch supports only on CUDA.

use super::tokens::Tokens;
use super::{AllocatorBackend, Reserve, Settings, SettingsError};

/// Parses the value of `key`, if it is an option for CUDA only, and returns the index of the value's last token.
pub(super) fn parse_option(
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
