use crate::program::*;

block!("#[global_allocator]");
