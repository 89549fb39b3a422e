//! From names to addresses: all entries, and the rules by which `cuGetProcAddress` chooses among the versions of one.

use crate::entry::*;

/// Where an entry begins.
#[derive(Clone, Copy)]
pub(crate) struct Address(pub *const ());

// SAFETY: the address of a function, which never changes.
unsafe impl Sync for Address {}

// `ENTRIES`, sorted by name, the entries that are known by name only, and their names in `STUBS`.
include!(concat!(env!("OUT_DIR"), "/entries.rs"));

/// Ask for the per-thread default stream's twin.
const PER_THREAD_STREAM: u64 = 2;

/// The version from which a suffixed entry is what its base name means, for those that are younger than CUDA 4.
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
const SINCE_USUALLY: i32 = 3_020;

/// An entry by its full name.
pub(crate) fn named(name: &str) -> Option<Address> {
    ENTRIES.binary_search_by_key(&name, |&(name, _)| name).ok().map(|index| ENTRIES[index].1)
}

/// What a base name means for a program built for this version: the newest form that is old enough.
pub(crate) fn chosen(base: &str, version: i32, flags: u64) -> Option<Address> {
    let suffixes: &[&str] = if flags & PER_THREAD_STREAM == 0 { &[""] } else { &["_ptsz", ""] };
    for form in ["_v4", "_v3", "_v2", ""] {
        let name = format!("{base}{form}");
        if !form.is_empty() && version < since(&name) {
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
    SINCE.iter().find(|&&(known, _)| known == name).map_or(SINCE_USUALLY, |&(_, since)| since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_name_means_the_newest_form_that_is_old_enough() {
        let is = |base, version, flags, name: &str| {
            chosen(base, version, flags).unwrap().0 == named(name).unwrap().0
        };
        assert!(is("cuMemAlloc", 3_020, 0, "cuMemAlloc_v2"));
        assert!(is("cuMemAllocAsync", 11_020, 0, "cuMemAllocAsync"));
        assert!(is("cuMemAllocAsync", 11_020, 2, "cuMemAllocAsync_ptsz"));
        assert!(is("cuMemFree", 3_020, 2, "cuMemFree_v2"), "no twin: the only form");
        assert!(is("cuGetProcAddress", 11_030, 0, "cuGetProcAddress"));
        assert!(is("cuGetProcAddress", 12_000, 0, "cuGetProcAddress_v2"));
        assert!(chosen("cuNothing", 12_000, 0).is_none());
    }
}
