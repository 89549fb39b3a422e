//! Every code block of README.md and docs/: Rust is compiled as in a user's program, command lines are parsed by `memtrack`, and
//! manifests, Python, JavaScript and JSON by their own parsers. `tests/docs/around/` contains the code that the Rust blocks use
//! but omit.

use memtrack_tests::{nested, workspace};
use serde_json::Value;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// A code block of a Markdown file.
struct Block {
    /// The path of the file, such as `docs/RUST.md`.
    file: String,
    /// The number of the line at which `text` begins.
    line: usize,
    language: String,
    text: String,
}

impl Block {
    fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// Returns all code blocks, file by file.
fn blocks() -> Vec<Block> {
    let docs = fs::read_dir(workspace().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let docs = docs.map(|name| format!("docs/{}", name.into_string().unwrap()));
    let mut files: Vec<String> = docs.filter(|name| name.ends_with(".md")).collect();
    files.push("README.md".into());
    files.sort();
    let mut blocks = Vec::new();
    for file in files {
        let text = fs::read_to_string(workspace().join(&file)).unwrap();
        let mut open: Option<Block> = None;
        for (number, line) in text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), open.as_mut()) {
                (Some(language), None) => {
                    let (file, language) = (file.clone(), language.to_owned());
                    open = Some(Block { file, line: number + 2, language, text: String::new() });
                }
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (None, Some(block)) => writeln!(block.text, "{line}").unwrap(),
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{file}: a block is not closed");
    }
    blocks
}

fn of_language(language: &str) -> Vec<Block> {
    let blocks: Vec<Block> = blocks().into_iter().filter(|block| block.language == language).collect();
    assert!(!blocks.is_empty(), "no block of {language} is found");
    blocks
}

#[test]
fn every_block_is_of_a_language_that_is_checked() {
    let known = ["", "console", "js", "json", "python", "rust", "text", "toml"];
    for block in blocks() {
        assert!(known.contains(&&*block.language), "{}: `{}`", block.place(), block.language);
    }
}

#[test]
fn rust_blocks_compile() {
    let mut blocks = of_language("rust");
    let mut program = String::new();
    let mut files: Vec<String> = blocks.iter().map(|block| block.file.clone()).collect();
    files.dedup();
    for file in files {
        let name = file.rsplit('/').next().unwrap().strip_suffix(".md").unwrap();
        let around = workspace().join(format!("tests/docs/around/{name}.rs"));
        let around =
            fs::read_to_string(&around).unwrap_or_else(|error| panic!("{}: {error}", around.display()));
        writeln!(program, "mod {} {{", name.to_lowercase()).unwrap();
        for line in around.lines() {
            let begin = line.trim().strip_prefix("block!(\"").and_then(|rest| rest.strip_suffix("\");"));
            let Some(begin) = begin else {
                writeln!(program, "{line}").unwrap();
                continue;
            };
            let begin = begin.replace("\\n", "\n").replace("\\\"", "\"");
            let place = blocks.iter().position(|block| block.file == file && block.text.starts_with(&begin));
            let place = place.unwrap_or_else(|| {
                panic!("tests/docs/around/{name}.rs: no block of {file} begins {begin:?}")
            });
            let block = blocks.remove(place);
            writeln!(program, "// {}\n{}", block.place(), as_part(&block)).unwrap();
        }
        writeln!(program, "}}").unwrap();
    }
    let left: Vec<String> = blocks.iter().map(Block::place).collect();
    assert!(left.is_empty(), "{left:?} are in no file of tests/docs/around");

    let path = nested::target_folder("docs").join("blocks.rs");
    if fs::read_to_string(&path).ok().as_ref() != Some(&program) {
        fs::write(&path, &program).unwrap();
    }
    let path = path.to_str().unwrap();
    nested::member("memtrack-docs-tests", "blocks", &[("MEMTRACK_DOCS_BLOCKS", path)]);
}

/// Returns the text of a Rust block as a part of one program: ellipses become expressions; attributes that a program may have
/// only once, or that only tests have, are removed.
fn as_part(block: &Block) -> String {
    let mut text = block.text.replace('…', "::core::unimplemented!()").replace("#[test]", "");
    if block.file != "README.md" {
        text = text.replace("#[global_allocator]", "");
    }
    text
}

#[test]
fn commands_can_be_parsed() {
    let mut parsed = 0;
    let metadata = nested::cargo_command()
        .args(["metadata", "--no-deps", "--offline", "--locked", "--format-version=1"])
        .current_dir(workspace())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    for block in blocks().into_iter().filter(|block| matches!(&*block.language, "" | "console")) {
        for line in block.text.replace("\\\n", " ").lines() {
            let words = words(line.strip_prefix("$ ").unwrap_or(line));
            match words.first().map(String::as_str) {
                Some("memtrack") => {
                    let refusal = memtrack_cli::refusal(words.iter().map(OsString::from));
                    assert_eq!(refusal, None, "{}: {line}", block.place());
                    parsed += 1;
                }
                Some("cargo") => check_cargo(&words, &metadata, &format!("{}: {line}", block.place())),
                _ => {}
            }
        }
    }
    assert!(parsed > 20, "{parsed} commands were found");
}

/// Splits the first command of a shell line into words.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote): (Option<String>, Option<char>) = (None, None);
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '|' | '>' | '<' | ';' | '&') => break,
            (None, '#') if word.is_none() => break,
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

/// Asserts that the packages, programs, features and paths named in a cargo command exist.
fn check_cargo(words: &[String], metadata: &Value, place: &str) {
    let after = |option: &str| {
        let at = words.iter().position(|word| word == option)?;
        words.get(at + 1).map(String::as_str)
    };
    let packages = metadata["packages"].as_array().unwrap();
    let path = after("--path").map(|path| workspace().join(path).join("Cargo.toml"));
    let named = |package: &&Value| match (&path, after("-p")) {
        (Some(path), _) => package["manifest_path"].as_str().map(PathBuf::from).as_ref() == Some(path),
        (None, name) => package["name"].as_str() == name,
    };
    if path.is_none() && after("-p").is_none() {
        return;
    }
    let package = packages.iter().find(named).unwrap_or_else(|| panic!("no such package: {place}"));
    if let Some(program) = after("--bin") {
        let targets = package["targets"].as_array().unwrap();
        assert!(targets.iter().any(|target| target["name"] == program), "no such program: {place}");
    }
    for feature in after("--features").into_iter().flat_map(|features| features.split(',')) {
        assert!(package["features"].get(feature).is_some(), "no such feature: {place}");
    }
}

#[test]
fn manifests_are_valid_and_name_features_that_exist() {
    let core = fs::read_to_string(workspace().join("memtrack-core/Cargo.toml")).unwrap();
    let core: toml::Table = core.parse().unwrap();
    let features: HashSet<&str> = core["features"].as_table().unwrap().keys().map(String::as_str).collect();
    for block in of_language("toml") {
        let table: toml::Table =
            block.text.parse().unwrap_or_else(|error| panic!("{}: {error}", block.place()));
        let dependencies = table.get("dependencies").and_then(|value| value.as_table()).unwrap_or(&table);
        let named = dependencies.get("memtrack-core").and_then(|value| value.get("features"));
        for feature in named.and_then(|value| value.as_array()).into_iter().flatten() {
            assert!(features.contains(feature.as_str().unwrap()), "{}: {feature:?}", block.place());
        }
    }
}

#[test]
fn json_blocks_are_json() {
    for block in of_language("json") {
        let parsed = serde_json::from_str::<Value>(&block.text.replace('…', ""));
        assert!(parsed.is_ok(), "{}: {parsed:?}", block.place());
    }
}

#[test]
#[cfg_attr(not(python3), ignore = "needs python3")]
fn python_blocks_compile() {
    for block in of_language("python") {
        let mut python = Command::new("python3")
            .args(["-c", "import sys; compile(sys.stdin.read(), sys.argv[1], 'exec')", &block.file])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        python.stdin.take().unwrap().write_all(block.text.as_bytes()).unwrap();
        assert!(python.wait().unwrap().success(), "{}", block.place());
    }
}

#[test]
#[cfg_attr(not(node), ignore = "needs node")]
fn javascript_blocks_compile() {
    let folder = tempfile::tempdir().unwrap();
    for block in of_language("js") {
        // The suffix `.mjs` makes the block a module, which may have top-level `await`.
        let path = folder.path().join("block.mjs");
        fs::write(&path, &block.text).unwrap();
        let status = Command::new("node").arg("--check").arg(&path).status().unwrap();
        assert!(status.success(), "{}", block.place());
    }
}
