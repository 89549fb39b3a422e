//! Categories that are inferred without an operator trace, compared with those of PyTorch's profiler for the same programs: its
//! snapshots contain the category of each block, which the inference does not use.

use memtrack_core::analysis::peak::Peak;
use memtrack_core::profile::Category;
use memtrack_core::profile::reading::{BlockCategories, Rule};
use memtrack_core::snapshot::pytorch::{Key, LoadOptions};
use memtrack_core::snapshot::{Snapshot, SnapshotFiles};
use memtrack_core::stack::symbols::Symbolizer;
use memtrack_tests::{memtrack, oracle};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// A number of bytes or blocks that were compared, and how many of them have the same category as in PyTorch.
#[derive(Clone, Copy, Default)]
struct Agreement {
    right: u64,
    all: u64,
}

impl Agreement {
    fn add(&mut self, is_right: bool, amount: u64) {
        self.all += amount;
        self.right += if is_right { amount } else { 0 };
    }

    fn and(self, other: Self) -> Self {
        Self { right: self.right + other.right, all: self.all + other.all }
    }

    fn share(self) -> f64 {
        self.right as f64 / self.all.max(1) as f64
    }

    fn percent(self) -> String {
        format!("{:.1} %", self.share() * 100.0)
    }
}

/// How far the inferred categories of a program agree with PyTorch's, by several measures.
#[derive(Clone, Copy, Default)]
struct Measured {
    bytes_at_peak: Agreement,
    known_at_peak: Agreement,
    bytes: Agreement,
    blocks: Agreement,
}

impl Measured {
    fn and(self, other: &Self) -> Self {
        Self {
            bytes_at_peak: self.bytes_at_peak.and(other.bytes_at_peak),
            known_at_peak: self.known_at_peak.and(other.known_at_peak),
            bytes: self.bytes.and(other.bytes),
            blocks: self.blocks.and(other.blocks),
        }
    }
}

/// The bytes for each pair of indices: of PyTorch's category, and of the inferred category. "Unknown" has an index too.
type Confusion = HashMap<(usize, usize), u64>;

/// Compares the inferred categories of a profile's snapshot with those in the file; `before` contains PyTorch's categories of
/// blocks allocated before the trace, by address. Blocks without a category are skipped.
fn compare(path: &Path, before: &HashMap<u64, Category>, confusion: &mut Confusion) -> Measured {
    let mut snapshot = Snapshot::open(path, LoadOptions::default()).unwrap().snapshot;
    snapshot.order_by_time();
    let device = snapshot.device_ids()[0];
    let mut symbols = Symbolizer::of(&snapshot);
    let blocks = BlockCategories::infer_with(&snapshot, &mut symbols, device, |rule| rule != Rule::Given);
    let peak = Peak::of(&snapshot, device, &blocks.lifetimes);
    let details = &snapshot.pytorch.as_deref().unwrap().events;
    let mut measured = Measured::default();
    for (lifetime, read) in blocks.lifetimes.iter().zip(&blocks.decisions) {
        let truth = match (lifetime.from, lifetime.to) {
            (Some(row), _) => Category::from_name(&snapshot.strings.get(details.text(row, Key::Category))),
            (None, Some(row)) => before.get(&snapshot.events.address[row]).copied(),
            (None, None) => {
                lifetime.block.and_then(|row| before.get(&snapshot.blocks[row as usize].address).copied())
            }
        };
        let Some(truth) = truth else { continue };
        let category = read.map_or(Category::Unknown, |(category, _)| category);
        let is_right = category.index() == truth.index();
        measured.bytes.add(is_right, lifetime.bytes);
        measured.blocks.add(is_right, 1);
        if lifetime.is_live_after(peak.row) {
            measured.bytes_at_peak.add(is_right, lifetime.bytes);
            measured.known_at_peak.add(read.is_some(), lifetime.bytes);
        }
        *confusion.entry((truth.index(), category.index())).or_default() += lifetime.bytes;
    }
    measured
}

/// Returns PyTorch's categories of the blocks that are older than a profile, by address.
fn before_of(oracle: &Path) -> HashMap<u64, Category> {
    let file = std::fs::File::open(oracle).unwrap();
    let value: Value = serde_json::from_reader(flate2::read::GzDecoder::new(file)).unwrap();
    let key = |value: &Value| (value["id"].as_u64(), value["alloc"].as_u64());
    let first = value["categories"].as_array().unwrap().iter().filter(|row| row[1] == 0);
    let categories: HashMap<_, _> = first
        .map(|row| (key(&row[0]), row[2].as_str().and_then(Category::from_name).unwrap_or(Category::Unknown)))
        .collect();
    let older = value["timeline"].as_array().unwrap().iter().filter(|row| row[1] == "PREEXISTING");
    let known = older.filter_map(|row| Some((row[2]["ptr"].as_u64()?, *categories.get(&key(&row[2]))?)));
    known.collect()
}

/// Formats the agreement as a Markdown table: one row per program, and one for all programs.
fn agreement_table(rows: &[(String, Measured)]) -> String {
    let mut text =
        "| program | of the bytes at the peak | of all bytes | of all blocks | with a category at the peak |\n"
            .to_owned();
    text.push_str("|---|---|---|---|---|\n");
    let all = rows.iter().fold(Measured::default(), |sum, (_, measured)| sum.and(measured));
    for (name, measured) in rows.iter().chain([&("all of them".to_owned(), all)]) {
        let Measured { bytes_at_peak, known_at_peak, bytes, blocks } = measured;
        let [peak, known, bytes, blocks] =
            [bytes_at_peak, known_at_peak, bytes, blocks].map(|part| part.percent());
        writeln!(text, "| {name} | {peak} | {bytes} | {blocks} | {known} |").unwrap();
    }
    text
}

/// Formats the confusion matrix as a Markdown table.
fn confusion_table(confusion: &Confusion) -> String {
    let names: Vec<&str> =
        Category::ALL[..Category::COMPATIBLE].iter().map(|category| category.name()).collect();
    let heads: Vec<String> = names.iter().map(|name| name.to_lowercase().replace('_', " ")).collect();
    let mut text = format!("| PyTorch says | {} |\n|---|{}\n", heads.join(" | "), "---|".repeat(names.len()));
    for (truth, name) in names.iter().enumerate() {
        let cells = (0..names.len()).map(|read| confusion.get(&(truth, read)).copied().unwrap_or(0));
        let cells: Vec<String> = cells
            .map(|bytes| if bytes == 0 { String::new() } else { format!("{:.1}", bytes as f64 / 1024.0) })
            .collect();
        writeln!(text, "| {name} | {} |", cells.join(" | ")).unwrap();
    }
    text
}

#[test]
fn the_documentation_states_the_measured_agreement() {
    let folder = oracle("profiles");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with("_nostack"))
        .collect();
    names.sort();
    let mut confusion = Confusion::new();
    let rows: Vec<(String, Measured)> = names
        .into_iter()
        .map(|name| {
            let before = before_of(&folder.join(&name).join("oracle.json.gz"));
            let measured = compare(&folder.join(&name).join("snapshot.pickle.gz"), &before, &mut confusion);
            (name, measured)
        })
        .collect();
    let tables = agreement_table(&rows) + "\n" + &confusion_table(&confusion);
    println!("{tables}");
    let docs = std::fs::read_to_string(memtrack_tests::workspace().join("docs/CATEGORIES.md")).unwrap();
    for line in tables.lines().filter(|line| !line.is_empty()) {
        assert!(docs.lines().any(|other| other == line), "docs/CATEGORIES.md does not contain: {line}");
    }
}

#[test]
fn profiles_without_stacks_have_no_categories() {
    let folder = oracle("profiles");
    for name in ["conv_bn_sgdm_nostack", "mlp_adam_nostack"] {
        let path = folder.join(name).join("snapshot.pickle.gz");
        let measured = compare(&path, &HashMap::new(), &mut Confusion::new());
        assert_eq!(measured.known_at_peak.right, 0, "{name}");
    }
}

#[test]
fn the_documentation_lists_every_rule() {
    let docs = std::fs::read_to_string(memtrack_tests::workspace().join("docs/CATEGORIES.md")).unwrap();
    for rule in Rule::ALL {
        let line = docs.lines().find(|line| line.starts_with(&format!("| `{}` | ", rule.name())));
        let end = format!("| {} | {} |", rule.confidence().name(), rule.when());
        let line = line.unwrap_or_else(|| panic!("docs/CATEGORIES.md does not list {}", rule.name()));
        assert!(line.ends_with(&end), "the line of {} in docs/CATEGORIES.md is: {line}", rule.name());
        let category = rule.category();
        assert!(category == Category::Unknown || line.contains(&format!("| {category} |")), "{line}");
    }
}

/// Compares only blocks that these programs allocated during the trace.
#[test]
fn most_training_allocations_have_pytorchs_category() {
    for (name, bytes, at_peak) in [("conv_bn_sgdm", 0.99, 0.99), ("transformer_adamw", 0.88, 0.99)] {
        let path = oracle(&format!("profiles/{name}/snapshot.pickle.gz"));
        let measured = compare(&path, &HashMap::new(), &mut Confusion::new());
        assert!(measured.bytes.share() >= bytes, "{name}: {}", measured.bytes.percent());
        assert!(measured.bytes_at_peak.share() >= at_peak, "{name}: {}", measured.bytes_at_peak.percent());
    }
}

/// Runs `memtrack categories` with these arguments after the file.
fn categories(path: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(memtrack()).arg("categories").arg(path).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_command_lists_the_rules_behind_the_categories_of_a_snapshot() {
    let path = oracle("profiles/transformer_adamw/snapshot.pickle.gz");
    let (code, text, error) = categories(&path, &[]);
    assert_eq!((code, error.as_str()), (0, ""));
    // PyTorch's snapshot names the categories only of blocks that were allocated during the trace.
    for part in ["given by the file", "not exact", "At the peak", "At the end", "Unknown:", "By these rules:"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, json, _) = categories(&path, &["--json", "--at", "peak", "--device", "0"]);
    let value: Value = serde_json::from_str(&json).unwrap();
    let device = &value["devices"][0];
    assert_eq!((code, &device["exact"], &device["moments"][0]["moment"]), (0, &false.into(), &"peak".into()));
    let given = device["rules"].as_array().unwrap().iter().any(|row| row["rule"] == "given");
    assert!(given, "{device}");
}

#[test]
fn options_for_operator_traces_are_refused_for_a_snapshot() {
    let path = oracle("profiles/conv_bn_sgdm/snapshot.pickle.gz");
    for option in ["--tensors", "--compat"] {
        let (code, _, error) = categories(&path, &[option]);
        assert!(code == 2 && error.contains(option) && error.contains("not an operator trace"), "{error}");
    }
    let (code, _, error) = categories(&path, &["--device", "cuda:7"]);
    assert!(code == 2 && error.contains("it has: 0"), "{error}");
    assert_eq!(categories(&path, &["--device", "cuda:0"]).0, 0);
}

#[test]
fn the_report_on_a_snapshot_without_stacks_explains_what_to_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.json");
    let event = serde_json::json!({"action": "alloc", "addr": 1, "size": 600, "stream": 0, "time_us": 1});
    std::fs::write(&path, serde_json::json!({"segments": [], "device_traces": [[event]]}).to_string())
        .unwrap();
    let (code, text, _) = categories(&path, &[]);
    assert_eq!(code, 0);
    assert!(text.contains("no category is known") && text.contains("_record_memory_history("), "{text}");
}
