//! Limits how often the program can trigger an expensive operation: a service whose requests panic must not spend its
//! time writing recordings.

use std::time::{Duration, Instant};

/// The time until the operation is allowed again, relative to its duration: the operation may take a fiftieth of the
/// program's time.
const REST_FACTOR: u32 = 50;

/// A rate limit for an operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    next_allowed: Option<Instant>,
}

impl Pace {
    /// Returns whether the operation may be repeated.
    pub fn is_due(&self) -> bool {
        self.next_allowed.is_none_or(|until| Instant::now() >= until)
    }

    /// Notes that the operation was done, and how long it took.
    pub fn done(&mut self, cost: Duration) {
        self.next_allowed = Instant::now().checked_add(cost * REST_FACTOR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expensive_operation_is_not_due_again_soon() {
        let mut pace = Pace::default();
        assert!(pace.is_due());
        pace.done(Duration::from_secs(10));
        assert!(!pace.is_due());
        pace.done(Duration::ZERO);
        assert!(pace.is_due());
    }
}
