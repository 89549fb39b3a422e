//! Parses the options that PyTorch supports on all accelerators.

use super::grammar::MIB;
use super::roundup::Roundup;
use super::tokens::Tokens;
use super::{Settings, SettingsError};

/// Parses the value of `key`, if it is an option for all accelerators, and returns the index of the value's last token.
pub(super) fn parse_option(
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
