//! The driver's functions, by topic. `build.rs` reads the names from these files.

mod array;
mod context;
mod copy;
mod device;
mod event;
mod host;
mod init;
mod ipc;
mod launch;
mod memory;
mod module;
mod pointer;
mod pool;
mod stream;
mod virtual_memory;

pub(crate) use self::{
    array::*, context::*, copy::*, device::*, event::*, host::*, init::*, ipc::*, launch::*, memory::*,
    module::*, pointer::*, pool::*, stream::*, virtual_memory::*,
};
