//! Chooses one sentence of advice on what to do first. The first rule that applies determines the sentence.

use super::{Holder, Kind, WhoHolds};
use memtrack_model::units::{human_bytes, human_share};

/// A group that holds more than this share of the memory is named on its own in the advice.
const LARGE_SHARE: f64 = 0.2;
/// A group that holds more than this share of the memory holds most of it, so the advice is about this group alone.
const DOMINANT_SHARE: f64 = 0.5;

/// Returns advice on the held memory.
pub(super) fn format_advice(held: &WhoHolds, is_heap: bool) -> String {
    if let Some(advice) = format_refusal_advice(held) {
        return advice;
    }
    let cached = held.cached.map_or(0, |cached| cached.bytes());
    if cached > held.allocated_bytes && held.refused.is_none() {
        let (cached, allocated) = (human_bytes(cached), human_bytes(held.allocated_bytes));
        return format!(
            "this alone is no leak: {cached} are cached and {allocated} held; release the cache if others \
             need it (empty_cache, cuMemPoolTrimTo)"
        );
    }
    let Some(largest) = held.holders.first() else {
        return "no recorded memory is held: start recording earlier".to_owned();
    };
    match largest.kind {
        Kind::Older if largest.share > LARGE_SHARE => {
            return format!(
                "start recording earlier: {} of it was allocated before recording began, so its origin is \
                 unknown",
                human_share(largest.share)
            );
        }
        Kind::NoStack if largest.share > DOMINANT_SHARE => {
            let what = if is_heap { "stacks" } else { "stacks (Options::context, --stacks alloc)" };
            return format!("record {what}: the largest part has no stack");
        }
        _ => {}
    }
    // The memory that grew the most will probably continue to grow. Growth since the midpoint of the recording does not
    // count: a program may allocate all of its memory anew in each step, so that all memory at a peak is new.
    if let Some(grown) = held.grown.as_ref().filter(|grown| !grown.since_midpoint)
        && let Some((line, bytes)) = grown.most_line.as_ref().zip(grown.most_bytes)
        && *line != largest.line
        && bytes as f64 > LARGE_SHARE * held.allocated_bytes as f64
    {
        let bytes = grown.most_error.as_bytes(bytes);
        return format!("look at {line}: it grew by {bytes} since {}", grown.since);
    }
    format_holder_advice(largest)
}

/// Returns advice on a failed request; `None` if no request failed or if the largest holders are the cause.
fn format_refusal_advice(held: &WhoHolds) -> Option<String> {
    let refused = held.refused?;
    let requested = refused.requested_bytes;
    if refused.device_total_bytes.is_some_and(|total| requested > total) {
        let total = human_bytes(refused.device_total_bytes.unwrap_or_default());
        let requested = human_bytes(requested);
        return Some(format!(
            "look at what requests {requested}: a device of {total} can never hold that much"
        ));
    }
    if let Some(cached) = held.cached {
        let (bytes, largest) = (cached.allocator_bytes, cached.largest_bytes);
        if bytes >= requested
            && let Some(largest) = largest.filter(|&largest| largest < requested)
        {
            let (bytes, largest) = (human_bytes(bytes), human_bytes(largest));
            return Some(format!(
                "try expandable segments (expandable_segments:True): {bytes} are cached, in pieces of at most {largest}"
            ));
        }
        if cached.driver_pool_bytes >= requested {
            let bytes = human_bytes(cached.driver_pool_bytes);
            return Some(format!("trim the driver's pools (cuMemPoolTrimTo): they keep {bytes} unused"));
        }
    }
    let unseen = held.unseen.filter(|unseen| !unseen.is_resident && unseen.bytes > held.allocated_bytes)?;
    let (others, own) = (human_bytes(unseen.bytes), human_bytes(held.allocated_bytes));
    Some(format!(
        "see what else uses the device (memtrack gpus): {others} of its memory are not recorded here, and \
         {own} are held"
    ))
}

/// Returns advice to inspect the line of the largest holder.
fn format_holder_advice(largest: &Holder) -> String {
    let share = largest.error.as_share(largest.share);
    let line = &largest.line;
    match largest.kind {
        Kind::Foreign => format!(
            "inspect the stacks of the largest part, {share}, which has no line of your own: memtrack top"
        ),
        Kind::NoTime => {
            format!("symbolize the stacks later: memtrack summary on a dump or recording ({line}: {share})")
        }
        _ if largest.share > DOMINANT_SHARE => format!("look at {line}: {share} of the memory is from there"),
        _ if largest.share > LARGE_SHARE => format!("look at {line}, the largest part ({share})"),
        _ => format!("look at the largest parts together: {line} has the most, but only {share}"),
    }
}
