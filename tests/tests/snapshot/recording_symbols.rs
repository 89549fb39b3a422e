//! Addresses in this test program are symbolized with the matching binary, and never with another one.

use memtrack_core::snapshot::Module;
use memtrack_core::stack::build_id;
use memtrack_core::stack::modules::loaded_modules;
use memtrack_core::stack::symbols::{Frame, Symbolizer};
use proptest::prelude::*;
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;

/// Returns the return addresses on the current stack.
#[inline(never)]
fn capture() -> Vec<u64> {
    let mut addresses = Vec::new();
    backtrace::trace(|frame| {
        addresses.push(frame.ip() as u64);
        true
    });
    addresses
}

#[inline(always)]
fn inlined() -> (Vec<u64>, u32) {
    (black_box(capture()), line!())
}

#[inline(never)]
fn a_known_function<T: Default>() -> (Vec<u64>, u32, u32) {
    let (addresses, inner_line) = inlined();
    let outer_line = line!() - 1;
    black_box(T::default());
    (addresses, inner_line, outer_line)
}

fn ends_with(frame: &Frame, path: &str) -> bool {
    frame.function.strip_suffix(path).is_some_and(|before| before.is_empty() || before.ends_with("::"))
}

/// Returns this program's module, and the address of the call in `a_known_function`.
fn program_and_address() -> (Module, u64) {
    let program = loaded_modules().swap_remove(0);
    let (addresses, ..) = a_known_function::<u8>();
    let mut symbols = Symbolizer::new(std::slice::from_ref(&program));
    let named = |&address: &u64| symbols.frames(address).iter().any(is_known);
    (program, addresses.into_iter().find(named).expect("the known function is on the stack"))
}

fn is_known(frame: &Frame) -> bool {
    frame.function.contains("recording_symbols::a_known_function")
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("memtrack-symbols-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_captured_stack_has_names_lines_and_inlined_functions() {
    let (addresses, inner_line, outer_line) = a_known_function::<u8>();
    let frames = Symbolizer::new(&loaded_modules()).stack(&addresses);
    let inner =
        frames.iter().position(|frame| ends_with(frame, "inlined")).expect("the inlined function is shown");
    assert_eq!(frames[inner].line, Some(inner_line));
    let outer = &frames[inner + 1];
    assert!(is_known(outer) && outer.line == Some(outer_line), "{outer:?}");
    assert!(outer.file.as_deref().unwrap().ends_with("tests/tests/snapshot/recording_symbols.rs"));
    for frame in &frames {
        let name = &frame.function;
        assert!(
            !name.contains("::h") || !name.ends_with(|c: char| c.is_ascii_hexdigit()),
            "{name} has a hash"
        );
        assert!(!name.starts_with("_ZN") && !name.starts_with("_R"), "{name} is mangled");
    }
}

#[test]
fn a_rebuilt_binary_is_named_by_its_id_and_offset() {
    let (mut program, address) = program_and_address();
    program.build_id = "0123456789abcdef0123".into();
    let offset = address - 1 - program.bias;
    let file = program.path.rsplit('/').next().unwrap().to_owned();
    let mut symbols = Symbolizer::new(&[program]);
    assert_eq!(symbols.frames(address)[0].function, format!("{file}+{offset:#x} [build id 0123456789ab]"));
    assert_eq!(symbols.missing().count(), 1);
}

#[test]
fn a_moved_binary_is_found_by_its_id_below_the_symbol_folder() {
    let (program, address) = program_and_address();
    let folder = Folder::new("moved");
    let deep = folder.0.join("a/b");
    fs::create_dir_all(&deep).unwrap();
    fs::copy(&program.path, deep.join("renamed")).unwrap();
    fs::write(deep.join("noise"), "\x7fELF and nothing else").unwrap();
    let moved = Module { path: "/no/longer/here".into(), ..program };
    assert!(!is_known(&Symbolizer::new(std::slice::from_ref(&moved)).frames(address)[0]));
    let mut symbols = Symbolizer::new(&[moved]).with_folder(&folder.0);
    assert!(symbols.frames(address).iter().any(is_known));
    assert_eq!(symbols.missing().count(), 0);
}

#[test]
fn a_symbol_file_is_found_in_the_layout_of_distributions() {
    let (program, address) = program_and_address();
    let folder = Folder::new("layout");
    let (first, rest) = program.build_id.split_at(2);
    fs::create_dir_all(folder.0.join(".build-id").join(first)).unwrap();
    fs::copy(&program.path, folder.0.join(".build-id").join(first).join(format!("{rest}.debug"))).unwrap();
    let moved = Module { path: "/no/longer/here".into(), ..program };
    assert!(Symbolizer::new(&[moved]).with_folder(&folder.0).frames(address).iter().any(is_known));
}

#[test]
fn a_binary_without_build_id_is_identified_by_its_code() {
    let (program, address) = program_and_address();
    let folder = Folder::new("code");
    // Overwrites the type of the note that contains the build id, so that the copy has no build id.
    let mut bytes = fs::read(&program.path).unwrap();
    let note = bytes.windows(8).position(|w| w == b"\x03\0\0\0GNU\0").unwrap();
    bytes[note] = 0x99;
    let copy = folder.0.join("copy");
    fs::write(&copy, bytes).unwrap();
    let id = build_id::read(&copy).unwrap();
    assert!(id.build_id.is_empty() && !id.code_id.is_empty());
    let recorded = Module {
        path: copy.to_str().unwrap().into(),
        build_id: String::new(),
        code_id: id.code_id,
        ..program
    };
    assert!(Symbolizer::new(std::slice::from_ref(&recorded)).frames(address).iter().any(is_known));
    for code_id in ["", "10:00000000"] {
        let other = Module { code_id: code_id.into(), ..recorded.clone() };
        let frames = Symbolizer::new(&[other]).with_folder(&folder.0).frames(address);
        assert!(frames[0].function.starts_with("copy+0x"), "{frames:?}");
    }
}

#[test]
fn an_address_outside_all_binaries_is_its_own_name() {
    assert_eq!(Symbolizer::new(&[]).frames(0x1234)[0].function, "0x1234");
    assert_eq!(Symbolizer::new(&loaded_modules()).frames(0)[0].function, "0x0");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(6) })]

    #[test]
    fn every_address_has_a_frame_with_any_list_of_modules(
        addresses in prop::collection::vec(any::<u64>(), 50..100),
        wild in any::<[u64; 3]>(),
    ) {
        let mut modules = loaded_modules();
        modules.truncate(1);
        let program = modules[0].clone();
        modules.push(Module { bias: wild[0], start: wild[1], end: wild[2], ..program.clone() });
        modules.push(Module { start: 0, end: u64::MAX, bias: wild[0], path: String::new(), ..Module::default() });
        let mut symbols = Symbolizer::new(&modules);
        for address in addresses {
            let inside = program.start + address % (program.end - program.start);
            prop_assert!(!symbols.frames(inside).is_empty());
            prop_assert!(!symbols.frames(address).is_empty());
        }
    }
}
