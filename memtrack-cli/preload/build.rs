//! Binds the library's references to its own symbols, regardless of what the program exports, and strips all symbols
//! that are not exported, because the library is embedded in the command.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
        println!("cargo:rustc-cdylib-link-arg=-Wl,--strip-all");
        // The module `mapped` explains why.
        for name in ["mmap", "mmap64", "munmap", "mremap", "mprotect", "madvise"] {
            println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
        }
        // The module `tls` explains why.
        if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
            println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap=__tls_get_addr");
        }
    }
}
