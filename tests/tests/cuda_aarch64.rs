//! The hook's few lines of aarch64 assembly, put through Debian's assembler (package binutils-aarch64-linux-gnu) where
//! it is installed. They have never been run.

use std::path::Path;
use std::process::Command;

#[test]
fn the_entry_for_aarch64_assembles() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../memtrack-core/src/cuda/hook/entry.rs");
    let source = std::fs::read_to_string(source).expect("the hook's source");
    let (_, rest) =
        source.split_once("#[cfg(target_arch = \"aarch64\")]\n#[unsafe(no_mangle)]").expect("an entry");
    let (_, rest) = rest.split_once("naked_asm!(").expect("its assembly");
    let (lines, _) = rest.split_once("pick = sym").expect("its operands");
    let text: String = lines
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","))
        .map(|line| format!("    {}\n", line.replace("{pick}", "pick").replace("{real}", "real")))
        .collect();
    assert!(text.lines().count() > 10 && text.contains("bl pick"), "{text}");
    let folder = tempfile::tempdir().expect("a folder");
    let (assembly, object) = (folder.path().join("entry.s"), folder.path().join("entry.o"));
    std::fs::write(&assembly, format!(".text\ndlsym:\n{text}")).expect("it can be written");
    let assembled = Command::new("aarch64-linux-gnu-as").arg(&assembly).arg("-o").arg(&object).output();
    match assembled {
        Ok(output) => {
            assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
            assert!(object.exists());
        }
        Err(_) => println!("there is no assembler for aarch64 here"),
    }
}
