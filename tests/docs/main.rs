//! The Rust blocks of README.md and docs/, each inside its surrounding code from `around/`. The test that builds this
//! program generates the included file.
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

/// The items of the user's program that the blocks use and the documents do not show.
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
