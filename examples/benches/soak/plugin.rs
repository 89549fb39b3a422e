//! A library that the service loads and unloads, each time under a new name, like a program that reloads plugins.
#![allow(unsafe_code)]

use libloading::{Library, Symbol};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The library's C source. It allocates in a callback, so that the stack of the allocation contains the library's code.
const CODE: &str = "#include <stddef.h>\n\
    void soak_plugin(void (*allocate)(size_t), size_t bytes) { allocate(bytes); allocate(1); }\n";

type Work = extern "C" fn(extern "C" fn(usize), usize);

/// The compiled library.
#[derive(Debug)]
pub struct Plugin {
    library: PathBuf,
}

impl Plugin {
    /// Compiles the library in `folder`; returns `None` if there is no C compiler.
    pub fn build(folder: &Path) -> io::Result<Option<Self>> {
        let (code, library) = (folder.join("plugin.c"), folder.join("plugin.so"));
        fs::write(&code, CODE)?;
        let built =
            Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).args([&library, &code]).status();
        Ok(built.is_ok_and(|status| status.success()).then_some(Self { library }))
    }

    /// Loads a copy of the library, calls it, and unloads the copy.
    pub fn load_and_unload(&self, number: u64) -> Result<(), Box<dyn std::error::Error>> {
        let copy = self.library.with_file_name(format!("plugin-{number}.so"));
        fs::copy(&self.library, &copy)?;
        {
            // SAFETY: the library has no initialisers.
            let (library, name) = (unsafe { Library::new(&copy) }?, b"soak_plugin");
            // SAFETY: the library exports a function with this name and type.
            let work: Symbol<'_, Work> = unsafe { library.get(name) }?;
            work(allocate, 100_000);
        }
        fs::remove_file(&copy)?;
        Ok(())
    }
}

extern "C" fn allocate(bytes: usize) {
    drop(std::hint::black_box(vec![1_u8; bytes]));
}
