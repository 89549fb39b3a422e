//! The command line of the program. It is copied when the library is loaded, because some programs overwrite it later to change
//! the title of their process. A forked child has its parent's command line.

use super::arena::append;
use super::log::Record;
use memtrack_model::text::cut;
use std::sync::OnceLock;

/// The maximum number of bytes of the command line that are stored.
const MAX_BYTES: usize = 1024;

/// The program's arguments, with a null byte between them, truncated to [`MAX_BYTES`].
static COMMAND_LINE: OnceLock<String> = OnceLock::new();

/// Stores a copy of the command line.
pub(super) fn keep() {
    let mut text = String::new();
    for argument in std::env::args_os() {
        if !text.is_empty() {
            text.push('\0');
        }
        text.push_str(&argument.to_string_lossy());
        if text.len() > MAX_BYTES {
            break;
        }
    }
    // The command line is already set if the program links memtrack too.
    let _ = COMMAND_LINE.set(cut(&text, MAX_BYTES).to_owned());
}

/// Reports the command line to the command, if recording goes to shared memory.
pub(crate) fn log_command_line() {
    // This never waits, even in a forked child, because the command line was set before the fork.
    if let Some(text) = COMMAND_LINE.get() {
        append(&Record::CommandLine(text.into()));
    }
}
