//! The Rust blocks of README.md and docs/, each in what `around/` has for it. The test that builds this writes the file.
#![allow(
    dead_code,
    private_interfaces,
    unexpected_cfgs,
    unreachable_code,
    unused_assignments,
    unused_imports,
    unused_macros,
    unused_must_use,
    unused_mut,
    unused_variables,
    clippy::all
)]

/// What the blocks use of a program that is not shown.
mod program {
    use memtrack_core::event::DeviceId;
    use memtrack_core::operators::{Dtype, ReportTensors, TensorInfo, TensorReader};

    pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

    /// A framework's tensor.
    #[derive(Clone)]
    pub struct Tensor;

    impl Tensor {
        pub fn id(&self) -> u64 {
            unimplemented!()
        }
        pub fn dims(&self) -> &[usize] {
            unimplemented!()
        }
        pub fn address(&self) -> u64 {
            unimplemented!()
        }
        pub fn bytes(&self) -> u64 {
            unimplemented!()
        }
        pub fn accumulate(&self, _: &Self) {}
    }

    pub fn train() {}
}

include!(env!("MEMTRACK_DOCS_BLOCKS"));

fn main() {}
