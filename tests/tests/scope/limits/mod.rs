//! Tests with limits on their memory: exact numbers while other tests run, the memory that counts, and messages of failing tests.

mod attribute;
mod counted;
mod devices;
mod failing;
mod many;
mod second_run;

/// Runs a future to its end, as the expansion of an attribute for async tests does.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Waits until it is polled again, without the allocation that the runtime's `yield_now` makes.
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
