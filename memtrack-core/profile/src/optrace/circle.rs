//! Detection of records that are inside each other.

use memtrack_model::optrace::Record;

/// Returns whether a record is inside itself, by way of others.
pub(super) fn has_circle(records: &[Record]) -> bool {
    // Each walk upwards marks records with its number; meeting the same number again is a cycle, meeting an
    // older one is not.
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
