//! `memtrack man`: the manual, generated from `--help`.

use super::prelude::*;
use crate::verbs::Cli;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write};

/// Write the manual: one man page per command
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack man ~/.local/share/man/man1               then: man memtrack, man memtrack-top
  memtrack man pages                                 to look at them: man ./pages/memtrack-top.1

Writes memtrack.1 and memtrack-COMMAND.1, about what this build of memtrack can do. Either all pages are written or none.
Exit codes: 0 success, 2 wrong usage, 3 unwritable output.")]
pub(crate) struct ManArgs {
    /// The folder for the man pages; it is created if it does not exist
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// Replace pages that exist
    #[arg(long)]
    pub(crate) force: bool,
}

/// Writes a page for the command itself and one for each verb.
pub(super) fn run(args: &ManArgs, streams: &mut Streams<'_>) -> Result<Exit, CliError> {
    let mut command = Cli::command();
    command.build();
    let verbs = command.get_subcommands().filter(|verb| has_page(verb)).cloned();
    let commands: Vec<Command> = std::iter::once(command.clone()).chain(verbs).collect();
    let target = |command: &Command| args.folder.join(format!("{}.1", page_name(command)));
    let targets: Vec<PathBuf> = commands.iter().map(target).collect();
    check_targets(targets.iter().map(PathBuf::as_path), args.force)?;
    fs::create_dir_all(&args.folder).map_err(|error| CliError::output(&args.folder, error))?;
    let mut pages = Vec::new();
    for (command, target) in commands.iter().zip(targets) {
        pages.push((target, render_page(command, &commands)?));
    }
    write_files(&pages)?;
    streams.note(format_args!("wrote {} pages to {}", pages.len(), args.folder.display()));
    Ok(Exit::Success)
}

fn has_page(verb: &Command) -> bool {
    verb.get_name() != "help"
}

/// Returns the name of a command's page, such as `memtrack-top` for `memtrack top`.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// Returns the page for a verb or for the whole command.
fn render_page(command: &Command, all: &[Command]) -> io::Result<Vec<u8>> {
    let (examples, notes, codes) = split_help(command);
    let is_whole = command.has_subcommands();
    let command = command.clone().after_help("").disable_help_subcommand(true);
    let man = Man::new(command.clone())
        .title(page_name(&command))
        .source(concat!("memtrack ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if !notes.is_empty() {
        write_section("NOTES", &notes, false, &mut page)?;
    }
    if is_whole {
        let verbs = all.iter().filter(|verb| !verb.has_subcommands());
        writeln!(page, ".SH COMMANDS")?;
        for verb in verbs {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            writeln!(page, ".TP\n\\fB{}\\fR(1)\n{}", escape(&page_name(verb)), escape(&about))?;
        }
    }
    man.render_options_section(&mut page)?;
    write_section("EXAMPLES", &examples, true, &mut page)?;
    write_section("EXIT STATUS", &codes, false, &mut page)?;
    if !is_whole {
        writeln!(page, ".SH SEE ALSO\n\\fBmemtrack\\fR(1)")?;
    }
    Ok(page)
}

/// Splits the text at the end of `--help` into examples, explanations, and exit codes.
fn split_help(command: &Command) -> (String, String, String) {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (rest, codes) = help.split_once("Exit codes: ").unwrap_or((&help, ""));
    let (examples, notes) = rest.split_once("\n\n").unwrap_or((rest, ""));
    let examples = examples.strip_prefix("Examples:\n").unwrap_or(examples);
    (examples.trim_end().to_owned(), notes.trim_end().to_owned(), codes.to_owned())
}

/// Writes a section of the page. If `as_is` is set, the line breaks in the text are preserved.
fn write_section(title: &str, text: &str, as_is: bool, page: &mut Vec<u8>) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    writeln!(page, ".SH {title:?}")?;
    if as_is {
        writeln!(page, ".nf")?;
    }
    for line in text.lines() {
        // An indented line is a command to type.
        let is_command = !as_is && line.starts_with("  ");
        match is_command {
            true => writeln!(page, ".br\n{}", escape(line))?,
            false => writeln!(page, "{}", escape(line))?,
        }
    }
    if as_is {
        writeln!(page, ".fi")?;
    }
    Ok(())
}

/// Escapes a line for `man`.
fn escape(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_escaped_for_man() {
        assert_eq!(escape(".TH --set 'a\\b'"), "\\&.TH \\-\\-set 'a\\eb'");
    }

    #[test]
    fn every_help_has_examples_and_exit_codes_for_its_page() {
        let mut command = Cli::command();
        command.build();
        for verb in command.get_subcommands().filter(|verb| has_page(verb)) {
            let (examples, _, codes) = split_help(verb);
            assert!(examples.contains(&format!("memtrack {}", verb.get_name())), "{}", verb.get_name());
            assert!(codes.starts_with('0') || verb.get_name() == "run", "{}", verb.get_name());
        }
    }
}
