//! The hook's aarch64 assembly, assembled with Debian's assembler (package binutils-aarch64-linux-gnu) if that was installed when
//! the tests were built. The assembly has never been run.

use std::path::Path;
use std::process::Command;

#[test]
#[cfg_attr(not(aarch64_assembler), ignore = "needs aarch64-linux-gnu-as")]
fn the_entry_for_aarch64_assembles() {
    assembles("memtrack-core/cuda/src/hook/entry.rs", "find_wrapper");
}

#[test]
#[cfg_attr(not(aarch64_assembler), ignore = "needs aarch64-linux-gnu-as")]
fn the_ends_for_aarch64_assemble() {
    assembles("memtrack-cli/preload/src/ends.rs", "before_call");
}

/// Assembles the naked aarch64 function in `source` that calls `called`.
fn assembles(source: &str, called: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(source);
    let source = std::fs::read_to_string(source).expect("the hook's source");
    let naked = source.split("#[cfg(target_arch = \"aarch64\")]").find_map(|part| {
        let (head, rest) = part.split_once("naked_asm!(")?;
        (head.contains("#[unsafe(naked)]") && rest.contains("adrp")).then_some(rest)
    });
    let (lines, _) = naked.expect("an entry").split_once(&format!("{called} = sym")).expect("its operands");
    let text: String = lines
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","))
        .map(|line| {
            format!("    {}\n", line.replace(&format!("{{{called}}}"), called).replace("{real}", "real"))
        })
        .collect();
    assert!(text.lines().count() > 10 && text.contains(&format!("bl {called}")), "{text}");
    let folder = tempfile::tempdir().expect("a folder");
    let (assembly, object) = (folder.path().join("entry.s"), folder.path().join("entry.o"));
    std::fs::write(&assembly, format!(".text\nentry:\n{text}")).expect("it can be written");
    let mut assembler = Command::new("aarch64-linux-gnu-as");
    let output = assembler.arg(&assembly).arg("-o").arg(&object).output().expect("it can be started");
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(object.exists());
}
