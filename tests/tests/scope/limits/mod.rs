//! Tests with memory limits: exact numbers while other tests run, the memory that counts, and the messages of failing tests.

mod attribute;
mod counted;
mod devices;
mod failing;
mod many;
mod second_run;

/// Runs a future to completion, as the expansion of the attribute does for async tests.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Yields once to the executor, without the allocation that tokio's `yield_now` makes.
async fn pause() {
    let mut has_waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
