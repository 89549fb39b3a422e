//! What a process's address space held beside the recorded blocks.

/// Numbers about the address space of a process that was recorded by `memtrack run`, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
pub struct AddressSpace {
    /// The highest resident set that the command saw; 0 if it saw none. It includes code, stacks, mapped files, and memtrack's
    /// own memory. It is a lower bound, because the command looks only from time to time, and not after the end.
    pub max_resident_bytes: u64,
    /// The highest number of resident bytes that the command saw that were not pages of files or of shared memory; 0 if it
    /// saw none.
    pub max_anonymous_bytes: u64,
    /// The addresses that the process had mapped at the end without memory behind them (`PROT_NONE`).
    pub reserved_bytes: u64,
    /// The highest value of [`Self::reserved_bytes`].
    pub max_reserved_bytes: u64,
    /// The mapped files at the end whose pages are not the process's own memory.
    pub file_bytes: u64,
    /// The highest value of [`Self::file_bytes`].
    pub max_file_bytes: u64,
    /// The addresses at the end whose pages become memory when the process writes to them (`MAP_NORESERVE`, pages given back by
    /// `madvise`). Those that were memory are among the recorded blocks, as the command read them from time to time.
    pub on_demand_bytes: u64,
    /// The highest value of [`Self::on_demand_bytes`].
    pub max_on_demand_bytes: u64,
}
