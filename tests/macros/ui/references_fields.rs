//! `#[derive(References)]` on fields whose references memtrack does not know.

use memtrack_core::References;
use std::collections::HashMap;
use std::rc::Rc;

struct Foreign;

#[derive(References)]
struct Tape {
    backward: Vec<Box<dyn Fn(f32) -> f32>>,
    by_name: Option<Rc<Foreign>>,
}

#[derive(References)]
enum Node<F: Fn(f32)> {
    Call(F),
    Named { inner: Foreign },
}

fn print<T: References>(_: T) {}

#[derive(PartialEq, Eq, Hash, References)]
struct NoDebug(u8);

#[derive(References)]
struct ByKey {
    map: HashMap<NoDebug, u8>,
}

fn visit(_: &u8, _: &mut memtrack_core::references::Visitor<'_>) {}

#[derive(References)]
struct Otherwise {
    #[references(with = visit)]
    number: u16,
    #[references(tensors)]
    weight: Foreign,
    #[references(show)]
    id: NoDebug,
}

fn main() {
    print(Node::Call(|_: f32| {}));
}
