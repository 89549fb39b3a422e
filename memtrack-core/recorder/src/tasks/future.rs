//! A future that is a task: its id is the thread's current task while it is polled or dropped, and the previous one is restored
//! afterwards, however the poll is left. While nothing is recorded, a poll costs a load and a branch more.

use pin_project_lite::pin_project;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

#[cfg(feature = "record")]
use super::{places, table, table::BegunTask};
#[cfg(feature = "record")]
use crate::{events, reentry, settings, shared_memory, switch};
use memtrack_model::event::TaskId;

/// `None` once the future was ready while its task was recorded, so that it is dropped inside the task.
#[cfg(feature = "record")]
type Inner<F> = Option<F>;
#[cfg(not(feature = "record"))]
type Inner<F> = F;

pin_project! {
    /// A future that is a task: what it allocates while it is polled belongs to it. Any runtime can poll it.
    #[must_use = "futures do nothing unless polled"]
    pub struct Tracked<F> {
        #[pin]
        future: Inner<F>,
        task: Identity,
    }

    impl<F> PinnedDrop for Tracked<F> {
        fn drop(this: Pin<&mut Self>) {
            #[cfg(feature = "record")]
            {
                let mut this = this.project();
                if this.future.is_none() {
                    return;
                }
                let task = this.task.begun_in_this_session();
                let _end = End(task);
                let _current = TaskGuard::of(task);
                this.future.set(None);
            }
        }
    }
}

/// The place of a task, and the task itself once it has begun in a session.
#[cfg(feature = "record")]
struct Identity {
    name: Cow<'static, str>,
    location: &'static Location<'static>,
    /// The session that `begun` belongs to, as [`session`] returns it.
    session: u64,
    begun: Option<BegunTask>,
}

#[cfg(not(feature = "record"))]
type Identity = ();

/// Returns a number of the session that also changes in a forked child, whose table of tasks is new.
#[cfg(feature = "record")]
#[inline(always)]
fn session() -> u64 {
    settings::session() << 32 | u64::from(events::generation())
}

#[cfg(feature = "record")]
impl Identity {
    /// Returns the task, which begins in this session if it has not yet; `None` while nothing is recorded.
    #[inline(always)]
    fn begun(&mut self) -> Option<BegunTask> {
        if !switch::is_on(switch::EVENTS) {
            return None;
        }
        if self.session != session() {
            self.begin();
        }
        self.begun
    }

    #[cold]
    #[inline(never)]
    fn begin(&mut self) {
        if reentry::is_inside() {
            return;
        }
        self.session = session();
        // The command reads no tasks.
        self.begun = match shared_memory::is_connected() {
            true => None,
            false => table::begin(places::number_of(&self.name, self.location)),
        };
    }

    /// Returns the task if it has begun in the session that runs now.
    fn begun_in_this_session(&self) -> Option<BegunTask> {
        self.begun.filter(|_| switch::is_on(switch::EVENTS) && self.session == session())
    }
}

/// Ends a task when it is dropped, also if the future's destructor panics.
#[cfg(feature = "record")]
struct End(Option<BegunTask>);

#[cfg(feature = "record")]
impl Drop for End {
    fn drop(&mut self) {
        if let Some(task) = self.0 {
            table::end(task);
        }
    }
}

/// Returns `future` as a task with a name, which may be empty, that is made at `location`.
pub fn track_at<F: Future>(
    name: impl Into<Cow<'static, str>>,
    location: &'static Location<'static>,
    future: F,
) -> Tracked<F> {
    #[cfg(feature = "record")]
    {
        let mut task = Identity { name: name.into(), location, session: 0, begun: None };
        task.begun();
        Tracked { future: Some(future), task }
    }
    #[cfg(not(feature = "record"))]
    {
        let _ = (name.into(), location);
        Tracked { future, task: () }
    }
}

impl<F: Future> Tracked<F> {
    /// Makes this the current task of the thread until the guard is dropped: for memory that is allocated on behalf of the
    /// task before it is polled, such as the memory that a runtime allocates for the future.
    pub fn enter(&mut self) -> TaskGuard {
        #[cfg(feature = "record")]
        return TaskGuard::of(self.task.begun());
        #[cfg(not(feature = "record"))]
        TaskGuard { not_send: PhantomData }
    }

    #[cfg(feature = "record")]
    #[inline(always)]
    fn poll_in_task(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let mut this = self.project();
        let mut future =
            this.future.as_mut().as_pin_mut().expect("a tracked future was polled after it was ready");
        let Some(task) = this.task.begun() else { return future.poll(context) };
        let mut end = End(None);
        let _current = TaskGuard::of(Some(task));
        let poll = future.as_mut().poll(context);
        if poll.is_ready() {
            end.0 = Some(task);
            this.future.set(None);
        }
        poll
    }
}

impl<F: Future> Future for Tracked<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        #[cfg(feature = "record")]
        return self.poll_in_task(context);
        #[cfg(not(feature = "record"))]
        self.project().future.poll(context)
    }
}

impl<F> fmt::Debug for Tracked<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracked").finish_non_exhaustive()
    }
}

/// A task of the program, for code that works on its behalf elsewhere. See [`current`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CurrentTask {
    id: TaskId,
}

/// Returns the task that the calling thread polls, to continue its work on another thread.
///
/// ```
/// let task = memtrack_core::tasks::current();
/// std::thread::spawn(move || {
///     let _task = task.enter();
///     // memory allocated here belongs to the task
/// });
/// ```
#[inline]
pub fn current() -> CurrentTask {
    CurrentTask {
        #[cfg(feature = "record")]
        id: TaskId(reentry::task()),
        #[cfg(not(feature = "record"))]
        id: TaskId::NONE,
    }
}

impl CurrentTask {
    /// Makes this the current task of the calling thread until the guard is dropped.
    #[inline]
    pub fn enter(self) -> TaskGuard {
        TaskGuard {
            #[cfg(feature = "record")]
            previous: Some(reentry::replace_task(self.id.0)),
            not_send: PhantomData,
        }
    }

    /// Returns the id of the task in recordings; none outside all tasks.
    #[inline]
    pub fn id(self) -> TaskId {
        self.id
    }
}

/// A guard for a task that is current on the thread while the guard exists. Dropping it restores the previous task.
#[must_use = "the task is current until the guard is dropped: bind it to a name such as `_task`"]
#[derive(Debug)]
pub struct TaskGuard {
    /// The previous task, unless nothing was changed.
    #[cfg(feature = "record")]
    previous: Option<u64>,
    /// Keeps the guard on this thread.
    not_send: PhantomData<*const ()>,
}

#[cfg(feature = "record")]
impl TaskGuard {
    #[inline(always)]
    fn of(task: Option<BegunTask>) -> Self {
        Self { previous: task.map(|task| reentry::replace_task(task.id.0)), not_send: PhantomData }
    }
}

#[cfg(feature = "record")]
impl Drop for TaskGuard {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(previous) = self.previous {
            reentry::replace_task(previous);
        }
    }
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use super::Tracked;
    use tokio::runtime::Handle;
    use tokio::task::{AbortHandle, JoinHandle, JoinSet, LocalSet};

    impl<F: Future> Tracked<F> {
        /// Spawns the task on the current tokio runtime. The memory that tokio allocates for the future belongs to the task.
        ///
        /// # Panics
        /// Panics outside a tokio runtime, as [`tokio::spawn`] does.
        #[track_caller]
        pub fn spawn(mut self) -> JoinHandle<F::Output>
        where
            F: Send + 'static,
            F::Output: Send + 'static,
        {
            let _task = self.enter();
            tokio::spawn(self)
        }

        /// Spawns the task on this runtime.
        #[track_caller]
        pub fn spawn_on(mut self, runtime: &Handle) -> JoinHandle<F::Output>
        where
            F: Send + 'static,
            F::Output: Send + 'static,
        {
            let _task = self.enter();
            runtime.spawn(self)
        }

        /// Spawns the task on the current [`LocalSet`].
        ///
        /// # Panics
        /// Panics outside a local set, as [`tokio::task::spawn_local`] does.
        #[track_caller]
        pub fn spawn_local(mut self) -> JoinHandle<F::Output>
        where
            F: 'static,
            F::Output: 'static,
        {
            let _task = self.enter();
            tokio::task::spawn_local(self)
        }

        /// Spawns the task on this local set.
        #[track_caller]
        pub fn spawn_local_on(mut self, set: &LocalSet) -> JoinHandle<F::Output>
        where
            F: 'static,
            F::Output: 'static,
        {
            let _task = self.enter();
            set.spawn_local(self)
        }

        /// Spawns the task in a set of tasks, on the current tokio runtime.
        ///
        /// # Panics
        /// Panics outside a tokio runtime, as [`JoinSet::spawn`] does.
        #[track_caller]
        pub fn spawn_in(mut self, set: &mut JoinSet<F::Output>) -> AbortHandle
        where
            F: Send + 'static,
            F::Output: Send + 'static,
        {
            let _task = self.enter();
            set.spawn(self)
        }
    }
}
