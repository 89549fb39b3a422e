//! What `#[limits]` calls. Not a public API: it changes without notice.

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
    limits.run_as(without_crate(name), body, failed)
}

/// Runs the body of a test that should panic.
#[track_caller]
pub fn run_test_panicking(limits: Limits, name: &str, body: impl Body<Output = ()>) {
    limits.run_panicking(without_crate(name), body);
}

/// Runs the body of an async test.
pub async fn run_test_async<B: AsyncBody>(
    limits: Limits,
    name: &str,
    body: B,
    failed: impl Fn(&B::Output) -> bool,
) -> B::Output {
    limits.run_async_as(without_crate(name), body, failed).await
}

/// Runs the body of an async test that should panic.
pub async fn run_test_async_panicking(limits: Limits, name: &str, body: impl AsyncBody<Output = ()>) {
    limits.run_async_panicking(without_crate(name), body).await;
}

/// The path of a test as libtest writes it.
fn without_crate(path: &str) -> &str {
    path.split_once("::").map_or(path, |(_, inside)| inside)
}

/// What a test has returned: `(&Outcome(&value)).failed()` finds [`OfResult`] for a `Result`, and [`OfOthers`] for anything
/// else, which is one reference further away.
#[derive(Debug)]
pub struct Outcome<'a, R>(pub &'a R);

/// For a `Result`.
pub trait OfResult {
    /// Whether it is an error.
    fn failed(&self) -> bool;
}

impl<T, E> OfResult for Outcome<'_, Result<T, E>> {
    fn failed(&self) -> bool {
        self.0.is_err()
    }
}

/// For all other types.
pub trait OfOthers {
    /// Always false.
    fn failed(&self) -> bool {
        false
    }
}

impl<R> OfOthers for &Outcome<'_, R> {}
