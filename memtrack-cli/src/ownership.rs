//! The rules that identify the user's own code. Globs from the command line take precedence, followed by those from
//! `memtrack.toml` and the built-in rules. The file is read from the current folder, or from the path in `--rules`:
//!
//! ```toml
//! [mine]
//! paths = ["site-packages/our_lib"]
//! functions = ["our_crate::*"]
//!
//! [not-mine]
//! paths = ["third_party"]
//! ```
//!
//! Globs on the command line that match no frame in a file are most likely misspelt, and a warning names them.

use crate::Streams;
use crate::args::{OwnershipArgs, RulesArgs};
use crate::error::CliError;
use memtrack_core::analysis::layout::Layout;
use memtrack_core::analysis::ownership::{Explanation, Rules};
use memtrack_core::analysis::top::TopRow;
use memtrack_core::analysis::units::printable;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::stack::symbols::Symbolizer;
use serde::Deserialize;
use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};

/// The rules file that is read by default.
const DEFAULT_RULES_FILE: &str = "memtrack.toml";

/// The maximum size of a rules file in bytes. Real rules files are short.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The number of rows that `--explain` explains.
const EXPLAINED_ROWS: usize = 3;

/// The contents of a rules file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct File {
    mine: Globs,
    not_mine: Globs,
}

/// The globs for one owner.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Globs {
    paths: Vec<String>,
    functions: Vec<String>,
}

/// Returns the rules from the command line and the rules file, combined with the built-in rules.
pub(crate) fn read_rules(args: &RulesArgs) -> Result<Rules, CliError> {
    check(args)?;
    let given = with_globs(Rules::new(), &args.mine, &args.not_mine);
    let path = args.rules.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_RULES_FILE));
    let text = match read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound && args.rules.is_none() => return Ok(given),
        Err(error) => return Err(CliError::input(&path, error)),
    };
    Ok(given.with_fallback(parse(&text).map_err(|why| CliError::input(&path, why))?))
}

/// Parses the rules in a file, or returns the error and the line it is in.
fn parse(text: &str) -> Result<Rules, String> {
    let file: File = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        format!("line {line}: {}", error.message().replace('\n', "; "))
    })?;
    let all = |globs: &Globs| [&globs.paths[..], &globs.functions].concat();
    Ok(with_globs(Rules::new(), &all(&file.mine), &all(&file.not_mine)))
}

/// Reads the text of a rules file.
fn read(path: &Path) -> io::Result<String> {
    if std::fs::metadata(path)?.len() > MAX_FILE_BYTES {
        return Err(io::Error::other("that is too long for a rules file"));
    }
    std::fs::read_to_string(path)
}

fn with_globs(rules: Rules, mine: &[String], not_mine: &[String]) -> Rules {
    let rules = mine.iter().fold(rules, |rules, glob| rules.mine(glob));
    not_mine.iter().fold(rules, |rules, glob| rules.not_mine(glob))
}

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
            streams.note(format_args!("memtrack: warning: no frame matches {}", printable(option)));
        }
    }
}

/// Rejects empty globs.
///
/// # Errors
/// Returns a usage error that names the option.
fn check(args: &RulesArgs) -> Result<(), CliError> {
    for (option, globs) in [("--mine", &args.mine), ("--not-mine", &args.not_mine)] {
        if globs.iter().any(|glob| glob.trim().is_empty()) {
            return Err(CliError::Usage(format!("{option}: the pattern is empty")));
        }
    }
    Ok(())
}

impl OwnershipArgs {
    /// Returns explanations for the first rows that have a stack, with `--explain`.
    pub(crate) fn explain_rows(&self, rules: &Rules, rows: &[TopRow]) -> Option<Vec<Explanation>> {
        let rows = rows.iter().filter(|row| !row.stack.is_empty()).take(EXPLAINED_ROWS);
        let explain = |row: &TopRow| rules.explain(row.stack.iter().map(|line| &line.frame));
        self.explain.then(|| rows.map(explain).collect())
    }

    /// Prints why the first rows are attributed to their lines, with `--explain`.
    pub(crate) fn print_explained(
        &self,
        rules: &Rules,
        rows: &[TopRow],
        layout: Layout,
        streams: &mut Streams<'_>,
    ) -> Result<(), CliError> {
        let Some(explained) = self.explain_rows(rules, rows) else { return Ok(()) };
        for explained in &explained {
            writeln!(streams.stdout, "\nOwners of frames: {}", explained.named)?;
            for line in explained.lines(layout.width.map(|width| width.saturating_sub(2))) {
                writeln!(streams.stdout, "  {line}")?;
            }
        }
        if explained.is_empty() {
            writeln!(
                streams.stdout,
                "\nNo row has a stack whose frames could be explained; see --by line or stack."
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_entries_are_reported_with_their_line() {
        for (text, expected) in [
            ("[mine]\npaths = []\npath = ['a']\n", "line 3: unknown field `path`"),
            ("\n[not_mine]\n", "line 2: unknown field `not_mine`"),
            ("[mine]\npaths = 'a'\n", "line 2: invalid type"),
            ("[mine\n", "line 1: "),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text:?}: {error}");
        }
    }

    #[test]
    fn rules_file_has_same_effect_as_options() {
        let text =
            "[mine]\npaths = ['site-packages/ourlib']\n[not-mine]\nfunctions = ['app::generated::*']\n";
        let options = Rules::new().mine("site-packages/ourlib").not_mine("app::generated::*");
        assert_eq!(parse(text).unwrap(), options);
        assert_eq!(parse("").unwrap(), Rules::new());
    }

    #[test]
    fn named_file_must_exist() {
        let args = RulesArgs { rules: Some("/nowhere/rules.toml".into()), ..RulesArgs::default() };
        assert_eq!(read_rules(&args).unwrap_err().exit_code().code(), 3);
    }
}
