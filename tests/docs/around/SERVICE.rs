use crate::program::*;

mod begin {
    block!("#[global_allocator]");
}

mod on_request {
    use crate::program::*;

    fn serve() -> Result<()> {
        block!("use memtrack_core::{Options, serve::ServeOptions};");
        Ok(())
    }
}

block!("use memtrack_core::serve::respond;");
