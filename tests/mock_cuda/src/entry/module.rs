//! Modules and functions: every image loads, every function is found, and all functions are empty.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::call::{entries, put};
use crate::context::Context;
use crate::handle::{self, Tag};
use crate::status::{CuResult, Status};

static NEXT: AtomicU32 = AtomicU32::new(1);

entries! {
    fn cuModuleLoad(module: *mut *mut c_void, file: *const c_char) {
        let _ = file;
        new(module, Tag::Module)
    }

    fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) {
        let _ = image;
        new(module, Tag::Module)
    }

    fn cuModuleLoadDataEx(
        module: *mut *mut c_void, image: *const c_void, count: u32, options: *mut i32, values: *mut *mut c_void,
    ) {
        let _ = (image, count, options, values);
        new(module, Tag::Module)
    }

    fn cuModuleLoadFatBinary(module: *mut *mut c_void, image: *const c_void) {
        let _ = image;
        new(module, Tag::Module)
    }

    fn cuModuleUnload(module: *mut c_void) {
        handle::read(Tag::Module, module).map(drop)
    }

    fn cuModuleGetFunction(function: *mut *mut c_void, module: *mut c_void, name: *const c_char) {
        let _ = name;
        handle::read(Tag::Module, module)?;
        new(function, Tag::Function)
    }

    fn cuModuleGetGlobal_v2(address: *mut u64, bytes: *mut usize, module: *mut c_void, name: *const c_char) {
        let _ = (address, bytes, name);
        handle::read(Tag::Module, module)?;
        Err(Status::NOT_FOUND)
    }

    fn cuModuleGetLoadingMode(mode: *mut i32) {
        put(mode, 1)
    }

    fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: *mut c_void) {
        handle::read(Tag::Function, function)?;
        // Threads per block, registers; nothing else is used.
        put(value, match attribute { 0 => 1024, 4 => 32, _ => 0 })
    }

    fn cuFuncSetAttribute(function: *mut c_void, attribute: i32, value: i32) {
        let _ = (attribute, value);
        handle::read(Tag::Function, function).map(drop)
    }

    fn cuFuncSetCacheConfig(function: *mut c_void, config: i32) {
        let _ = config;
        handle::read(Tag::Function, function).map(drop)
    }
}

fn new(place: *mut *mut c_void, tag: Tag) -> CuResult {
    let context = Context::current()?;
    put(place, handle::make(tag, context.number, NEXT.fetch_add(1, Ordering::Relaxed)))
}
