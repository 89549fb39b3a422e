//! With the recorder compiled out, scopes compile to nothing: `tests/programs/off` contains functions in four versions (bare,
//! annotated as modules, annotated as operators, guarded), and this test compares their machine code. The program asserts at
//! compile time that a guard is zero-sized and has no destructor, and that each item of the recording API, which `api` lists,
//! exists without the recorder.

use memtrack_tests::nested;
use object::{File, Object, ObjectSection, ObjectSymbol, RelocationTarget, SectionIndex};
use std::fs;
use std::path::PathBuf;

#[expect(dead_code, reason = "it compiles with the recorder too")]
#[path = "../../programs/off/src/api.rs"]
mod api;
#[expect(dead_code, reason = "it compiles with the recorder too")]
#[path = "../../programs/off/src/api_of_reports.rs"]
mod api_of_reports;

#[test]
fn annotated_and_guarded_functions_have_the_machine_code_of_bare_ones() {
    let bytes = fs::read(object_file()).unwrap();
    let object = File::parse(&*bytes).unwrap();
    for function in ["3sum", "5parse", "7collect", "5drive", "7forward"] {
        let bare = Code::of(&object, "4bare", function);
        assert!(bare.bytes.len() > 16, "{function} was optimised away");
        assert_eq!(Code::of(&object, "7tracked", function), bare, "{function}, annotated");
        assert_eq!(Code::of(&object, "7reading", function), bare, "{function}, annotated as an operator");
        assert_eq!(Code::of(&object, "7guarded", function), bare, "{function}, guarded");
    }
}

/// Builds the program in a separate target folder, and returns its only object file.
fn object_file() -> PathBuf {
    let object = nested::target_folder("off").join("off.o");
    let emit = format!("--emit=obj={}", object.display());
    nested::cargo("off", &["rustc", "--release", "--", &emit], &[]);
    object
}

/// The bytes of a function, and the relocations that the linker will apply to them.
#[derive(Debug, PartialEq)]
struct Code {
    bytes: Vec<u8>,
    relocations: Vec<(u64, Target)>,
}

/// The target of a relocation; anonymous data is compared by its contents, not by its name.
#[derive(Debug, PartialEq)]
enum Target {
    Symbol(String, i64),
    Data(Vec<u8>, i64),
}

impl Code {
    /// Returns the code of a function in a module; the mangled name contains both names, each after its length.
    fn of(object: &File, module: &str, function: &str) -> Self {
        let symbol = object
            .symbols()
            .find(|symbol| {
                let name = symbol.name().unwrap_or("");
                symbol.is_definition() && name.contains(module) && name.contains(function)
            })
            .unwrap_or_else(|| panic!("no symbol of {module}::{function}"));
        let section = object.section_by_index(symbol.section_index().unwrap()).unwrap();
        let (start, size) = (symbol.address(), symbol.size());
        let bytes = section.data().unwrap()[start as usize..(start + size) as usize].to_vec();
        let relocations = section
            .relocations()
            .filter(|(at, _)| (start..start + size).contains(at))
            .map(|(at, relocation)| {
                (at - start, Target::of(object, relocation.target(), relocation.addend()))
            })
            .collect();
        Self { bytes, relocations }
    }
}

impl Target {
    fn of(object: &File, target: RelocationTarget, addend: i64) -> Self {
        match target {
            RelocationTarget::Symbol(index) => {
                let symbol = object.symbol_by_index(index).unwrap();
                match symbol.name() {
                    // Anonymous data is compared by its contents.
                    Ok(name) if name.is_empty() || name.starts_with(".L") => {
                        Self::of_section(object, symbol.section_index().unwrap(), addend)
                    }
                    name => Self::Symbol(name.unwrap().to_owned(), addend),
                }
            }
            RelocationTarget::Section(index) => Self::of_section(object, index, addend),
            other => panic!("{other:?} is unexpected"),
        }
    }

    fn of_section(object: &File, index: SectionIndex, addend: i64) -> Self {
        Self::Data(object.section_by_index(index).unwrap().data().unwrap().to_vec(), addend)
    }
}
