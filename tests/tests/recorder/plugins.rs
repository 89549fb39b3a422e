//! Libraries that the program unloads: unloading works, and their code is distinguished from later code at the same addresses.

use memtrack_tests::child::run_well;
use std::fs;
use std::path::Path;
use std::process::Command;

const CHILD: &str = env!("CARGO_BIN_EXE_recorder_child");

fn compile(folder: &Path, name: &str) {
    let code = format!(
        "#include <stddef.h>\nvoid {name}_work(void (*allocate)(size_t), size_t bytes) {{ allocate(bytes); allocate(1); }}\n"
    );
    fs::write(folder.join("plugin.c"), code).unwrap();
    let mut compiler = Command::new("cc");
    let built = compiler.args(["-O1", "-shared", "-fPIC", "plugin.c", "-o"]).arg(format!("{name}.so"));
    assert!(built.current_dir(folder).status().unwrap().success());
}

#[test]
fn code_at_the_addresses_of_an_unloaded_plugin_keeps_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), "first");
    compile(folder.path(), "second");
    let path = folder.path().to_str().unwrap();
    let output = run_well(CHILD, &["plugins_take_turns", path], folder.path());
    // glibc reuses the addresses; without reuse, this test would check nothing.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "true\n", "both plugins are at the same address");
}

#[test]
fn a_plugin_that_is_loaded_repeatedly_leaves_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    compile(folder.path(), "first");
    run_well(CHILD, &["plugins_come_and_go", folder.path().to_str().unwrap()], folder.path());
}
