//! A program that keeps creating new scopes fills a table, which grows no further: later scopes are counted under "(other)", and
//! earlier scopes are unchanged. The test runs alone, because it fills the table of its process.

use memtrack_core::analysis::top::{By, TopOptions, top};
use memtrack_core::event::DeviceId;
use memtrack_core::scope::Phase;
use memtrack_core::snapshot::Snapshot;
use memtrack_core::{host, scope};
use memtrack_tests::alone;
use memtrack_tests::scopes::{block, read_back, sums};

const MIB: i64 = 1 << 20;

#[test]
fn scopes_that_do_not_fit_are_counted_and_earlier_ones_stay() {
    const REQUESTS: u64 = 100_000;
    alone!();
    memtrack_core::start_monitor();
    {
        let _before = scope::module("before");
        block(10);
    }
    let own_before = host::own_bytes();
    for number in 0..REQUESTS {
        let name = format!("request {number}");
        let _request = scope::module(&name);
        block(100);
        let _operator = scope::operator("parse");
        block(1000);
    }
    let grown = host::own_bytes() - own_before;
    assert!(grown < 16 * MIB, "{grown}");
    {
        let _backward = scope::backward_named("a new backward pass");
        let _inside = scope::module("another");
        block(24);
        let _deeper = scope::operator("and another");
        block(25);
        assert_eq!(scope::current().place().phase, Some(Phase::Backward));
    }
    {
        let _before = scope::module("before");
        block(10);
    }
    let recording = memtrack_core::stop();
    let snapshot = read_back(recording.snapshot());
    assert!(snapshot.scopes.rows.len() <= 65_536);
    assert_eq!(sums(&snapshot, &["before"]), [20, 2]);
    let [bytes, blocks] = sums(&snapshot, &["(other)"]);
    let folded = snapshot.scope_sums.as_ref().unwrap().folded;
    // The first requests have separate scopes. Each later request entered two scopes that did not fit.
    let known = (0..REQUESTS).filter(|number| has_scope(&snapshot, *number)).count() as u64;
    assert!((20_000..65_536).contains(&known), "{known}");
    assert!(folded >= 2 * (REQUESTS - known), "{folded}");
    assert!(blocks >= 2 * (REQUESTS - known) + 2, "{blocks}");
    let all = snapshot.devices.iter().find(|row| row.device == DeviceId::HOST).unwrap();
    assert!(bytes < all.allocated_bytes);
    let total: u64 = snapshot.scope_sums_of(DeviceId::HOST).unwrap().map(|row| row.allocated_bytes).sum();
    assert_eq!(total, all.allocated_bytes);
    let phases = top(&snapshot, By::Phase, DeviceId::HOST, &TopOptions::default());
    let backward = phases.rows.iter().find(|row| row.name == "backward").expect("phases are kept");
    assert_eq!((backward.allocated_bytes, backward.count), (49, 2));
    let operators = top(&snapshot, By::Operator, DeviceId::HOST, &TopOptions::default());
    assert!(operators.to_text(None).contains("(other)"));
}

/// Returns whether a request has a separate scope; such a scope must contain exactly the request's one block.
fn has_scope(snapshot: &Snapshot, number: u64) -> bool {
    thread_local!(static ROWS: std::cell::RefCell<std::collections::HashMap<String, u64>> = Default::default());
    ROWS.with_borrow_mut(|rows| {
        if rows.is_empty() {
            for row in snapshot.scope_sums_of(DeviceId::HOST).unwrap() {
                let scope = &snapshot.scopes.rows[row.scope.index()];
                *rows.entry(scope.name.clone()).or_default() += row.allocated_bytes;
            }
        }
        let bytes = rows.get(&format!("request {number}"));
        assert!(bytes.is_none_or(|&bytes| bytes == 100), "{bytes:?}");
        bytes.is_some()
    })
}
