//! Monitoring that requests start, and that ends when none has needed it for a while. If the program monitors itself,
//! nothing is started or stopped here.

use crate::http::Response;
use memtrack_model::options::Options;
use memtrack_recorder::events::{generation, is_recorded_by_command, running_sums, session};
use memtrack_recorder::{background, reentry};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Starts monitoring, and returns whether it has started. `memtrack-core` passes it, because it also registers what the
/// recorder calls.
pub type StartMonitoring = fn(&Options) -> io::Result<bool>;

/// How requests start monitoring.
#[derive(Clone, Debug)]
pub struct Monitoring {
    /// The options of the recording.
    pub options: Options,
    /// The time without a request that needs the recording, after which monitoring stops.
    pub idle: Duration,
    /// The function that starts monitoring.
    pub start: StartMonitoring,
}

/// The monitoring of one set of endpoints.
#[derive(Debug)]
pub(super) struct Monitor {
    monitoring: Option<Monitoring>,
    shared: Arc<Shared>,
    /// The generation of the process in which `shared` was made. In a forked child, its lock may be held by a thread that
    /// does not exist there.
    generation: u32,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Whether monitoring was started here, and is on.
    is_started: bool,
    /// The requests that use the recording now.
    users: u32,
    last_use: Instant,
}

/// A request that uses the recording. If requests start monitoring, it does not end meanwhile.
#[derive(Debug)]
pub(super) struct InUse<'a>(Option<&'a Shared>);

impl Monitor {
    pub(super) fn new(monitoring: Option<Monitoring>) -> Self {
        let state = State { is_started: false, users: 0, last_use: Instant::now() };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        Self { monitoring, shared, generation: generation() }
    }

    /// Begins a use of the recording, and starts monitoring if it is off and requests may start it.
    ///
    /// # Errors
    /// Returns the response for the client if nothing is being monitored.
    pub(super) fn begin_use(&self) -> Result<InUse<'_>, Response<'static>> {
        if is_recorded_by_command() {
            let why =
                "this program is recorded by `memtrack run`: its profile is in that command's recording";
            return Err(Response::refusal(503, why));
        }
        let Some(monitoring) = &self.monitoring else {
            let why = "nothing is being monitored: call memtrack_core::start_monitor() when the program begins, or let the \
                       first request start it with ServeOptions::start_on_request";
            return running_sums().map(|_| InUse(None)).ok_or_else(|| Response::refusal(503, why));
        };
        if self.generation != generation() {
            let why = "this process was forked since: requests cannot start monitoring here; create the endpoints again";
            return Err(Response::refusal(503, why));
        }
        let mut state = self.shared.lock();
        if running_sums().is_none() {
            let refusal = |why: String| Response::refusal(503, &format!("monitoring cannot start: {why}"));
            match (monitoring.start)(&monitoring.options) {
                Ok(true) => {}
                Ok(false) => {
                    return Err(refusal(
                        "its options enable nothing, or the limit on address space is too low".into(),
                    ));
                }
                Err(error) => return Err(refusal(error.to_string())),
            }
            let (shared, idle) = (Arc::clone(&self.shared), monitoring.idle);
            if let Err(error) = background::spawn(c"memtrack-idle", move || shared.stop_when_idle(idle)) {
                drop(session::stop());
                return Err(refusal(format!("no thread to stop it later: {error}")));
            }
            state.is_started = true;
        }
        state.users += 1;
        Ok(InUse(Some(&self.shared)))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no request has used the recording for a while, and stops monitoring.
    fn stop_when_idle(&self, idle: Duration) {
        let mut state = self.lock();
        while state.is_started {
            let left = match state.users {
                0 => idle.saturating_sub(state.last_use.elapsed()),
                _ => idle,
            };
            if left.is_zero() {
                state.is_started = false;
                // The lock is held meanwhile, so that a request waits and then starts monitoring again.
                drop(session::stop());
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // In a forked child, the session is the parent's.
        if self.generation != generation() {
            return;
        }
        let _inside = reentry::enter();
        let is_started = std::mem::replace(&mut self.shared.lock().is_started, false);
        self.shared.changed.notify_all();
        if is_started {
            drop(session::stop());
        }
    }
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            let mut state = shared.lock();
            state.users -= 1;
            state.last_use = Instant::now();
        }
    }
}
