//! Warns about globs on the command line that match no frame in a file, because they are most likely misspelt.

use crate::Streams;
use crate::args::RulesArgs;
use crate::error::CliError;
use memtrack_core::analysis::ownership::Rules;
use memtrack_core::analysis::units::printable;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::Symbolizer;
use std::collections::HashSet;

/// The globs that no frame has matched so far.
pub(crate) struct Unmatched {
    /// Each option with its glob, and rules that consist of that glob alone.
    open: Vec<(String, Rules)>,
}

impl Unmatched {
    /// Creates the list of all globs on the command line.
    pub(crate) fn new(args: &RulesArgs) -> Self {
        let mut open: Vec<(String, Rules)> = Vec::new();
        let mine = args.mine.iter().map(|glob| (format!("--mine {glob}"), Rules::new().mine(glob)));
        let not_mine =
            args.not_mine.iter().map(|glob| (format!("--not-mine {glob}"), Rules::new().not_mine(glob)));
        for (option, rule) in mine.chain(not_mine) {
            // A glob that is given twice is listed only once.
            if !open.iter().any(|(known, _)| *known == option) {
                open.push((option, rule));
            }
        }
        Self { open }
    }

    /// Removes the globs that match a frame in a file. Costs nothing if no glob is left.
    pub(crate) fn scan(&mut self, snapshot: &Snapshot, symbols: &mut Symbolizer) {
        if self.open.is_empty() {
            return;
        }
        let blocks = snapshot.blocks.iter().map(|block| block.stack);
        let stacks: HashSet<_> =
            snapshot.events.stack.iter().copied().chain(blocks).filter(|stack| !stack.is_none()).collect();
        let mut seen = HashSet::new();
        for stack in stacks {
            for &key in snapshot.frame_keys(stack).iter().filter(|&&key| seen.insert(key)) {
                let frames = symbols.frames(key);
                self.open.retain(|(_, rule)| !frames.iter().any(|frame| rule.mentions(frame)));
                if self.open.is_empty() {
                    return;
                }
            }
        }
    }

    /// Reports the globs that no frame has matched.
    pub(crate) fn mention(&self, streams: &mut Streams<'_>) {
        for (option, _) in &self.open {
            // Ignore a failure to print this hint, because the report is correct without it.
            let _ = writeln!(streams.stderr, "memtrack: warning: no frame matches {}", printable(option));
        }
    }
}

/// Rejects empty globs.
///
/// # Errors
/// Returns a usage error that names the option.
pub(crate) fn check(args: &RulesArgs) -> Result<(), CliError> {
    for (option, globs) in [("--mine", &args.mine), ("--not-mine", &args.not_mine)] {
        if globs.iter().any(|glob| glob.trim().is_empty()) {
            return Err(CliError::Usage(format!("{option}: the pattern is empty")));
        }
    }
    Ok(())
}
