//! The body of a test with limits: closures that run once and closures that can run again.

/// The body of a test.
pub trait Body {
    /// The body's result.
    type Output;
    /// Whether the body can run more than once.
    const IS_REPEATABLE: bool;

    /// Runs the body.
    fn run(&mut self) -> Self::Output;
}

/// The body of an async test.
pub trait AsyncBody {
    /// The body's result.
    type Output;
    /// The body's future.
    type Future: Future<Output = Self::Output>;
    /// Whether the body can run more than once.
    const IS_REPEATABLE: bool;

    /// Starts the body.
    fn run(&mut self) -> Self::Future;
}

/// A body without arguments, which can run more than once.
#[derive(Debug)]
pub struct Repeatable<F>(pub F);

impl<R, F: Fn() -> R> Body for Repeatable<F> {
    type Output = R;
    const IS_REPEATABLE: bool = true;

    #[track_caller]
    fn run(&mut self) -> R {
        (self.0)()
    }
}

impl<R: Future, F: Fn() -> R> AsyncBody for Repeatable<F> {
    type Output = R::Output;
    type Future = R;
    const IS_REPEATABLE: bool = true;

    fn run(&mut self) -> R {
        (self.0)()
    }
}

/// A body that consumes its arguments and can therefore run only once.
#[derive(Debug)]
pub struct Once<F>(Option<F>);

impl<F> Once<F> {
    /// Wraps a closure.
    pub fn new(body: F) -> Self {
        Self(Some(body))
    }

    fn take(&mut self) -> F {
        self.0.take().expect("a body that is not repeatable runs once")
    }
}

impl<R, F: FnOnce() -> R> Body for Once<F> {
    type Output = R;
    const IS_REPEATABLE: bool = false;

    #[track_caller]
    fn run(&mut self) -> R {
        self.take()()
    }
}

impl<R: Future, F: FnOnce() -> R> AsyncBody for Once<F> {
    type Output = R::Output;
    type Future = R;
    const IS_REPEATABLE: bool = false;

    fn run(&mut self) -> R {
        self.take()()
    }
}
