//! The order of events. Each event gets a stamp: the clock's ticks, or more if necessary to exceed the newest stamp of
//! the address's shard of the live table and the newest stamp of the thread. The shard's newest stamp is read and
//! written while the shard is locked, so two events of one address never swap, however much the clocks of two
//! processors disagree; and there is no counter that all threads share. The stamps are a Lamport clock that runs close
//! to real time.

/// Returns the stamp of an event at `now` ticks.
#[inline(always)]
pub(crate) fn stamp(now: u64, newest_of_shard: u64, newest_of_thread: u64) -> u64 {
    now.max(newest_of_shard + 1).max(newest_of_thread + 1)
}
