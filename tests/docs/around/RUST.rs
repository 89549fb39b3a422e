mod begin {
    use crate::program::*;

    block!("#[global_allocator]");
}

mod allocators {
    /// A stand-in: jemalloc takes a minute to build, and `tests/programs/allocators` has the same lines with the real one.
    mod tikv_jemallocator {
        pub use std::alloc::System as Jemalloc;
    }

    block!("use tikv_jemallocator::Jemalloc;");
}

mod output {
    use crate::program::*;

    fn output() -> Result<()> {
        block!("use memtrack_core::{Options, start_monitor_with};");
        Ok(())
    }
}

mod names {
    use crate::program::*;
    use memtrack_core::scope;

    struct Model;
    struct Attention;

    block!("use memtrack_core::track_memory;");

    fn guard(i: usize) {
        block!("let _block = memtrack_core::scope::module(&format!(\"block.{i}\"));");
    }
}

mod tensors {
    use crate::program::*;

    block!("use memtrack_core::event::DeviceId;");

    fn state(weight: Tensor, bias: Tensor, mask: Tensor, gradient: Tensor, moment: Tensor) {
        block!("use memtrack_core::operators;");
    }

    fn record() -> Result<()> {
        block!("use memtrack_core::{By, Options, start_monitor_with, stop};");
        Ok(())
    }
}

mod tasks {
    use crate::program::*;

    struct Connection;

    struct Listener;

    impl Listener {
        async fn accept(&self) -> Result<(Connection, ())> {
            unimplemented!()
        }
    }

    async fn serve(_: Connection) {}

    async fn refresh() {}

    async fn run(listener: Listener) -> Result<()> {
        block!("use memtrack_core::tasks;");
    }
}
