//! Builds the libraries that `memtrack run` preloads, so that the command can embed them.
//!
//! A nested cargo builds them, in a separate target folder: cargo would not optimise them as build-dependencies, and no
//! setting of this package could change that. If a library cannot be built, the build of the command fails.
//!
//! **Why a nested cargo?** Build-dependencies can be optimised only by a workspace's profile, which `cargo install` from
//! a registry does not have, and cargo does not report where it put a shared library. Artifact dependencies are not
//! stable. Ordinary dependencies would link the hook and the recorder into the command itself. So this script writes a
//! project that depends on both packages, with the command's lock file and an optimised profile, and copies the libraries
//! from the paths that cargo documents.
//!
//! All builds of the command in one target folder share the project's folder, so that the recorder is compiled once for debug
//! and release. The crates that the command's own build fetched usually suffice, so the first attempt is offline. The command
//! depends on the packages under `cfg(any())`, which matches no platform. This puts them in its lock file and in the output of
//! `cargo vendor`, and means that they are published first. Packages in sibling folders named NAME-VERSION, as `cargo publish
//! --dry-run` arranges them, take precedence. `cargo install --offline` without `--locked` can fail, because the versions in
//! the lock file might not have been fetched.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// For each package: its name, the file name under which the command embeds its library, and its panic strategy. The second
/// library does not use the standard library, which requires `abort`. It has no dependencies that would have to be built again
/// for that strategy.
const LIBRARIES: [(&str, &str, &str); 2] =
    [("memtrack-preload", "preload.so", "unwind"), ("memtrack-preload-heap", "preload_heap.so", "abort")];

/// The profile of the libraries: optimised regardless of the command's profile, and without debug information, which is useless
/// in an embedded library.
const PROFILE: &str =
    "[profile.release]\nopt-level = 3\ncodegen-units = 1\ndebug = false\nincremental = false\n";

/// Crates that only dumps and reports need. In an unoptimised build of the command, the libraries contain unoptimised builds of
/// these crates, which saves a third of the libraries' build time: 30 s of processor time.
const REPORT_CRATES: [&str; 8] = [
    "addr2line",
    // Recording uses this crate only to unwind with libgcc, which is optimised anyway, if no other unwinder works. The rest
    // of the crate symbolizes.
    "backtrace",
    // The version that addr2line uses. framehop, which unwinds during recording, uses another version.
    "gimli@0.34",
    "object",
    "rustc-demangle",
    "serde",
    "serde_core",
    "serde_json",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The multiarch library folder of the target architecture, on distributions that have one per architecture.
    println!("cargo:rustc-env=MEMTRACK_MULTIARCH={}-linux-gnu", variable("CARGO_CFG_TARGET_ARCH"));
    let out = PathBuf::from(variable("OUT_DIR"));
    let fits = variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    if fits && env::var_os("CARGO_FEATURE_RUN").is_some() {
        build(&out);
    } else {
        for (_, embedded, _) in LIBRARIES {
            embed(&out, embedded, b"");
        }
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}

/// Writes a library to the file that the command embeds, and passes its checksum to the command's build: computing the checksum
/// at run time would mean reading the whole library.
fn embed(out: &Path, embedded: &str, content: &[u8]) {
    fs::write(out.join(embedded), content).expect("OUT_DIR can be written");
    let name = embedded.trim_end_matches(".so").to_uppercase();
    println!("cargo:rustc-env=MEMTRACK_{name}_CHECKSUM={:08x}", crc32fast::hash(content));
}

/// Builds both libraries and copies them to `out`, from which the command embeds them.
fn build(out: &Path) {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let manifest = manifest(&here);
    let project = project_folder(out, &manifest);
    let target = project.join("target");
    fs::create_dir_all(&project).expect("the target folder can be written");
    // Two builds of the command, with different profiles, may use the project at the same time.
    let one_at_a_time = fs::File::create(project.join("lock")).expect("the target folder can be written");
    one_at_a_time.lock().expect("a file can be locked");
    fs::write(project.join("Cargo.toml"), manifest).expect("the target folder can be written");
    fs::write(project.join("lib.rs"), "").expect("the target folder can be written");

    let mut message = String::new();
    // Usually the command's own build has fetched all crates, so no network is needed.
    let built = [Some("--offline"), None].into_iter().any(|network| {
        lock(&here, &project);
        LIBRARIES.iter().all(|(package, _, panic)| {
            let mut cargo = cargo(&project, &target, package, panic);
            let output = cargo.args(network).output().expect("cargo can be run");
            message = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success()
        })
    });
    assert!(
        built,
        "the libraries that `memtrack run` preloads could not be built; `--no-default-features` builds the command \
         without them:\n{message}"
    );

    let made = target.join(variable("TARGET")).join("release");
    for (package, embedded, _) in LIBRARIES {
        let name = format!("lib{}", package.replace('-', "_"));
        let library = made.join(format!("{name}.so"));
        let content = fs::read(&library)
            .unwrap_or_else(|error| panic!("{}, which cargo has built: {error}", library.display()));
        embed(out, embedded, &content);
        watch(&made.join(format!("{name}.d")));
    }
}

/// Returns the folder in which the libraries are built. All builds of the command in one target folder share it if they need
/// the same libraries, whichever packages cargo is building. `OUT_DIR` is TARGET/PROFILE/build/PACKAGE/out; if cargo moved it
/// to another depth, fewer builds would share the folder.
///
/// Cargo puts no hash into the name of a shared library, so the folder's name contains a hash of everything that affects the
/// libraries.
fn project_folder(out: &Path, manifest: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    manifest.hash(&mut hasher);
    println!("cargo:rerun-if-env-changed=RUSTFLAGS");
    for name in ["CARGO_ENCODED_RUSTFLAGS", "RUSTC", "RUSTUP_TOOLCHAIN"] {
        env::var_os(name).hash(&mut hasher);
    }
    let shared = out.ancestors().nth(4).unwrap_or(out);
    shared.join(format!("memtrack-preload-{:016x}", hasher.finish()))
}

/// Returns the manifest of a project that depends on both packages, from this workspace if they are in it, otherwise
/// from the registry that this package came from.
fn manifest(here: &Path) -> String {
    let mut text = String::from(
        "[workspace]\n[package]\nname = \"memtrack-preload-build\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [lib]\npath = \"lib.rs\"\n[dependencies]\n",
    );
    let version = variable("CARGO_PKG_VERSION");
    for (package, ..) in LIBRARIES {
        let folder = here.join(package.strip_prefix("memtrack-").unwrap_or(package));
        let _ = match folder.is_dir() {
            true => writeln!(text, "{package} = {{ path = {folder:?} }}"),
            false => writeln!(text, "{package} = \"={version}\""),
        };
    }
    text += PROFILE;
    if variable("OPT_LEVEL") == "0" {
        for package in REPORT_CRATES {
            let _ =
                writeln!(text, "[profile.release.package.\"{package}\"]\nopt-level = 0\ncodegen-units = 16");
        }
    }
    // If packages are in sibling folders with versions in their names, the command is built from these folders. The packages
    // need not be in a registry yet: cargo verifies packages this way before it publishes them.
    text += "[patch.crates-io]\n";
    let siblings = here.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    for sibling in siblings.map(|entry| entry.path()) {
        let name = sibling.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(package) = name.strip_suffix(&version).and_then(|name| name.strip_suffix('-')) else {
            continue;
        };
        if package.starts_with("memtrack-") && sibling != here && sibling.join("Cargo.toml").is_file() {
            let _ = writeln!(text, "{package} = {{ path = {sibling:?} }}");
        }
    }
    text
}

/// Copies the lock file of this package or its workspace to the project, so that both use the same versions.
fn lock(here: &Path, project: &Path) {
    let folders = [here.to_owned(), here.join("..")];
    if let Some(folder) = folders.iter().find(|folder| folder.join("Cargo.lock").is_file()) {
        for file in ["Cargo.lock", "Cargo.toml"] {
            println!("cargo:rerun-if-changed={}", folder.join(file).display());
        }
        fs::copy(folder.join("Cargo.lock"), project.join("Cargo.lock"))
            .expect("the target folder can be written");
    }
}

fn cargo(project: &Path, target: &Path, package: &str, panic: &str) -> Command {
    let mut cargo = Command::new(variable("CARGO"));
    cargo.args(["build", "--release", "--lib", "--target", &variable("TARGET")]);
    cargo.arg("--manifest-path").arg(project.join("Cargo.toml")).arg("--target-dir").arg(target);
    cargo.args(["--package", package]);
    // Settings for the command's profile must not affect the libraries, and clippy must not check dependencies.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PROFILE_")
            || ["CARGO_INCREMENTAL", "CARGO_BUILD_BUILD_DIR", "RUSTC_WORKSPACE_WRAPPER"].contains(&&*text)
        {
            cargo.env_remove(&name);
        }
    }
    cargo.env("CARGO_PROFILE_RELEASE_PANIC", panic);
    cargo
}

/// Makes cargo rerun this script when a source file in the dep-info file `list`, or its manifest, changes.
fn watch(list: &Path) {
    let text = fs::read_to_string(list).unwrap_or_else(|error| panic!("{}: {error}", list.display()));
    // Lines have the form `TARGET: SOURCE SOURCE`; a space in a file name is escaped with a backslash.
    let sources = text.lines().filter_map(|line| Some(line.split_once(": ")?.1)).flat_map(|sources| {
        let names = sources.replace("\\ ", "\0");
        names.split(' ').map(|name| name.replace('\0', " ")).collect::<Vec<_>>()
    });
    let sources: BTreeSet<PathBuf> = sources.filter(|name| !name.is_empty()).map(PathBuf::from).collect();
    let manifests: BTreeSet<PathBuf> = sources
        .iter()
        .filter_map(|source| {
            source.ancestors().map(|folder| folder.join("Cargo.toml")).find(|file| file.is_file())
        })
        .collect();
    for file in sources.union(&manifests) {
        println!("cargo:rerun-if-changed={}", file.display());
    }
}
