//! Private pools, which keep memory separate from ordinary requests, for `MemPool` and for CUDA graphs. Routes
//! determine the pool for each request.

use crate::state::hash_order_map::HashOrderMap;
use memtrack_model::event::StreamId;
use memtrack_model::snapshot::pytorch::MempoolId;
use std::collections::HashMap;
use std::fmt;
use std::thread::{self, ThreadId};

#[derive(Debug)]
pub(crate) struct PrivatePool {
    /// The number of the pair of pools that holds its small and large blocks.
    pub(crate) pair: u32,
    /// The number of users that may still request memory from the pool.
    pub(crate) users: u32,
}

/// The requests that a route applies to.
pub(crate) enum RouteFilter {
    /// The requests made by a thread: `use_mem_pool`.
    Thread(ThreadId),
    /// The requests for streams that belong to a capture. A request for such a stream must not query events or
    /// release memory.
    Capture(Box<dyn Fn(StreamId) -> bool + Send>),
}

/// A route that sends requests to a pool.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) to: MempoolId,
    pub(crate) applies_to: RouteFilter,
}

impl fmt::Debug for RouteFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread(thread) => thread.fmt(f),
            Self::Capture(_) => f.write_str("Capture"),
        }
    }
}

impl RouteFilter {
    fn matches(&self, stream: StreamId) -> bool {
        match self {
            Self::Thread(thread) => *thread == thread::current().id(),
            Self::Capture(is_captured) => is_captured(stream),
        }
    }
}

/// A device's private pools.
#[derive(Debug, Default)]
pub(crate) struct PrivatePools {
    pub(crate) pools: HashMap<MempoolId, PrivatePool>,
    /// Pools that receive no further requests, in the order in which they are emptied.
    pub(crate) freeable: HashOrderMap<MempoolId, MempoolId>,
    /// Pools that may serve requests for the default pool when memory runs out, in the order in which they are
    /// tried.
    pub(crate) on_oom: HashOrderMap<MempoolId, ()>,
    /// The routes, oldest first.
    pub(crate) routes: Vec<Route>,
    pub(crate) unused_pairs: Vec<u32>,
}

impl PrivatePools {
    /// Returns the pair of pools for the calling thread's requests on a stream, or 0 for the default pools.
    #[inline]
    pub(crate) fn routed_pair(&self, stream: StreamId) -> u32 {
        if self.routes.is_empty() {
            return 0;
        }
        let route = self.routes.iter().rev().find(|route| route.applies_to.matches(stream));
        route.and_then(|route| self.pools.get(&route.to)).map_or(0, |pool| pool.pair)
    }

    /// Returns whether a graph is being captured.
    #[inline]
    pub(crate) fn is_capturing(&self) -> bool {
        self.routes.iter().any(|route| matches!(route.applies_to, RouteFilter::Capture(_)))
    }

    /// Returns whether a stream is being captured. Requests for other streams work as usual during a capture, as in
    /// PyTorch 2.15, although PyTorch checks the thread's current stream instead.
    #[inline]
    pub(crate) fn captures(&self, stream: StreamId) -> bool {
        let is_captured = |route: &Route| matches!(&route.applies_to, RouteFilter::Capture(is_captured) if is_captured(stream));
        self.routes.iter().any(is_captured)
    }

    /// Returns the pairs of pools that may serve requests for the default pool when memory runs out.
    pub(crate) fn pairs_for_oom(&self) -> Vec<u32> {
        self.on_oom.keys().filter_map(|id| self.pools.get(&id)).map(|pool| pool.pair).collect()
    }

    /// Returns the pools without users, in the order in which they are emptied.
    pub(crate) fn unused_pools(&self) -> Vec<MempoolId> {
        self.freeable.keys().collect()
    }

    pub(crate) fn pair(&self, id: MempoolId) -> Option<u32> {
        self.pools.get(&id).map(|pool| pool.pair)
    }

    /// Returns the pairs of all private pools.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = u32> + '_ {
        self.pools.values().map(|pool| pool.pair)
    }
}
