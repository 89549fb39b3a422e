//! Tests for scopes while they are turned on.

mod futures;
mod guards;

use super::current;
use super::nodes::ScopeNode;
use super::observer::ScopeObserver;
use super::testing::observe_this_thread;
use std::sync::Mutex;

/// Returns the path and operator of this thread's scope.
fn here() -> (String, Option<&'static str>) {
    let place = current().place();
    (place.prefix(), place.operator)
}

/// An observer that logs its notifications.
#[derive(Default)]
struct Log(Mutex<Vec<String>>);

impl Log {
    /// Creates a log that observes this thread.
    fn observing() -> &'static Self {
        let log: &'static Self = Box::leak(Box::default());
        observe_this_thread(Some(log));
        log
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn push(&self, what: &str, node: &ScopeNode) {
        self.0.lock().unwrap().push(format!("{what} {}", node.name()));
    }
}

impl ScopeObserver for Log {
    fn operator_finished(&self, node: &'static ScopeNode) {
        self.push("finished", node);
    }

    fn root_entered(&self, node: &'static ScopeNode) {
        self.push("entered", node);
    }

    fn root_left(&self, node: &'static ScopeNode) {
        self.push("left", node);
    }
}
