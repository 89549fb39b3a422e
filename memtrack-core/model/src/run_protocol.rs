//! The protocol between the command `memtrack run` and the program that it starts: environment variables, and files
//! in a folder of the command's.

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
/// The occasions on which snapshots are also written: `oom`, `exit`, `signal`, with commas between them.
pub const SNAPSHOT_ON: &str = "MEMTRACK_RUN_SNAPSHOT_ON";
/// Set where the host's heap is recorded too.
pub const HOST: &str = "MEMTRACK_RUN_HOST";
/// The folder in which processes are counted (`census`).
pub const PROCESSES: &str = "MEMTRACK_RUN_PROCESSES";
/// The number of started programs that begin a recording; the others are only counted.
pub const MAX_PROCESSES: &str = "MEMTRACK_RUN_MAX_PROCESSES";
/// The file in that folder for programs that began: a byte each.
pub const BEGAN: &str = "began";
/// The file in that folder for programs that cannot be recorded: a byte each.
pub const REFUSED: &str = "refused";
/// The file in that folder for programs that were started without memtrack's library in their environment: a byte
/// each.
pub const WITHOUT_LIBRARY: &str = "without-library";
