//! The functions that the expansion of `#[limits]` calls. This is not a public API and may change without notice.

use super::Limits;

pub use super::body::{AsyncBody, Body, Once, Repeatable};

/// Runs a test function's body.
#[track_caller]
pub fn run_test<B: Body>(
    limits: Limits,
    name: &str,
    body: B,
    failed: impl Fn(&B::Output) -> bool,
) -> B::Output {
    limits.run_as(strip_crate(name), body, failed)
}

/// Runs the body of a test that should panic.
#[track_caller]
pub fn run_test_panicking(limits: Limits, name: &str, body: impl Body<Output = ()>) {
    limits.run_panicking(strip_crate(name), body);
}

/// Runs the body of an async test.
pub async fn run_test_async<B: AsyncBody>(
    limits: Limits,
    name: &str,
    body: B,
    failed: impl Fn(&B::Output) -> bool,
) -> B::Output {
    limits.run_async_as(strip_crate(name), body, failed).await
}

/// Runs the body of an async test that should panic.
pub async fn run_test_async_panicking(limits: Limits, name: &str, body: impl AsyncBody<Output = ()>) {
    limits.run_async_panicking(strip_crate(name), body).await;
}

/// Returns a test's path without the crate, as libtest prints it.
fn strip_crate(path: &str) -> &str {
    path.split_once("::").map_or(path, |(_, inside)| inside)
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
