//! Every form of `#[track_memory]` on every kind of function, in a crate that forbids unsafe code and warnings: the
//! expansion contains neither, and the functions behave as they do without the attribute.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, clippy::all, clippy::pedantic, unused_qualifications)]

use memtrack_core::{scope, track_memory};
use std::error::Error;
use std::fmt::Debug;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

fn ready<T>(future: impl Future<Output = T>) -> T {
    match Box::pin(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("these futures never wait"),
    }
}

#[track_memory]
fn operator() -> u8 {
    1
}

#[track_memory(operator, name = "aten::mm")]
fn named<T>(value: T) -> T
where
    T: Copy + Debug,
{
    value
}

#[track_memory(module)]
fn module_function() {}

#[track_memory(root, name = "Net")]
fn root_function() {
    module_function();
}

#[track_memory(backward)]
fn backward() {}

#[track_memory(optimizer, crate = ::memtrack_core)]
fn step() {}

#[test]
fn free_functions_work_in_every_form() {
    assert_eq!(operator() + named(1), 2);
    root_function();
    backward();
    step();
}

#[track_memory]
fn borrowed<'a>(words: &'a [String], default: &'a str) -> &'a str {
    words.first().map_or(default, String::as_str)
}

#[track_memory]
fn implicit(words: &[u8]) -> impl Iterator<Item = &u8> + '_ {
    words.iter().filter(|word| **word > 1)
}

#[track_memory]
fn question(text: &str) -> Result<u8, Box<dyn Error>> {
    if text.is_empty() {
        return Ok(0);
    }
    Ok(text.parse::<u8>()?)
}

#[track_memory]
#[track_caller]
fn caller() -> &'static Location<'static> {
    Location::caller()
}

#[track_memory]
extern "C" fn foreign(value: u8) -> u8 {
    value
}

#[track_memory]
fn patterns((left, right): (u8, u8), [first, ..]: [u8; 3], mut total: u8, _: u8) -> u8 {
    total += left + right + first;
    total
}

#[track_memory]
fn factorial(number: u64) -> u64 {
    if number == 0 { 1 } else { number * factorial(number - 1) }
}

#[track_memory]
fn inner_attribute() -> u8 {
    #![allow(clippy::unusual_byte_groupings, clippy::needless_return)]
    return 0b1_0;
}

/// Documentation stays on the function: `missing_docs` is denied here.
#[must_use]
#[track_memory]
pub fn r#match() -> u8 {
    3
}

#[test]
fn synchronous_functions_behave_as_without_the_attribute() {
    assert_eq!(borrowed(&["a".to_owned()], "b"), "a");
    assert_eq!(implicit(&[1, 2, 3]).count(), 2);
    assert_eq!(question("").unwrap() + question("7").unwrap(), 7);
    assert!(question("x").is_err());
    assert_eq!(caller().line(), line!());
    assert_eq!(foreign(4), 4);
    assert_eq!(patterns((1, 2), [3, 0, 0], 4, 5), 10);
    assert_eq!(factorial(5), 120);
    assert_eq!(inner_attribute() + r#match(), 5);
}

#[track_memory]
async fn fetch(url: &str) -> Result<usize, Box<dyn Error>> {
    if url.is_empty() {
        Err("empty")?;
    }
    std::future::ready(()).await;
    Ok(url.len())
}

#[track_memory]
async fn coerced() -> Box<dyn Debug> {
    Box::new(1_u8)
}

#[track_memory]
async fn async_patterns((left, right): (u8, u8), mut total: u8, _: &str) -> u8 {
    total += std::future::ready(left + right).await;
    total
}

#[track_memory]
async fn async_implicit(words: &[u8]) -> impl Iterator<Item = &u8> {
    std::future::ready(words.iter()).await
}

#[track_memory]
async fn unit() {
    fetch("x").await.unwrap();
}

#[track_memory]
#[allow(dead_code, reason = "the test is that it compiles; it never ends")]
async fn endless() -> ! {
    loop {
        unit().await;
    }
}

#[track_memory]
fn desugared(value: &u8) -> impl Future<Output = u8> + '_ {
    async move { *value }
}

#[test]
fn async_functions_behave_as_without_the_attribute() {
    assert_eq!(ready(fetch("four")).unwrap(), 4);
    assert!(ready(fetch("")).is_err());
    assert_eq!(format!("{:?}", ready(coerced())), "1");
    assert_eq!(ready(async_patterns((1, 2), 3, "")), 6);
    assert_eq!(ready(async_implicit(&[1, 2])).count(), 2);
    assert_eq!(ready(desugared(&7)), 7);
    ready(unit());
}

trait Layer {
    #[track_memory(module)]
    fn forward(&self, input: u8) -> u8 {
        self.weigh(input)
    }

    fn weigh(&self, input: u8) -> u8;

    fn boxed<'a>(&'a self) -> Pin<Box<dyn Future<Output = u8> + Send + 'a>>
    where
        Self: Sync;
}

struct Linear<T> {
    weight: T,
}

#[track_memory(module)]
impl<T: Into<u8> + Copy + Send + Sync> Layer for Linear<T> {
    /// This documentation stays on the method.
    fn weigh(&self, input: u8) -> u8 {
        self.weight.into() * input
    }

    #[track_memory(name = "boxed")]
    fn boxed<'a>(&'a self) -> Pin<Box<dyn Future<Output = u8> + Send + 'a>>
    where
        Self: Sync,
    {
        let weight = self.weight;
        Box::pin(async move { weight.into() })
    }
}

struct Net {
    layers: Vec<Box<dyn Layer + Sync>>,
}

#[track_memory]
impl Net {
    const WIDTH: u8 = 2;

    fn new() -> Self {
        Self { layers: vec![Box::new(Linear { weight: 2_u8 }), Box::new(Linear { weight: true })] }
    }

    #[track_memory(root)]
    fn forward(&self, input: u8) -> u8 {
        self.layers.iter().fold(input, |value, layer| layer.forward(value))
    }

    #[allow(clippy::boxed_local, reason = "the receiver is the point")]
    fn consume(self: Box<Self>) -> usize {
        self.layers.len()
    }

    async fn change(&mut self) -> &mut Self {
        self.layers.pop();
        self
    }

    #[track_memory(skip)]
    const fn width() -> u8 {
        Self::WIDTH
    }
}

#[test]
fn methods_behave_as_without_the_attribute() {
    let mut net = Net::new();
    assert_eq!(net.forward(3), 6);
    assert_eq!(ready(net.layers[0].boxed()), 2);
    assert_eq!(ready(net.change()).layers.len(), 1);
    assert_eq!(Box::new(net).consume(), 1);
    assert_eq!(Net::width(), 2);
}

#[test]
fn guards_need_no_unsafe_either() {
    let _root = scope::root("Net");
    let _module = scope::module(&format!("layer {}", 1));
    let _phases =
        (scope::backward(), scope::optimizer(), scope::backward_named("b"), scope::optimizer_named("o"));
    let _operator = scope::operator("mm");
    let here = scope::current();
    std::thread::spawn(move || drop(here.enter())).join().unwrap();
    ready(scope::future(scope::ScopeKind::Operator, "read", here.future(async {})));
}

/// An annotated future can still be sent to another thread.
#[test]
fn annotated_futures_are_send() {
    fn assert_send<T: Send>(_: &T) {}
    assert_send(&fetch("x"));
    assert_send(&async_patterns((0, 0), 0, ""));
}
