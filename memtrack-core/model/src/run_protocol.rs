//! How the command `memtrack run` and the program that it starts understand each other: variables of the environment, and
//! files in a folder of the command's.

/// The recording's file for the program itself; its children add their process ids.
pub const OUTPUT: &str = "MEMTRACK_RUN_OUTPUT";
/// The process id of the `memtrack` command.
pub const COMMAND: &str = "MEMTRACK_RUN_COMMAND";
/// The bound of the ring, in events.
pub const MAX_ENTRIES: &str = "MEMTRACK_RUN_MAX_ENTRIES";
/// The bound of the recording, in bytes.
pub const MAX_BYTES: &str = "MEMTRACK_RUN_MAX_BYTES";
/// Which stacks are kept: `none`, `state`, `alloc` or `all`.
pub const STACKS: &str = "MEMTRACK_RUN_STACKS";
/// When snapshots are written besides: `oom`, `exit`, `signal`, with commas between them.
pub const SNAPSHOT_ON: &str = "MEMTRACK_RUN_SNAPSHOT_ON";
/// Set where the host's heap is recorded too.
pub const HOST: &str = "MEMTRACK_RUN_HOST";
/// The folder in which processes are counted (`census`).
pub const PROCESSES: &str = "MEMTRACK_RUN_PROCESSES";
/// How many programs that were started begin a recording; the rest is counted.
pub const MAX_PROCESSES: &str = "MEMTRACK_RUN_MAX_PROCESSES";
/// In that folder, the file of programs that began: a byte each.
pub const BEGAN: &str = "began";
/// In that folder, the file of programs that cannot be recorded: a byte each.
pub const REFUSED: &str = "refused";
/// In that folder, the file of programs that were started without memtrack's library in their environment: a byte each.
pub const WITHOUT_LIBRARY: &str = "without-library";
