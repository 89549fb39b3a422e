//! Records that would be inside of each other.

use memtrack_model::optrace::Record;

/// Whether a record is inside of itself, by way of others.
pub(super) fn has_circle(records: &[Record]) -> bool {
    // Each walk upwards is marked with its own number; meeting it again is a circle, meeting an older one is not.
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
