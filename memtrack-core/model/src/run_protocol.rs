//! The protocol between the command `memtrack run` and the programs that it starts: environment variables. Everything
//! else passes through the shared memory that [`MEMORY`] names.

/// The path at which programs open the command's shared memory.
pub const MEMORY: &str = "MEMTRACK_RUN_MEMORY";
/// The context mode, which selects the stacks that are kept: `none`, `state`, `alloc` or `all`.
pub const STACKS: &str = "MEMTRACK_RUN_STACKS";
/// Set if the host heap is recorded as well; to [`EXACT`] if every block is.
pub const HOST: &str = "MEMTRACK_RUN_HOST";
/// The value of [`HOST`] if every block of the heap is recorded, at any cost.
pub const EXACT: &str = "exact";
/// The Python functions whose calls are marks, with commas between them; not set if the user has named none.
pub const MARK_ON: &str = "MEMTRACK_RUN_MARK_ON";
/// The Python function whose calls are marks named by an argument.
pub const MARK_FUNCTION: &str = "memtrack_mark";
