//! Scrubs the names of Rust, C++ and C functions, one identifier at a time. Arguments in brackets can be private even
//! if the function is not (`Vec<my::Secret>::push`). The form of a name is kept, because reports recognize trait methods
//! and allocator entry points by it.

use super::pseudonyms::Pseudonyms;
use super::public;

/// The context that determines which paths in a name are kept.
pub(super) struct NameScrubber<'a> {
    pub(super) pseudonyms: &'a mut Pseudonyms,
    /// Whether the function itself is kept; this does not apply to its arguments.
    pub(super) is_kept: bool,
    /// Returns whether one of the user's globs keeps a path such as `my::Type`.
    pub(super) keeps: &'a dyn Fn(&str) -> bool,
    /// Whether the name is from Rust; if not, it is from C or C++.
    pub(super) is_rust: bool,
    /// Whether the source file is known and does not belong to a public library.
    pub(super) in_program_file: bool,
}

/// Keywords and built-in types of Rust, C++ and C, which are kept.
const LANGUAGE_WORDS: &str = "\
    as for impl dyn mut const fn unsafe extern where bool char str i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f16 \
    f32 f64 int long short unsigned signed void float double auto decltype volatile restrict static virtual thunk to \
    vtable typeinfo guard variable non-virtual wchar_t char8_t char16_t char32_t __int128 nullptr_t bfloat16 new delete \
    true false self Self C _object";

/// Words that compilers write in braces and after dots.
const COMPILER_WORDS: &str = "\
    closure impl shim lambda vtable type env async_fn async_block async_closure async_fn_env async_block_env closure_env \
    coroutine constant default arg unnamed once drop_in_place clone reify cold part constprop isra llvm lto_priv localalias \
    default_resolver fn_ptr";

/// An open bracket and the path inside it.
#[derive(Debug)]
struct Level {
    bracket: char,
    /// Whether the current path is kept; `None` before the path starts.
    keeps_path: Option<bool>,
    /// The value of `keeps_path` from the name after the next one on; `None` if it does not change there. In
    /// `<X as Y>::method::inner`, `method` belongs to the trait `Y`, but `inner` belongs to the type `X`.
    keeps_rest: Option<bool>,
    /// The value of `keeps_path` for the path before `as` or `for`, if one of these words occurred.
    kept_before: Option<Option<bool>>,
    /// Whether the bracket starts with `impl`, as in `slice::<impl [T]>`.
    is_impl: bool,
    /// Whether the bracket starts a path, as in `<X as Y>::f` but not in `X<Y>`.
    is_qualified: bool,
    /// Whether the path is the function itself rather than an argument.
    is_subject: bool,
}

impl Level {
    fn new(bracket: char, is_qualified: bool, is_subject: bool) -> Self {
        Self {
            bracket,
            keeps_path: None,
            keeps_rest: None,
            kept_before: None,
            is_impl: false,
            is_qualified,
            is_subject,
        }
    }
}

impl NameScrubber<'_> {
    /// Returns the name with its private parts replaced.
    pub(super) fn scrub(&mut self, name: &str) -> String {
        const ANONYMOUS: &str = "(anonymous namespace)";
        let mut out = String::with_capacity(name.len());
        let mut levels = vec![Level::new(' ', false, true)];
        let (mut rest, mut after_colons, mut after_name) = (name, false, false);
        while let Some(letter) = rest.chars().next() {
            let level = levels.len() - 1;
            if is_identifier_char(letter) {
                let end = rest.find(|letter| !is_identifier_char(letter)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                let before_dot = out.ends_with('.');
                out.push_str(&self.scrub_word(word, after, after_colons, before_dot, &mut levels[level]));
                (rest, after_colons, after_name) = (after, false, true);
                if word == "operator" {
                    let length = operator_length(rest);
                    out.push_str(&rest[..length]);
                    rest = &rest[length..];
                }
                continue;
            }
            if let Some(after) = rest.strip_prefix(ANONYMOUS) {
                out.push_str(ANONYMOUS);
                (rest, after_colons, after_name) = (after, false, true);
                continue;
            }
            if let Some(after) = rest.strip_prefix("::") {
                out.push_str("::");
                (rest, after_colons, after_name) = (after, true, false);
                continue;
            }
            match letter {
                '<' | '(' | '[' | '{' => {
                    let is_qualified = letter == '<' && !after_colons && !after_name;
                    let mut inner =
                        Level::new(letter, is_qualified, is_qualified && levels[level].is_subject);
                    inner.is_impl = letter == '<' && after_colons && rest.starts_with("<impl ");
                    levels.push(inner);
                }
                '>' if out.ends_with('-') => {}
                '>' | ')' | ']' | '}' if level > 0 && is_bracket_pair(levels[level].bracket, letter) => {
                    let inner = levels.pop().unwrap_or_else(|| Level::new(' ', false, false));
                    close_bracket(&inner, &mut levels[level - 1]);
                    out.push(letter);
                    (rest, after_colons, after_name) = (&rest[1..], false, true);
                    continue;
                }
                _ => {}
            }
            out.push(letter);
            rest = &rest[letter.len_utf8()..];
            // A destructor such as `~vector` is one name.
            (after_colons, after_name) = (after_colons && letter == '~', false);
        }
        out
    }

    fn scrub_word(
        &mut self,
        word: &str,
        after: &str,
        after_colons: bool,
        after_dot: bool,
        level: &mut Level,
    ) -> String {
        if word.starts_with(|letter: char| letter.is_ascii_digit()) && word.len() <= 20 {
            return if word.bytes().all(|byte| byte.is_ascii_digit()) {
                word.into()
            } else {
                self.pseudonym(word, after)
            };
        }
        if (level.bracket == '{' || after_dot) && public::is_in(COMPILER_WORDS, word) {
            return word.to_owned();
        }
        if after_colons {
            let stays = level.keeps_path.unwrap_or(false);
            if let Some(rest) = level.keeps_rest.take() {
                level.keeps_path = Some(rest);
            }
            return if stays || word == "operator" { word.to_owned() } else { self.pseudonym(word, after) };
        }
        if matches!(word, "as" | "for") {
            level.kept_before = Some(level.keeps_path);
            (level.keeps_path, level.keeps_rest) = (None, None);
            return word.to_owned();
        }
        let is_alone = !after.starts_with("::");
        // A single capital letter is a type parameter.
        let is_parameter = word.len() == 1 && word.starts_with(|letter: char| letter.is_ascii_uppercase());
        if is_alone && (public::is_in(LANGUAGE_WORDS, word) || is_parameter || word == "operator") {
            return word.to_owned();
        }
        let stays = (level.is_subject && self.is_kept) || self.keeps_path(word, after);
        (level.keeps_path, level.keeps_rest) = (Some(stays), None);
        if stays { word.to_owned() } else { self.pseudonym(word, after) }
    }

    /// Returns whether the path that starts with `word` is kept.
    fn keeps_path(&self, word: &str, after: &str) -> bool {
        let is_public = if !after.starts_with("::") {
            public::is_function(word)
        } else if self.is_rust {
            public::is_crate(word)
        } else {
            public::is_namespace(word, self.in_program_file)
        };
        let more =
            after.find(|letter: char| !is_identifier_char(letter) && letter != ':').unwrap_or(after.len());
        is_public || (self.keeps)(format!("{word}{}", &after[..more]).trim_end_matches(':'))
    }

    fn pseudonym(&mut self, word: &str, after: &str) -> String {
        let is_inner = after.starts_with("::") && !after.starts_with("::<") && !after.starts_with("::{");
        let kind = match word.chars().next() {
            Some(first) if first.is_uppercase() => "Type",
            _ if is_inner => "module",
            _ => "function",
        };
        self.pseudonyms.pseudonym(kind, word)
    }
}

/// Determines whether the path that continues after the bracket `inner` is kept.
fn close_bracket(inner: &Level, outer: &mut Level) {
    if inner.is_qualified {
        // `<[T]>::f` can only belong to the standard library.
        let subject = inner.kept_before.unwrap_or(inner.keeps_path);
        outer.keeps_path = inner.keeps_path.or(inner.kept_before.is_none().then_some(true));
        outer.keeps_rest = inner.kept_before.is_some().then_some(subject.unwrap_or(false));
    } else if inner.is_impl {
        // In `<impl Y for X>`, the trait comes first. For `<impl [T]>`, the enclosing module decides.
        let of_trait = inner.kept_before.unwrap_or(inner.keeps_path);
        outer.keeps_path = of_trait.or(outer.keeps_path);
        outer.keeps_rest = inner.kept_before.is_some().then_some(inner.keeps_path.unwrap_or(false));
    }
}

fn is_bracket_pair(open: char, close: char) -> bool {
    matches!((open, close), ('<', '>') | ('(', ')') | ('[', ']') | ('{', '}'))
}

fn is_identifier_char(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

/// Returns the length of the symbol after C++'s `operator`.
fn operator_length(rest: &str) -> usize {
    if rest.starts_with("()") || rest.starts_with("[]") {
        return 2;
    }
    let symbols = ["<=>", "<<=", ">>=", "->*", "<<", ">>", "->", "<=", ">=", "==", "<", ">"];
    symbols.iter().find(|symbol| rest.starts_with(**symbol)).map_or(0, |symbol| symbol.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrub_name(name: &str, is_rust: bool) -> String {
        let mut pseudonyms = Pseudonyms::new("");
        let keeps = |path: &str| path.starts_with("kept::");
        let mut scrubber = NameScrubber {
            pseudonyms: &mut pseudonyms,
            is_kept: false,
            keeps: &keeps,
            is_rust,
            in_program_file: false,
        };
        let once = scrubber.scrub(name);
        assert_eq!(scrubber.scrub(&once), once, "twice is once");
        once
    }

    #[test]
    fn public_names_are_kept() {
        for name in [
            "alloc::vec::Vec<u8>::push",
            "<[T]>::to_vec",
            "<candle_core::tensor::Tensor>::matmul",
            "<candle_core::Tensor as core::ops::arith::Add<&candle_core::Tensor>>::add",
            "alloc::slice::<impl [T]>::to_vec",
            "core::ops::function::FnOnce::call_once{{vtable.shim}}",
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "kept::module::f",
            "main",
            "",
        ] {
            assert_eq!(scrub_name(name, true), name);
        }
        for name in [
            "at::Tensor at::native::add<float>(at::Tensor const&, long)",
            "at::native::(anonymous namespace)::f(int)",
            "at::native::x(int)::{lambda(int)#1}::operator()(int) const",
            "std::vector<at::Tensor, std::allocator<at::Tensor> >::~vector()",
            "operator new(unsigned long)",
            "bool std::operator< <char>(std::string const&)",
            "cudaMallocAsync",
            "_PyEval_EvalFrameDefault",
        ] {
            assert_eq!(scrub_name(name, false), name);
        }
    }

    #[test]
    fn private_parts_are_replaced_anywhere_in_name() {
        for (name, is_rust) in [
            ("secret::model::Secret<secret::T>::secret", true),
            ("alloc::vec::Vec<secret::Secret>::push", true),
            ("<secret::Secret as core::ops::drop::Drop>::drop", true),
            ("<secret::Secret as core::ops::drop::Drop>::drop::secret_helper", true),
            ("<candle_core::Tensor as secret::Ext>::secret", true),
            ("secret::<impl core::alloc::global::GlobalAlloc for secret::Secret>::realloc", true),
            ("core::ptr::drop_in_place<[secret::Secret; 3]>", true),
            ("core::ops::function::FnOnce::call_once::<{closure@/home/secret/src/secret.rs:3:4}>", true),
            ("alloc::boxed::Box<dyn secret::Secret + core::marker::Send>::new", true),
            ("<fn(secret::A) -> secret::B as core::ops::Fn>::call", true),
            ("secret", true),
            ("_ZN6secret1fE", true),
            ("secret.llvm.123", true),
            ("at::native::x<secret::Secret>(secret::A*)", false),
            ("void secret::kernel<(secret::Mode)2>(int)", false),
            ("std::function<secret::S (secret::T)>::operator()(secret::T) const", false),
            ("core::secret::run()", false),
            ("at::native::f(int)::{lambda(secret::X)#1}::operator()(secret::X) const", false),
            ("secret::operator<<(std::ostream&, secret::X const&)", false),
            ("std::secret::operator-><secret", false),
        ] {
            let result = scrub_name(name, is_rust);
            let leaks = result.to_lowercase().contains("secret");
            assert!(!leaks || name.starts_with("std::secret"), "{name}: {result}");
        }
    }

    #[test]
    fn form_of_name_stays() {
        use memtrack_frames::trim::{is_allocator_entry, is_plumbing};
        let entry = scrub_name("<svc::Counting as core::alloc::global::GlobalAlloc>::alloc", true);
        assert!(is_allocator_entry(&entry), "{entry}");
        let entry =
            scrub_name("svc::<impl core::alloc::global::GlobalAlloc for svc::Counting>::realloc", true);
        assert!(is_allocator_entry(&entry), "{entry}");
        let generic = scrub_name("alloc::vec::Vec<my::Thing>::push", true);
        assert!(generic.starts_with("alloc::vec::Vec<module_") && generic.ends_with(">::push"), "{generic}");
        assert!(is_plumbing(&generic));
        assert!(!is_plumbing(&scrub_name("my::process::<alloc::vec::Vec<u8>>", true)));
    }

    #[test]
    fn malformed_names_are_accepted() {
        for name in [
            "<",
            "<<<",
            "a<b",
            ">",
            "}{",
            "<é as ü>::ö",
            "::",
            "<impl ",
            "operator",
            "a::",
            &"<".repeat(5000),
        ] {
            scrub_name(name, true);
            scrub_name(name, false);
        }
    }
}
