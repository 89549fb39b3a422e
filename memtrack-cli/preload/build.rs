//! Links the library so that its own names are its own, whatever the program exports, and without symbols that nobody
//! can look up: it is embedded in the command.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
        println!("cargo:rustc-cdylib-link-arg=-Wl,--strip-all");
        // `tls` says why.
        if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
            println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap=__tls_get_addr");
        }
    }
}
