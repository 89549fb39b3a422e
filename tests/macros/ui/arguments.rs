//! Invalid arguments.

use memtrack_core::track_memory;

#[track_memory(phase = "backward")]
fn unknown() {}

#[track_memory("matmul")]
fn literal() {}

#[track_memory(module, root)]
fn two_forms() {}

#[track_memory(module, module)]
fn one_form_twice() {}

#[track_memory(name = "a", name = "b")]
fn two_names() {}

#[track_memory(name = 3)]
fn number() {}

#[track_memory(name)]
fn no_name() {}

#[track_memory(name = "")]
fn empty_name() {}

#[track_memory(module = "encoder")]
fn name_as_value() {}

#[track_memory(crate = "memtrack_core")]
fn path_as_text() {}

#[track_memory(module name = "encoder")]
fn no_comma() {}

#[track_memory(skip)]
fn skip_outside() {}

struct Net;

#[track_memory]
impl Net {
    #[track_memory(skip, module)]
    fn skip_and_more(&self) {}
}

fn main() {}
