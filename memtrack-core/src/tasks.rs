//! Tasks: the memory of each request, connection or other future that the program tracks. What a task allocates on the heap
//! while it is polled belongs to it, on whichever thread, and until it is freed by whichever task. Reports add it up by the place
//! that makes the tasks: what running tasks hold, what ended ones left behind, and which tasks never end.
//!
#![cfg_attr(feature = "tokio", doc = "```")]
#![cfg_attr(not(feature = "tokio"), doc = "```ignore")]
//! use memtrack_core::{Options, analysis::moment::Moment, tasks};
//! use std::time::Duration;
//! # use memtrack_core::TrackingAllocator;
//! # #[global_allocator]
//! # static ALLOCATOR: TrackingAllocator = TrackingAllocator::system();
//!
//! async fn handle(request: usize) -> Vec<u8> {
//!     let answer = vec![0; 1000 * request];
//!     if request == 7 {
//!         std::future::pending::<()>().await; // waits for something that never comes
//!     }
//!     answer
//! }
//!
//! let runtime = tokio::runtime::Runtime::new()?;
//! memtrack_core::start_monitor_with(&Options::new().exact())?;
//! runtime.block_on(async {
//!     let requests: Vec<_> = (0..10).map(|request| tasks::named("handle", handle(request)).spawn()).collect();
//!     for (number, request) in requests.into_iter().enumerate() {
//!         if number != 7 {
//!             request.await.expect("the task does not panic");
//!         }
//!     }
//! });
//! let recording = memtrack_core::stop();
//! let report = recording.tasks(Moment::End, 10).expect("the program tracks tasks");
//! println!("{report}"); // … 7.2 KiB by running tasks of `handle (main.rs:19)`, 10 begun, 1 running …
//! let handle = &report.places[0];
//! assert_eq!((handle.begun, handle.running), (10, 1));
//! assert!(handle.by_running.live_bytes >= 7000 && report.oldest[0].held.live_bytes >= 7000);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! [`track`] and [`named`] return a future for any runtime, for `join_all` and for `select!`. With the feature `tokio`, a tracked
//! future has the methods `spawn`, `spawn_on`, `spawn_local` and `spawn_in` (a `JoinSet`), which also count the memory that tokio
//! allocates for the future; [`spawn`] is `track(…).spawn()`. With the feature `tracing`, a task without a name has that of the `tracing`
//! span in which it is made.
//!
//! **What belongs to a task?** What is allocated while it is polled, and while its future is dropped. Tasks inside a task are
//! tasks of their own. Work on other threads belongs to it if it enters it ([`current`]). Only memory of the host heap belongs to
//! tasks; blocks of devices do not.
//!
//! **Cost.** While nothing is monitored, a poll costs a load and a branch more. Otherwise it saves and restores one word; the begin
//! and the end of a task take a lock for one row each. docs/COSTS.md has the numbers.
//!
//! **Limits.** 32,768 tasks have a row with their times. Then the rows of tasks that have ended are used again; tasks beyond
//! that are counted, and their memory belongs to their place all the same. There are at most 4,094 places: name a task after
//! what it does, not after the request. Tasks that are made before the monitoring begins count from their first poll in it. The
//! recordings of `memtrack run` have no tasks.

pub use memtrack_recorder::tasks::{CurrentTask, TaskGuard, Tracked, current};

use memtrack_recorder::tasks::track_at;
use std::borrow::Cow;
use std::panic::Location;

/// Returns `future` as a task. It has the name of the current `tracing` span, with the feature `tracing`, and the position of
/// the caller.
///
#[cfg_attr(feature = "tracing", doc = "```")]
#[cfg_attr(not(feature = "tracing"), doc = "```ignore")]
/// use memtrack_core::tasks;
///
/// # tracing::subscriber::set_global_default(tracing_subscriber::registry())?;
/// memtrack_core::start_monitor();
/// let span = tracing::info_span!("handle_request");
/// let request = span.in_scope(|| tasks::track(async { vec![1u8; 1000] }));
/// # drop(request);
/// let recording = memtrack_core::stop();
/// assert!(recording.snapshot().tasks.places.iter().any(|place| place.name == "handle_request"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[track_caller]
pub fn track<F: Future>(future: F) -> Tracked<F> {
    track_at(span_name(), Location::caller(), future)
}

/// Returns `future` as a task with a name, such as `handle_request`, and the position of the caller. Reports add up tasks with
/// the same name and position, and at most 1 KiB of each name is kept for ever: name the kind of task, not the request.
#[track_caller]
pub fn named<F: Future>(name: impl Into<Cow<'static, str>>, future: F) -> Tracked<F> {
    track_at(name, Location::caller(), future)
}

/// Spawns `future` as a task on the current tokio runtime, as `tokio::spawn` does.
///
/// # Panics
/// Panics outside a tokio runtime.
#[cfg(feature = "tokio")]
#[track_caller]
pub fn spawn<F>(future: F) -> tokio::task::JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    track(future).spawn()
}

/// Returns the name of the current `tracing` span; empty if there is none, or if nothing is monitored.
fn span_name() -> &'static str {
    #[cfg(feature = "tracing")]
    if memtrack_recorder::switch::is_on(memtrack_recorder::switch::EVENTS) {
        let name = |dispatch: &tracing_core::Dispatch| {
            dispatch.current_span().metadata().map(tracing_core::Metadata::name)
        };
        return tracing_core::dispatcher::get_default(name).unwrap_or_default();
    }
    ""
}
