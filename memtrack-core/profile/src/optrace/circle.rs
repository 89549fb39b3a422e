//! Detects records that contain each other in a cycle.

use memtrack_model::optrace::Record;

/// Returns whether any record is its own ancestor.
pub(super) fn has_cycle(records: &[Record]) -> bool {
    // Each walk towards the root marks records with the walk's number. Reaching a record with the same number
    // is a cycle; reaching one of an earlier walk is not.
    let mut walked = vec![0; records.len()];
    for start in 0..records.len() {
        let mut at = start;
        loop {
            if walked[at] == start + 1 {
                return true;
            }
            if walked[at] != 0 {
                break;
            }
            walked[at] = start + 1;
            match records[at].parent {
                Some(parent) => at = parent as usize,
                None => break,
            }
        }
    }
    false
}
