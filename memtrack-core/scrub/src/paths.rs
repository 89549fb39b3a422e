//! Scrubs file paths, one component at a time. The same folder has the same pseudonym everywhere, and files of public
//! libraries keep their paths inside the library. Folders of the usual system layout are kept, because reports derive
//! the owner of the code from them.

use super::Scrub;
use super::pseudonyms::{Pseudonyms, is_pseudonym};
use super::public;
use memtrack_frames::ownership::matches_path;

/// Folders and files in the usual layout of a system, package or interpreter, which identify no user.
const PUBLIC_COMPONENTS: &str = "\
    usr local lib lib64 bin opt include src vendor .cargo registry git checkouts rustlib rust rustc library site-packages \
    dist-packages conda miniconda miniconda3 anaconda anaconda3 miniforge3 mambaforge envs pkgs nix store c++ libstdc++-v3 \
    pytorch torch nn modules optim autograd utils _dynamo _inductor _functorch csrc aten cuda cpython python Objects Python \
    Include Modules csu elf inet io libio malloc misc nptl nss posix stdlib string time sysdeps memtrack-core \
    Lib Scripts DLLs x86_64-linux-gnu aarch64-linux-gnu multiprocessing concurrent futures . .. \
    malloc.c libc-start.c pthread_create.c libc_start_call_main.h ceval.c main.rs lib.rs mod.rs __init__.py __main__.py";

/// Suffixes of program files, which are kept.
const KEPT_SUFFIXES: [&str; 35] = [
    "py", "pyx", "pyi", "pyc", "ipynb", "rs", "c", "cc", "cpp", "cxx", "cu", "cuh", "h", "hh", "hpp", "inl",
    "S", "so", "dll", "dylib", "exe", "pickle", "memtrack", "json", "egg", "js", "mjs", "cjs", "jsx", "ts",
    "mts", "cts", "tsx", "vue", "svelte",
];

/// Names that interpreters use in place of a file name.
const PSEUDO_FILES: [&str; 7] = [
    "<string>",
    "<stdin>",
    "<unknown>",
    "<built-in>",
    "<__array_function__ internals>",
    "<frozen>",
    "<console>",
];

/// Returns the index of the first component that belongs to a public library, or `None` if no component does.
fn first_public_component(parts: &[&str]) -> Option<usize> {
    let stem = |part: &str| part.split('.').next().unwrap_or(part).to_owned();
    let python_folder =
        |part: &str| part.strip_prefix("python3").is_some_and(|rest| rest.bytes().all(is_version_byte));
    for (at, part) in parts.iter().enumerate() {
        let next = parts.get(at + 1).copied().unwrap_or_default();
        let found = match *part {
            "site-packages" | "dist-packages" => public::is_package(&stem(next)),
            "rustc" => at <= 1 && next.len() == 40 && next.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "rustlib" => next == "src" && parts.get(at + 2) == Some(&"rust"),
            "pytorch" => matches!(next, "torch" | "aten" | "c10"),
            "aten" => next == "src" && matches!(parts.get(at + 2), Some(&("ATen" | "TH"))),
            // Python's standard library on Windows is in this folder.
            "Lib" => public::is_python_module(&stem(next)),
            // PyTorch's profiler and builds write the paths of PyTorch's own files relative to the folder that contains
            // `torch`.
            "torch" => at == 0 && parts.len() > 1,
            // These are sources of the Python interpreter, whose frames PyTorch's reports hide.
            "Objects" | "Python" | "Include" | "Modules" | "Parser" => {
                let is_c = parts.last().is_some_and(|file| file.ends_with(".c") || file.ends_with(".h"));
                is_c && parts[..at].iter().any(|folder| folder.to_ascii_lowercase().contains("python"))
            }
            folder if python_folder(folder) => {
                next != "site-packages" && next != "dist-packages" && public::is_python_module(&stem(next))
            }
            folder => registry_crate(parts, at).is_some_and(|name| name == folder),
        };
        if found {
            return Some(at);
        }
    }
    None
}

/// Returns the component at `at` if it is the folder of a public crate in cargo's registry.
fn registry_crate<'a>(parts: &[&'a str], at: usize) -> Option<&'a str> {
    let in_registry = at >= 2 && parts[at - 2] == "src" && is_crates_io(parts[at - 1]);
    let folder = *parts.get(at).filter(|_| in_registry)?;
    let (name, _) = folder.match_indices('-').find_map(|(dash, _)| {
        let version = &folder[dash + 1..];
        version.starts_with(|letter: char| letter.is_ascii_digit()).then(|| (&folder[..dash], version))
    })?;
    public::is_crate(&name.replace('-', "_")).then_some(folder)
}

/// Returns whether `folder` is cargo's folder for crates from crates.io. Other registries are private.
fn is_crates_io(folder: &str) -> bool {
    let hash = folder.strip_prefix("index.crates.io-").or_else(|| folder.strip_prefix("github.com-"));
    hash.is_some_and(|hash| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_version_byte(byte: u8) -> bool {
    byte == b'.' || byte.is_ascii_digit()
}

/// Returns whether a file belongs to a public library.
pub(super) fn is_public(file: &str) -> bool {
    let parts: Vec<&str> = file.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    PSEUDO_FILES.contains(&file)
        || is_in_node(file)
        || is_frozen(file)
        || first_public_component(&parts).is_some()
        || parts.last().is_some_and(|file| public::is_binary(file))
}

/// Returns whether `file` is a module of Node.js itself, such as `node:internal/timers`.
fn is_in_node(file: &str) -> bool {
    let module = file.strip_prefix("node:");
    module.is_some_and(|module| {
        module.bytes().all(|byte| byte.is_ascii_lowercase() || b"/_0123456789".contains(&byte))
    })
}

/// Returns whether `file` is a frozen module of Python's standard library, such as `<frozen importlib._bootstrap>`.
fn is_frozen(file: &str) -> bool {
    let module = file.strip_prefix("<frozen ").and_then(|rest| rest.strip_suffix('>'));
    module.is_some_and(|module| module.split('.').all(public::is_python_module))
}

impl Scrub {
    /// Returns the path with its private parts replaced.
    pub(super) fn scrub_path(&mut self, file: &str) -> String {
        if matches!(file, "" | "??") || PSEUDO_FILES.contains(&file) || is_frozen(file) || is_in_node(file) {
            return file.to_owned();
        }
        let numbered = file.strip_prefix("<eval_with_key>");
        if numbered.is_some_and(|rest| rest.bytes().all(is_version_byte)) {
            return file.to_owned();
        }
        if file.starts_with('<') && file.ends_with('>') {
            let inner = &file[1..file.len() - 1];
            return format!("<{}>", self.pseudonyms.pseudonym("file", inner));
        }
        // Each component is paired with the separator that follows it, which is kept.
        let mut parts: Vec<(&str, &str)> = Vec::new();
        let mut rest = file;
        while !rest.is_empty() {
            let end = rest.find(['/', '\\']).unwrap_or(rest.len());
            let (part, after) = rest.split_at(end);
            let (separator, after) = after.split_at(after.len().min(1));
            parts.push((part, separator));
            rest = after;
        }
        let names: Vec<&str> = parts.iter().map(|(part, _)| *part).filter(|part| !part.is_empty()).collect();
        let kept_by_glob = (0..names.len()).rev().find(|&at| {
            let tail = names[at..].join("/");
            self.keep.iter().any(|glob| matches_path(glob.trim_start_matches('/'), &tail))
        });
        let kept_from =
            [kept_by_glob, first_public_component(&names)].into_iter().flatten().min().unwrap_or(names.len());
        let (mut out, mut index) = (String::with_capacity(file.len()), 0);
        for (part, separator) in parts {
            if part.is_empty() || index >= kept_from {
                out.push_str(part);
            } else {
                out.push_str(&scrub_component(
                    part,
                    index + 1 == names.len() && separator.is_empty(),
                    &mut self.pseudonyms,
                ));
            }
            index += usize::from(!part.is_empty());
            out.push_str(separator);
        }
        out
    }
}

/// Scrubs one component of a path, which is either a folder or the file.
fn scrub_component(part: &str, is_file: bool, pseudonyms: &mut Pseudonyms) -> String {
    let is_version = |rest: &str| rest.starts_with('3') && rest.bytes().all(is_version_byte);
    let versioned =
        ["python", "python-", "Python-"].iter().any(|name| part.strip_prefix(name).is_some_and(is_version));
    let is_layout = public::is_in(PUBLIC_COMPONENTS, part);
    // A Windows drive, or the `?` of the prefix `\\?\`.
    let is_drive = part == "?" || matches!(part.as_bytes(), [drive, b':'] if drive.is_ascii_alphabetic());
    if is_layout
        || is_drive
        || versioned
        || is_crates_io(part)
        || is_pseudonym(part)
        || public::is_binary(part)
    {
        return part.to_owned();
    }
    if let Some(user) = part.strip_prefix("torchinductor_") {
        return format!("torchinductor_{}", pseudonyms.pseudonym("name", user));
    }
    let suffix = part.split_once('.').and_then(|(_, suffixes)| {
        let mut known = suffixes.split('.').filter(|suffix| KEPT_SUFFIXES.contains(suffix));
        known.next_back()
    });
    let stem = |suffix: &str| part.strip_suffix(suffix).and_then(|stem| stem.strip_suffix('.'));
    match suffix {
        // The part was scrubbed before, so its pseudonym stands for the whole name, including unknown suffixes.
        Some(suffix) if stem(suffix).is_some_and(is_pseudonym) => part.to_owned(),
        Some(suffix) => {
            format!("{}.{suffix}", pseudonyms.pseudonym(if is_file { "file" } else { "path" }, part))
        }
        None => pseudonyms.pseudonym(if is_file { "file" } else { "path" }, part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub(file: &str) -> String {
        let mut scrub = Scrub::new().key("").keep("lab/einops");
        let once = scrub.scrub_path(file);
        assert_eq!(scrub.scrub_path(&once), once, "twice is once");
        once
    }

    #[test]
    fn private_folders_are_replaced_and_structure_stays() {
        let (one, two) = (scrub("/home/ana/secret/model.py"), scrub("/home/ana/secret/train.py"));
        assert_eq!(one.rsplit_once('/').unwrap().0, two.rsplit_once('/').unwrap().0);
        assert_eq!(one.matches('/').count(), 4);
        assert!(one.ends_with(".py") && one != two);
        for file in [
            "/home/secret/x.py",
            "secret",
            "secret.py",
            "C:\\secret\\secret.secret",
            "<ipython-input-3-secret>",
            "<frozen secret>",
            "/tmp/torchinductor_secret/ab/secret.py",
            "/opt/secret/lib/libsecret.so.1.secret",
            "/root/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/secret-0.9.1/src/secret.rs",
            "/root/.cargo/registry/src/secret.example-1949cf8c6b5b557f/candle-core-0.9.1/src/tensor.rs",
            "/x/site-packages/secret/torch/nn/secret.py",
            "/secret/torch/nn/secret.py",
            "/secret/python3.10/secret.py",
            "/rustc/secret/library/secret.rs",
        ] {
            assert!(!scrub(file).contains("secret"), "{file}: {}", scrub(file));
        }
    }

    #[test]
    fn files_of_public_libraries_keep_their_paths_inside_library() {
        for (file, kept) in [
            (
                "/home/secret/lib/python3.10/site-packages/torch/nn/modules/module.py",
                "/site-packages/torch/nn/modules/module.py",
            ),
            ("/home/secret/lib/python3.10/threading.py", "/lib/python3.10/threading.py"),
            (
                "/secret/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/candle-core-0.9.1/src/tensor.rs",
                "/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/candle-core-0.9.1/src/tensor.rs",
            ),
            ("/home/secret/lab/einops/einops.py", "/lab/einops/einops.py"),
            ("/secret/lib/libtorch_cuda.so", "/lib/libtorch_cuda.so"),
        ] {
            let scrubbed = scrub(file);
            assert!(scrubbed.ends_with(kept) && !scrubbed.contains("secret"), "{scrubbed}");
        }
        for file in [
            "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library/alloc/src/vec/mod.rs",
            "<string>",
            "??",
            "",
            "<frozen importlib._bootstrap>",
            "<eval_with_key>.12",
            "torch/nn/modules/module.py",
        ] {
            assert_eq!(scrub(file), file);
        }
    }
}
