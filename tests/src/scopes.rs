//! Shared parts of the tests of scopes: allocates blocks in scopes, and reads the scopes' exact sums from a recording.

use memtrack_core::event::DeviceId;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::snapshot::SnapshotFiles;
use memtrack_core::snapshot::recording::load_from;
use std::hint::black_box;

/// Allocates a block and frees it.
pub fn block(bytes: usize) {
    drop(black_box(Vec::<u8>::with_capacity(bytes)));
}

/// Returns the heap's bytes and blocks that were allocated in scopes whose path ends with `ends`.
///
/// # Panics
/// When the snapshot contains no sums of scopes.
pub fn sums(snapshot: &Snapshot, ends: &[&str]) -> [u64; 2] {
    let rows = snapshot.scope_sums_of(DeviceId::HOST).expect("the recorder keeps them");
    let is = |id| {
        let names: Vec<_> = snapshot.scopes.outwards(id).map(|step| step.name).collect();
        names.len() >= ends.len() && names.iter().zip(ends.iter().rev()).all(|(name, end)| name == end)
    };
    rows.filter(|row| is(row.scope))
        .fold([0, 0], |[b, n], row| [b + row.allocated_bytes, n + row.allocations])
}

/// Saves a snapshot and reads it back.
///
/// # Panics
/// When the snapshot is not read back completely.
pub fn read_back(snapshot: &Snapshot) -> Snapshot {
    let saved = snapshot.save_to(Vec::new()).expect("memory takes everything");
    let (loaded, report) = load_from(&saved[..]).expect("it can be read");
    assert_eq!((report.complete, report.unknown_ids), (true, 0));
    loaded
}
