//! Addresses of entry points by name, and the rules by which `cuGetProcAddress` chooses among their versions.

use crate::entry::*;

/// The address of an entry point.
#[derive(Clone, Copy)]
pub(crate) struct Address(pub *const ());

// SAFETY: the address of a function, which never changes.
unsafe impl Sync for Address {}

// Defines `ENTRIES`, the entry points sorted by name, the stubs of those known only by name, and `STUBS`, the stubs' names.
include!(concat!(env!("OUT_DIR"), "/entries.rs"));

/// The flag that requests the variant for the per-thread default stream.
const PER_THREAD_STREAM: u64 = 2;

/// Each suffixed entry point newer than CUDA 4, and the first driver version in which the name without suffix refers to it.
const SINCE: &[(&str, i32)] = &[
    ("cuCtxCreate_v3", 11_040),
    ("cuCtxCreate_v4", 12_050),
    ("cuDeviceGetUuid_v2", 11_040),
    ("cuDevicePrimaryCtxRelease_v2", 11_000),
    ("cuDevicePrimaryCtxReset_v2", 11_000),
    ("cuDevicePrimaryCtxSetFlags_v2", 11_000),
    ("cuEventElapsedTime_v2", 12_080),
    ("cuGetProcAddress_v2", 12_000),
    ("cuIpcOpenMemHandle_v2", 11_000),
    ("cuMemAdvise_v2", 12_020),
    ("cuMemHostRegister_v2", 6_050),
    ("cuMemPrefetchAsync_v2", 12_020),
    ("cuStreamBeginCapture_v2", 10_010),
    ("cuStreamGetCaptureInfo_v2", 11_030),
    ("cuStreamGetCaptureInfo_v3", 12_030),
];
const SINCE_DEFAULT: i32 = 3_020;

/// Returns the entry point with a full name.
pub(crate) fn named(name: &str) -> Option<Address> {
    ENTRIES.binary_search_by_key(&name, |&(name, _)| name).ok().map(|index| ENTRIES[index].1)
}

/// Returns the entry point that a base name refers to in a program built for this version: the newest that this program
/// may use.
pub(crate) fn chosen(base: &str, version: i32, flags: u64) -> Option<Address> {
    let suffixes: &[&str] = if flags & PER_THREAD_STREAM == 0 { &[""] } else { &["_ptsz", ""] };
    for revision in ["_v4", "_v3", "_v2", ""] {
        let name = format!("{base}{revision}");
        if !revision.is_empty() && version < since(&name) {
            continue;
        }
        let found = suffixes.iter().find_map(|suffix| named(&format!("{name}{suffix}")));
        if found.is_some() {
            return found;
        }
    }
    None
}

fn since(name: &str) -> i32 {
    SINCE.iter().find(|&&(known, _)| known == name).map_or(SINCE_DEFAULT, |&(_, since)| since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_name_refers_to_the_newest_entry_of_its_version() {
        let is = |base, version, flags, name: &str| {
            chosen(base, version, flags).unwrap().0 == named(name).unwrap().0
        };
        assert!(is("cuMemAlloc", 3_020, 0, "cuMemAlloc_v2"));
        assert!(is("cuMemAllocAsync", 11_020, 0, "cuMemAllocAsync"));
        assert!(is("cuMemAllocAsync", 11_020, 2, "cuMemAllocAsync_ptsz"));
        assert!(is("cuMemFree", 3_020, 2, "cuMemFree_v2"), "without a per-thread variant: the only one");
        assert!(is("cuGetProcAddress", 11_030, 0, "cuGetProcAddress"));
        assert!(is("cuGetProcAddress", 12_000, 0, "cuGetProcAddress_v2"));
        assert!(chosen("cuNothing", 12_000, 0).is_none());
    }
}
