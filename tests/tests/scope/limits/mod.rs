//! Tests with limits on their memory: exact numbers while others run, what counts, and what a failing test says.

mod attribute;
mod counted;
mod devices;
mod failing;
mod many;
mod second_run;

/// As an attribute for async tests leaves it: one that stands below sees the future.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Waits until it is polled once more, and allocates nothing, as the runtime's own would.
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
