//! Notes on entries that did not fit in the recorder's tables, for `top` and `summary`.

use memtrack_model::snapshot::Folded;
use memtrack_model::units::{counted, human_bytes};

/// Returns a line for each table that was full; `scopes` is the number of entries into scopes that did not fit.
pub(crate) fn folded_notes(scopes: u64, folded: &Folded) -> Vec<String> {
    let line = |count: u64, text: &dyn Fn() -> String| (count > 0).then(text);
    let scopes = line(scopes, &|| {
        format!(
            "scopes beyond what the recorder can distinguish were entered {}; their sums are in (other) and in the \
             deepest scopes.",
            counted(scopes, "time")
        )
    });
    let stacks = line(folded.stacks, &|| {
        let events = counted(folded.stacks, "event");
        format!("{events} had no stack recorded because the recorder's table of stacks was full.")
    });
    let threads = line(folded.threads, &|| {
        let (threads, verb) =
            (counted(folded.threads, "thread"), if folded.threads == 1 { "was" } else { "were" });
        format!("{threads} beyond what the recorder can distinguish {verb} recorded as the unknown thread.")
    });
    let blocks = line(folded.blocks, &|| {
        format!(
            "{} not tracked because as many were live as the recorder keeps (Options::live_blocks): small \
             ones were only counted, the events of others are included.",
            counted_with_verb(folded.blocks, "block")
        )
    });
    let driver = line(folded.driver_allocations, &|| {
        format!(
            "{} of {} by the CUDA driver are missing from the sums, for the same reason.",
            counted(folded.driver_allocations, "allocation"),
            human_bytes(folded.driver_bytes)
        )
    });
    [scopes, stacks, threads, blocks, driver].into_iter().flatten().collect()
}

fn counted_with_verb(count: u64, what: &str) -> String {
    format!("{} {}", counted(count, what), if count == 1 { "was" } else { "were" })
}
