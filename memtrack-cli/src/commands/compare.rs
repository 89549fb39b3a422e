//! `memtrack compare`: which segments two snapshots do not share.

use crate::Streams;
use crate::args::CompareArgs;
use crate::error::{CliError, Exit};
use crate::load::load_segments;
use crate::plot::flame;
use crate::report::{mention_odd, print_json, refused};
use memtrack_core::viz::{SegmentKey, compare_folded, compare_usage, only_in};
use serde_json::json;
use std::path::Path;

/// Loads both snapshots, prints the addresses, then draws the rest or prints what would be drawn.
pub(crate) fn run(args: &CompareArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let flame = &args.flame;
    if args.before == Path::new("-") && args.after == Path::new("-") {
        return Err(CliError::Usage("only one of the two can be standard input".into()));
    }
    if !flame.folded && !flame.json {
        flame::check_target(&flame.output, flame.force)?;
    }
    let before = load_segments(&args.before, args.input, streams)?;
    let after = load_segments(&args.after, args.input, streams)?;
    let refused = |error| refused(&args.before, error);
    if flame.folded {
        let odd = compare_folded(&before, &after, &mut streams.stdout).map_err(refused)?;
        mention_odd(&odd, streams);
        return Ok(Exit::Fine);
    }
    let gone = only_in(&before, &after).map_err(refused)?;
    let new = only_in(&after, &before).map_err(refused)?;
    let [usage_gone, usage_new] = compare_usage(&before, &after).map_err(refused)?;
    if flame.json {
        let addresses = |keys: &[SegmentKey]| -> serde_json::Value {
            let segment = |key: &SegmentKey| json!({ "address": format!("{:#x}", key.address), "total_bytes": key.total_size as u64 });
            keys.iter().map(segment).collect()
        };
        let value = json!({
            "only_before": { "segments": addresses(&gone), "usage": usage_gone.to_json() },
            "only_after": { "segments": addresses(&new), "usage": usage_new.to_json() },
        });
        print_json(&value, streams)?;
    } else {
        for (name, keys) in [("only_before", &gone), ("only_after", &new)] {
            let addresses: Vec<_> = keys.iter().map(|key| key.address.to_string()).collect();
            writeln!(streams.stdout, "{name} = [{}]", addresses.join(", "))?;
        }
        let lines = [usage_gone.lines("only_before;"), usage_new.lines("only_after;")].concat();
        flame::write(&flame.output, "Segments that are only before or only after", &lines, streams)?;
    }
    for usage in [&usage_gone, &usage_new] {
        mention_odd(&usage.odd, streams);
    }
    Ok(Exit::Fine)
}
