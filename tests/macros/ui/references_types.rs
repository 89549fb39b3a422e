//! `#[derive(References)]` on types that cannot be inspected.

use memtrack_core::References;
use std::rc::Rc;

#[derive(References)]
union Bits {
    float: f32,
    int: u32,
}

#[derive(References)]
#[repr(C, packed(4))]
struct Packed {
    shared: Rc<u8>,
    small: u8,
}

/// A counted pointer must be able to outlive its holders.
#[derive(References)]
struct Borrowing<'a> {
    next: Option<Rc<Borrowing<'a>>>,
    name: &'a str,
}

fn main() {}
