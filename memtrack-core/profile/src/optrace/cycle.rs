//! Detects cycles of records that contain each other.

use memtrack_model::optrace::Record;

/// Returns whether any record is its own ancestor.
pub(super) fn has_cycle(records: &[Record]) -> bool {
    // Each walk towards the root marks the records it visits with its own number. Reaching a record that
    // already has this number means that there is a cycle. Reaching a record from an earlier walk does not.
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
