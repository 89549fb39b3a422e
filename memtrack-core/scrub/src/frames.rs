//! Scrubs frames by replacing the private parts of their functions and files, in any notation.

use super::Scrub;
use super::native::NameScrubber;
use super::paths;
use super::pseudonyms::Pseudonyms;
use super::public;
use memtrack_frames::language::is_javascript;
use memtrack_frames::ownership::{matches_name, matches_path, qualified_path};
use memtrack_frames::torch_stacks::{MODULE_FRAME_PREFIX, ParsedFrame};
use memtrack_model::Frame;
use memtrack_model::paths::is_separator;

/// Parts of Python function names that identify no user.
const PYTHON_WORDS: [&str; 10] = [
    "<module>",
    "<lambda>",
    "<listcomp>",
    "<dictcomp>",
    "<setcomp>",
    "<genexpr>",
    "<locals>",
    "forward",
    "backward",
    "main",
];

/// Words that identify no user in texts such as `<built-in method mul_ of Parameter object at 0x0>`.
const BUILT_IN_WORDS: [&str; 9] =
    ["built-in", "method", "function", "of", "type", "object", "at", "module", "PyCapsule"];

impl Scrub {
    /// Returns the frame with its private parts replaced.
    pub(super) fn scrub_frame(&mut self, frame: &Frame) -> Frame {
        let line = ParsedFrame::of(frame);
        // PyTorch's profiler puts a whole frame into the function's name, as in `file.py(12): function`.
        let is_profiled = line.is_python && line.file != frame.file.as_deref().unwrap_or_default();
        if is_profiled && let Some(at) = frame.function.find("): ").filter(|&at| at >= line.file.len()) {
            let number = &frame.function[line.file.len()..at + 3];
            let inner = Frame {
                function: line.function.to_owned(),
                file: Some(line.file.to_owned()),
                ..Frame::default()
            };
            let inner = self.scrub_frame(&inner);
            let function = format!("{}{number}{}", inner.file.unwrap_or_default(), inner.function);
            let file = frame.file.as_deref().map(|file| self.scrub_path(file));
            return Frame { function, file, line: frame.line, binary: None };
        }
        let is_public = paths::is_public(line.file);
        let is_script = line.is_python || is_javascript(frame);
        let is_kept = self.keep.iter().any(|glob| {
            let path = if is_script { line.function.to_owned() } else { qualified_path(line.function) };
            matches_path(glob, line.file) || matches_name(glob, &path)
        });
        let function = if let Some(module) = frame.function.strip_prefix(MODULE_FRAME_PREFIX) {
            let (class, number) = match module.rsplit_once('_') {
                Some((class, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                    (class, Some(number))
                }
                _ => (module, None),
            };
            let stays = is_kept || public::is_class(class);
            let class = if stays { class.to_owned() } else { self.pseudonyms.pseudonym("Type", class) };
            let number = number.map_or_else(String::new, |number| format!("_{number}"));
            format!("{MODULE_FRAME_PREFIX}{class}{number}")
        } else if frame.function.starts_with("<built-in ") {
            scrub_built_in(&frame.function, &mut self.pseudonyms)
        } else if let Some(place) = self.scrub_binary_offset(&frame.function) {
            place
        } else if is_script {
            if is_kept || is_public {
                frame.function.clone()
            } else {
                scrub_script(&frame.function, &mut self.pseudonyms)
            }
        } else {
            self.scrub_native(frame, line.file, is_public, is_kept)
        };
        let file = frame.file.as_deref().map(|file| match function == frame.function && is_generated(file) {
            true => file.to_owned(),
            false => self.scrub_path(file),
        });
        // Scrubbed files do not name binaries, so neither does the scrubbed snapshot in memory.
        Frame { function, file, line: frame.line, binary: None }
    }

    /// Scrubs names such as `libfoo.so+0x12a [build id 24608a6efe03]`, `0x7f00aa` and `??`; returns `None` for any other
    /// name.
    fn scrub_binary_offset(&mut self, function: &str) -> Option<String> {
        let is_hex = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if matches!(function, "" | "??" | "[unknown]") || function.strip_prefix("0x").is_some_and(is_hex) {
            return Some(function.to_owned());
        }
        // A build ID identifies the binary, so it is removed.
        let (place, suffix) = match function.split_once(" [build id ") {
            Some((place, _)) => (place, ""),
            None => match function.strip_suffix(" [no build id]") {
                Some(place) => (place, " [no build id]"),
                None => (function, ""),
            },
        };
        let (file, offset) = place.rsplit_once("+0x").filter(|(_, offset)| is_hex(offset))?;
        Some(format!("{}+0x{offset}{suffix}", self.scrub_path(file)))
    }

    fn scrub_native(&mut self, frame: &Frame, file: &str, is_public: bool, is_kept: bool) -> String {
        const FILE_INITIALIZER: &str = "_GLOBAL__sub_I_";
        if let Some(inner) = frame.function.strip_prefix(FILE_INITIALIZER).filter(|_| !is_kept) {
            return format!("{FILE_INITIALIZER}{}", self.pseudonyms.pseudonym("function", inner));
        }
        let keeps = |path: &str| self.keep.iter().any(|glob| matches_name(glob, path));
        let is_cpp = match file.rsplit_once('.') {
            Some((_, ending)) => ending != "rs",
            // Without a file, parentheses mean C++, because the names of Rust functions contain no arguments.
            None => frame.function.contains('('),
        };
        let in_program_file = file.contains(is_separator) && !is_public;
        let pseudonyms = &mut self.pseudonyms;
        NameScrubber { pseudonyms, is_kept, keeps: &keeps, is_rust: !is_cpp, in_program_file }
            .scrub(&frame.function)
    }
}

/// Returns whether `file` is the name, without a folder, of a file that PyTorch's build generates, such as
/// `RegisterCUDA.cpp`.
fn is_generated(file: &str) -> bool {
    const GENERATED_PREFIXES: [&str; 6] = [
        "Register",
        "VariableType_",
        "TraceType_",
        "ADInplaceOrViewType_",
        "python_variable",
        "python_torch_functions",
    ];
    !file.contains(is_separator)
        && file.ends_with(".cpp")
        && GENERATED_PREFIXES.iter().any(|name| file.starts_with(name))
}

/// Scrubs a name such as `Class.method.<locals>.<lambda>`, part by part.
fn scrub_script(function: &str, pseudonyms: &mut Pseudonyms) -> String {
    let part = |part: &str| {
        let is_special = part.len() > 4 && part.starts_with("__") && part.ends_with("__");
        // A name such as `__secret__` is as private as any other.
        if PYTHON_WORDS.contains(&part) || (is_special && SPECIAL_METHODS.contains(&part)) {
            return part.to_owned();
        }
        let is_class = part.starts_with(char::is_uppercase);
        pseudonyms.pseudonym(if is_class { "Type" } else { "function" }, part)
    };
    function.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// Python's special methods that are kept.
const SPECIAL_METHODS: [&str; 14] = [
    "__init__",
    "__call__",
    "__new__",
    "__enter__",
    "__exit__",
    "__getitem__",
    "__setitem__",
    "__iter__",
    "__next__",
    "__len__",
    "__add__",
    "__mul__",
    "__torch_function__",
    "__torch_dispatch__",
];

fn scrub_built_in(function: &str, pseudonyms: &mut Pseudonyms) -> String {
    let mut out = String::new();
    let mut rest = function;
    while !rest.is_empty() {
        let is_part = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-');
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let is_address =
            word.strip_prefix("0x").is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if word.is_empty()
            || BUILT_IN_WORDS.contains(&word)
            || is_address
            || public::is_class(word)
            || word == "run_backward"
        {
            out.push_str(word);
        } else {
            let is_class = word.starts_with(char::is_uppercase);
            out.push_str(&pseudonyms.pseudonym(if is_class { "Type" } else { "function" }, word));
        }
        let next = after.find(is_part).unwrap_or(after.len());
        let (between, after) = after.split_at(next);
        out.extend(between.chars().filter(|letter| letter.is_ascii_punctuation() || *letter == ' '));
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(function: &str, file: Option<&str>) -> String {
        let frame =
            Frame { function: function.into(), file: file.map(str::to_owned), line: Some(3), binary: None };
        let mut scrub = Scrub::new().key("").keep("kept/*");
        let once = scrub.scrub_frame(&frame);
        assert_eq!(scrub.scrub_frame(&once), once, "twice is once");
        once.function
    }

    #[test]
    fn frames_of_every_kind_lose_their_private_names() {
        for (name, file) in [
            ("secret", Some("/home/secret.py")),
            ("Secret.forward.<locals>.secret", Some("/home/secret.py")),
            ("__secret__", Some("/home/secret.py")),
            ("/home/secret/train.py(12): secret", None),
            ("nn.Module: Secret_0", None),
            ("<built-in method secret of Secret object at 0x7f00>", None),
            ("libsecret.so+0x12a [build id 24608a6efe03]", None),
            ("secret+0x12a [no build id]", None),
            ("_GLOBAL__sub_I_secret.cpp", None),
            ("secret::f", None),
            ("at::secret::f()", Some("/home/secret/at.cpp")),
            ("cublas", Some("/home/secret.py")),
        ] {
            let scrubbed = function(name, file);
            assert!(!scrubbed.to_lowercase().contains("secret"), "{scrubbed}");
        }
        assert!(!function("x.so+0x12a [build id 24608a6efe03]", None).contains("2460"));
    }

    #[test]
    fn public_frames_stay() {
        let torch = "/x/site-packages/torch/nn/modules/module.py";
        for (name, file) in [
            ("_call_impl", Some(torch)),
            ("<module>", Some("/home/a.py")),
            ("secret", Some("/home/kept/secret.py")),
            ("nn.Module: Linear_12", None),
            ("??", None),
            ("at::_ops::mm::call(at::Tensor const&)", None),
            ("PyObject_Call", None),
            ("<frozen runpy>(12): x", None),
        ] {
            if !name.starts_with("<frozen") {
                assert_eq!(function(name, file), name);
            }
        }
    }
}
