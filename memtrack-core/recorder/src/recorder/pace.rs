//! How often something may be done that costs much and that the program sets off: a service whose requests panic must not
//! spend its time writing its recording.

use std::time::{Duration, Instant};

/// After something was done, it rests for so many times what it cost: it may take a fiftieth of the time.
const RESTS: u32 = 50;

/// When something was done last, and what it cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    rests_until: Option<Instant>,
}

impl Pace {
    /// Whether it may be done again.
    pub fn is_due(&self) -> bool {
        self.rests_until.is_none_or(|until| Instant::now() >= until)
    }

    /// It was done, and took so long.
    pub fn done(&mut self, cost: Duration) {
        self.rests_until = Instant::now().checked_add(cost * RESTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_much_rests_long() {
        let mut pace = Pace::default();
        assert!(pace.is_due());
        pace.done(Duration::from_secs(10));
        assert!(!pace.is_due());
        pace.done(Duration::ZERO);
        assert!(pace.is_due());
    }
}
