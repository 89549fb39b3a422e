//! The functions that the expansion of `#[limits]` calls: they run a test function, a second time if its first run left
//! memory. This is not a public API and may change without notice.

use super::Limits;
use super::account::{FinishedTest, RunningTest, SecondRun};
use super::verdict::LimitCheck;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

pub use super::body::{AsyncBody, Body, Once, Repeatable};

/// Runs the test function `name`. If it has `failed`, the limits are not checked.
#[track_caller]
pub fn run_test<B: Body>(
    limits: Limits,
    name: &str,
    mut body: B,
    failed: impl Fn(&B::Output) -> bool,
) -> B::Output {
    let running = begin(&limits, name);
    let value = {
        let _inside = running.scope().enter();
        body.run()
    };
    if !failed(&value) {
        let finished = running.finish(&LimitCheck { limits: &limits });
        let second = second_run(&limits, &finished, body, false, failed);
        limits.check(finished, second).fail();
    }
    value
}

/// Runs a test function that should panic. If it panics but has exceeded a limit, this function returns without panicking,
/// so that the test fails.
#[track_caller]
pub fn run_test_panicking(limits: Limits, name: &str, mut body: impl Body<Output = ()>) {
    let running = begin(&limits, name);
    let result = {
        let _inside = running.scope().enter();
        catch_unwind(AssertUnwindSafe(|| body.run()))
    };
    let finished = running.finish(&LimitCheck { limits: &limits });
    let second = second_run(&limits, &finished, body, true, |()| false);
    limits.check(finished, second).fail_or_panic(result.err());
}

/// Runs an async test function like [`run_test`].
pub async fn run_test_async<B: AsyncBody>(
    limits: Limits,
    name: &str,
    mut body: B,
    failed: impl Fn(&B::Output) -> bool,
) -> B::Output {
    let running = begin(&limits, name);
    let value = running.scope().future(body.run()).await;
    if !failed(&value) {
        let finished = running.finish(&LimitCheck { limits: &limits });
        let second = second_run_async(&limits, &finished, body, false, failed).await;
        limits.check(finished, second).fail();
    }
    value
}

/// Runs an async test function that should panic, like [`run_test_panicking`].
pub async fn run_test_async_panicking(limits: Limits, name: &str, mut body: impl AsyncBody<Output = ()>) {
    let running = begin(&limits, name);
    let result = catch_panic(running.scope().future(body.run())).await;
    let finished = running.finish(&LimitCheck { limits: &limits });
    let second = second_run_async(&limits, &finished, body, true, |()| false).await;
    limits.check(finished, second).fail_or_panic(result.err());
}

/// Starts a test, whose `path` begins with the crate. Its name is the path without the crate, as libtest prints it.
#[track_caller]
fn begin(limits: &Limits, path: &str) -> RunningTest {
    let name = path.split_once("::").map_or(path, |(_, inside)| inside);
    RunningTest::begin(|| name.to_owned(), limits.limits_host())
}

/// Starts a second run if the first run left more memory than allowed, because only a second run can show whether that
/// memory leaks or was allocated once. Returns `None` if no second run is needed or possible.
fn begin_second_run(limits: &Limits, finished: &FinishedTest, is_repeatable: bool) -> Option<RunningTest> {
    let is_needed = is_repeatable && !limits.runs_once && finished.leaks(&LimitCheck { limits });
    if is_needed { finished.begin_second_run() } else { None }
}

fn second_run<B: Body>(
    limits: &Limits,
    finished: &FinishedTest,
    mut body: B,
    should_panic: bool,
    failed: impl FnOnce(&B::Output) -> bool,
) -> Option<SecondRun> {
    let running = begin_second_run(limits, finished, B::IS_REPEATABLE)?;
    let result = {
        let _inside = running.scope().enter();
        catch_unwind(AssertUnwindSafe(|| body.run()))
    };
    Some(end_second_run(limits, running, &result, should_panic, failed))
}

async fn second_run_async<B: AsyncBody>(
    limits: &Limits,
    finished: &FinishedTest,
    mut body: B,
    should_panic: bool,
    failed: impl FnOnce(&B::Output) -> bool,
) -> Option<SecondRun> {
    let running = begin_second_run(limits, finished, B::IS_REPEATABLE)?;
    let result = catch_panic(running.scope().future(body.run())).await;
    Some(end_second_run(limits, running, &result, should_panic, failed))
}

fn end_second_run<R>(
    limits: &Limits,
    running: RunningTest,
    result: &thread::Result<R>,
    should_panic: bool,
    failed: impl FnOnce(&R) -> bool,
) -> SecondRun {
    match result {
        Err(_) if !should_panic => SecondRun::EndedDifferently("panicked"),
        Ok(_) if should_panic => SecondRun::EndedDifferently("did not panic"),
        Ok(value) if failed(value) => SecondRun::EndedDifferently("returned an error"),
        _ => SecondRun::Ended(running.finish(&LimitCheck { limits })),
    }
}

/// Runs a future to completion and drops it, catching any panic.
async fn catch_panic<R>(future: impl Future<Output = R>) -> thread::Result<R> {
    let mut future = Box::pin(future);
    std::future::poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => std::task::Poll::Ready(Err(panic)),
    })
    .await
}

/// The result of a test. `(&Outcome(&value)).failed()` resolves to [`ResultOutcome`] for a `Result`. For any
/// other type, it resolves to [`OtherOutcome`], which is one reference further away.
#[derive(Debug)]
pub struct Outcome<'a, R>(pub &'a R);

/// Implemented for the [`Outcome`] of a `Result`.
pub trait ResultOutcome {
    /// Returns whether the result is an error.
    fn failed(&self) -> bool;
}

impl<T, E> ResultOutcome for Outcome<'_, Result<T, E>> {
    fn failed(&self) -> bool {
        self.0.is_err()
    }
}

/// Implemented for the [`Outcome`] of any other type.
pub trait OtherOutcome {
    /// Returns false, because only a `Result` can fail.
    fn failed(&self) -> bool {
        false
    }
}

impl<R> OtherOutcome for &Outcome<'_, R> {}
