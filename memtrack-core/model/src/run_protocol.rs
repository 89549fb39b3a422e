//! The protocol between the command `memtrack run` and the program that it starts: environment variables, and files
//! in a folder that the command creates.

/// The path of the recording of the program itself; its child processes append their process ids.
pub const OUTPUT: &str = "MEMTRACK_RUN_OUTPUT";
/// The process id of the `memtrack` command.
pub const COMMAND_PID: &str = "MEMTRACK_RUN_COMMAND";
/// The maximum number of events in the ring.
pub const MAX_ENTRIES: &str = "MEMTRACK_RUN_MAX_ENTRIES";
/// The maximum size of the recording, in bytes.
pub const MAX_BYTES: &str = "MEMTRACK_RUN_MAX_BYTES";
/// Which stacks are kept: `none`, `state`, `alloc` or `all`.
pub const STACKS: &str = "MEMTRACK_RUN_STACKS";
/// The occasions on which snapshots are also written: `oom`, `exit`, `signal`, with commas between them.
pub const SNAPSHOT_ON: &str = "MEMTRACK_RUN_SNAPSHOT_ON";
/// Set if the host's heap is recorded too.
pub const HOST: &str = "MEMTRACK_RUN_HOST";
/// The folder in which the processes that programs start are counted (`census`).
pub const PROCESSES: &str = "MEMTRACK_RUN_PROCESSES";
/// The number of started programs that begin a recording; the others are only counted.
pub const MAX_PROCESSES: &str = "MEMTRACK_RUN_MAX_PROCESSES";
/// The file in the folder [`PROCESSES`] that gets a byte from each program that can be recorded, even beyond the limit.
pub const BEGAN_FILE: &str = "began";
/// The file in the folder [`PROCESSES`] that gets a byte for each program that cannot be recorded.
pub const REFUSED_FILE: &str = "refused";
/// The file in the folder [`PROCESSES`] that gets a byte for each program that was started without memtrack's library in
/// its environment.
pub const WITHOUT_LIBRARY_FILE: &str = "without-library";
