//! `#[references(…)]` with invalid arguments.

use memtrack_core::References;
use std::rc::Rc;

#[derive(References)]
#[references(ignore)]
struct UnknownOnType;

#[derive(References)]
struct UnknownOnField {
    #[references(ignore)]
    one: Rc<u8>,
    #[references(crate = memtrack_core)]
    two: Rc<u8>,
}

#[derive(References)]
enum UnknownOnVariant {
    #[references(rename = "x")]
    One,
}

#[derive(References)]
struct Skipped {
    #[references(skip, opaque)]
    one: Rc<u8>,
    #[references(tensors, skip)]
    two: Rc<u8>,
    #[references(skip, rename = "x")]
    three: Rc<u8>,
    #[references(skip)]
    #[references(skip)]
    four: Rc<u8>,
}

#[derive(References)]
struct TwoWays(#[references(opaque, with = visit)] Rc<u8>);

#[derive(References)]
enum TwoWaysOfVariants {
    #[references(skip, opaque)]
    One,
    #[references(skip)]
    Two(#[references(opaque)] Rc<u8>),
}

#[derive(References)]
struct Values {
    #[references(skip = true)]
    one: Rc<u8>,
    #[references(rename)]
    two: Rc<u8>,
    #[references(rename = "")]
    three: Rc<u8>,
    #[references(with)]
    four: Rc<u8>,
    #[references(with = "visit")]
    five: Rc<u8>,
    #[references]
    six: Rc<u8>,
    #[references("skip")]
    seven: Rc<u8>,
}

#[derive(References)]
#[references(bound = "T")]
struct Bound<T>(T);

#[derive(References)]
#[references(bound = T)]
struct BoundWithoutQuotes<T>(T);

#[derive(References)]
#[references(crate = "memtrack_core")]
struct Crate;

#[derive(References)]
#[references(opaque)]
struct OpaqueWithFields(#[references(skip)] Rc<u8>);

fn main() {
    fn implements(_: &impl memtrack_core::references::References) {}
    // One mistake is one error: the trait is implemented.
    implements(&UnknownOnType);
}
