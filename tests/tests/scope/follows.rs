//! While a program is monitored, scopes nest, are restored however a block is left, and follow work to other threads.

use memtrack_core::{scope, track_memory};
use memtrack_tests::alone;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

/// Runs `test` while the program is monitored.
fn monitored<R>(test: impl FnOnce() -> R) -> R {
    memtrack_core::start_monitor();
    let result = catch_unwind(AssertUnwindSafe(test));
    memtrack_core::stop();
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Returns the current operator's name or, outside operators, the prefix that an operator's name would have.
fn here() -> String {
    let place = scope::current().place();
    place.operator_name().unwrap_or_else(|| place.prefix())
}

fn threads(count: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(count).build().unwrap()
}

struct Encoder;

#[track_memory(module)]
impl Encoder {
    fn forward(&self, fail: bool) -> Result<String, std::num::ParseIntError> {
        if fail {
            "no number".parse::<u8>()?;
        }
        Ok(Attention.forward())
    }
}

struct Attention;

impl Attention {
    #[track_memory(module, name = "attn")]
    fn forward(&self) -> String {
        matmul()
    }
}

#[track_memory]
fn matmul() -> String {
    here()
}

#[test]
fn nested_modules_compose_and_are_restored() {
    alone!();
    monitored(|| {
        let _root = scope::root("Net");
        assert_eq!(Encoder.forward(false).unwrap(), "Encoder.attn.forward.matmul");
        assert_eq!(here(), ".forward");
        assert!(Encoder.forward(true).is_err());
        assert_eq!(here(), ".forward");
        let panicked = catch_unwind(|| {
            let _decoder = scope::module("decoder");
            panic!("expected");
        });
        assert!(panicked.is_err());
        assert_eq!(here(), ".forward");
        let _backward = scope::backward();
        assert_eq!(matmul(), ".backward.matmul");
    });
}

#[track_memory(module)]
async fn decoder(pauses: usize) -> Vec<String> {
    let mut seen = Vec::new();
    for _ in 0..pauses {
        tokio::task::yield_now().await;
        seen.push(token().await);
    }
    seen
}

#[track_memory]
async fn token() -> String {
    tokio::task::yield_now().await;
    here()
}

#[test]
fn scopes_follow_their_futures_between_threads() {
    alone!();
    monitored(|| {
        let runtime = threads(4);
        let tasks: Vec<_> = (0..64).map(|_| runtime.spawn(decoder(50))).collect();
        for task in tasks {
            let seen = runtime.block_on(task).unwrap();
            assert!(seen.len() == 50 && seen.iter().all(|name| name == "decoder.forward.token"), "{seen:?}");
        }
        assert_eq!(here(), "");
    });
}

#[track_memory(module)]
async fn layers() -> (String, String) {
    let inner = {
        let _layer = scope::module("layer");
        tokio::task::yield_now().await;
        here()
    };
    tokio::task::yield_now().await;
    (inner, here())
}

#[test]
fn guards_across_an_await_stay_with_their_future() {
    alone!();
    monitored(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let tasks = tokio::task::LocalSet::new();
        let one = tasks.spawn_local(layers());
        let other = tasks.spawn_local(layers());
        let (one, other) = tasks.block_on(&runtime, async { (one.await.unwrap(), other.await.unwrap()) });
        assert_eq!(one, ("layers.layer.forward".into(), "layers.forward".into()));
        assert_eq!(other, one);
        assert_eq!(here(), "");
    });
}

#[test]
fn a_handle_carries_the_scope_into_threads_and_tasks() {
    alone!();
    monitored(|| {
        let _module = scope::module("loader");
        let handle = scope::current();
        let in_thread = thread::spawn(move || {
            assert_eq!(here(), "");
            let _here = handle.enter();
            matmul()
        });
        assert_eq!(in_thread.join().unwrap(), "loader.forward.matmul");
        let runtime = threads(2);
        let in_task = runtime.block_on(runtime.spawn(handle.future(token())));
        assert_eq!(in_task.unwrap(), "loader.forward.token");
    });
}

#[test]
fn outside_monitoring_there_are_no_scopes() {
    alone!();
    monitored(|| {});
    let _module = scope::module("ignored");
    assert!(scope::current().id().is_none());
}
