//! The recorder's protocols hold in every schedule: the models in `tests/programs/loom`, run by the model checker.

use memtrack_tests::nested;

#[test]
fn chunks_hand_over_and_stamps_hold_in_every_schedule() {
    let output = nested::cargo("loom", &["test"], &[]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("4 passed"), "{said}");
}
