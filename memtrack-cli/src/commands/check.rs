//! `memtrack check`: a gate for CI.

use crate::Streams;
use crate::args::CheckArgs;
use crate::error::{CliError, Exit};
use crate::load::{in_pytorch_form, load};
use crate::report::{mention_reordered, print_json};
use memtrack_core::analysis::limits::{Found, Limits};

/// Loads the snapshot, compares it with the limits, and says in which way it exceeds them.
pub(crate) fn run(args: &CheckArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let loaded = load(&args.file.path, args.file.input, streams)?;
    if loaded.report.as_ref().is_some_and(|report| report.lost_bytes > 0) {
        // What is left of it may be within limits that the whole was not: a gate must not open for it.
        return Err(CliError::input(
            &args.file.path,
            "a recording whose end is missing cannot be checked; record it again",
        ));
    }
    let mut snapshot = in_pytorch_form(loaded.snapshot);
    mention_reordered(snapshot.order_by_time(), streams);
    let limits = Limits::new().peak(args.max_peak).leak(args.max_leak).fragmentation(args.max_fragmentation);
    let found = Found::of(&snapshot);
    let (exceeded, cannot_tell) = (found.exceeded(&limits), found.cannot_tell(&limits));
    let within = exceeded.is_empty() && cannot_tell.is_empty();
    if let Some(why) = found.blind(&limits).filter(|_| within) {
        return Err(CliError::Io(format!("cannot check {}: {why}", args.file.path.display())));
    }
    for caveat in found.caveats(&limits) {
        // A hint; when nobody can read it, the verdict is there all the same.
        let _ = writeln!(streams.stderr, "memtrack: warning: {caveat}");
    }
    if args.format.json {
        print_json(&found.to_json(&limits), streams)?;
    } else if within {
        writeln!(streams.stdout, "within the limits: {}", found.to_text())?;
    } else {
        let exceeded = exceeded.iter().map(|line| ("exceeded", line));
        for (verdict, line) in exceeded.chain(cannot_tell.iter().map(|line| ("cannot tell", line))) {
            writeln!(streams.stdout, "{verdict}: {line}")?;
        }
    }
    // What may be beyond a limit is not let through: a gate is there to keep it.
    Ok(if within { Exit::Fine } else { Exit::Finding })
}
