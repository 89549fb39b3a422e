//! Arguments for `memtrack top`.

use super::device::DeviceArgs;
use super::{FileArgs, FormatArgs, OwnershipArgs, RowsArgs, TextArgs};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use memtrack_core::analysis::top::By;

/// Arguments for `memtrack top`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Examples:
  memtrack top train.memtrack                        the 20 operators that allocated most
  memtrack top train.memtrack --by stack -n 5        the 5 stacks that allocated most
  memtrack top snapshot.pickle --by line             the lines of your own code, with what each called
  memtrack top snapshot.pickle --by line --mine site-packages/ourlib --explain
                                                     … count a package as yours, and show which rule decided
  memtrack top snapshot.pickle --at peak --by file   who held what at the peak, by file
  memtrack top snapshot.pickle --at oom              … when memory last ran out
  memtrack top train.memtrack --at end --by line     what is still there, how old it is, and whether it grows
  memtrack top snapshot.pickle --at 1200 --by size   … after event 1200, by block size
  memtrack top train.memtrack --json                 the same as JSON
  memtrack top train.memtrack --symbols build/       find binaries that were moved
  memtrack top train.memtrack --pattern 'app::ops::*'  name operators after your own functions

Bytes are requested bytes, without what an allocator adds by rounding. Share: of all rows. Live at peak: what the row held
when the device held most. Growth: the row's bytes at the moment minus those halfway from the first event to it. Oldest: the
age of its oldest block. Median age: half of its bytes are at least that old. Where blocks were sampled, numbers have their
error (1.3 GiB ± 4 %) or are upper bounds (< 40.0 MiB); both hold with 95 % confidence. Without scopes, operators
(aten::mm), phases and modules are read from PyTorch's stacks; C++ stacks alone show no modules, and only the phase backward.
Your own code is everything outside installed packages, registries and system folders. memtrack.toml refines this, as
--mine and --not-mine do:
  [mine]
  paths = ['site-packages/ourlib']
  [not-mine]
  functions = ['app::generated::*']
Exit codes: 0 success, 2 wrong usage, 3 unreadable input or unwritable output.")]
pub(crate) struct RankArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,
    #[command(flatten)]
    pub(crate) rows: RowsArgs,
    /// How to group memory into rows [default: by operator if the file has scopes, else by stack]
    #[arg(long, value_parser = by_parser())]
    pub(crate) by: Option<By>,
    /// Rank memory that is live at a moment instead of everything allocated: peak, end, oom (the last), or an event's number in
    /// its device's trace
    #[arg(long, value_name = "MOMENT", value_parser = parse_at, allow_hyphen_values = true)]
    pub(crate) at: Option<At>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[command(flatten)]
    pub(crate) text: TextArgs,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) ownership: OwnershipArgs,
    /// Name operators after functions that match, such as 'my_crate::ops::*'
    #[arg(long = "pattern", value_name = "GLOB")]
    pub(crate) patterns: Vec<String>,
}

/// Returns a parser for the names of the groupings.
pub(super) fn by_parser() -> impl TypedValueParser<Value = By> {
    let names = By::ALL.map(|by| PossibleValue::new(by.name()).help(by.about()));
    // The parser accepts only these names, so the search always finds one.
    PossibleValuesParser::new(names)
        .map(|name| By::ALL.into_iter().find(|by| by.name() == name).unwrap_or(By::Stack))
}

/// A moment on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// The moment with the most live bytes.
    Peak,
    /// After the last event.
    End,
    /// The last time that memory ran out.
    Oom,
    /// After the event with this number.
    Event(usize),
}

pub(super) fn parse_at(text: &str) -> Result<At, String> {
    match text {
        "peak" => Ok(At::Peak),
        "end" => Ok(At::End),
        "oom" => Ok(At::Oom),
        number => number
            .parse()
            .map(At::Event)
            .map_err(|_| "expected peak, end, oom or the number of an event".into()),
    }
}
