//! Names of functions of Rust, C++ and C, whose identifiers become pseudonyms one by one: arguments in brackets may be
//! private even if the function is not (`Vec<my::Secret>::push`), and reports need the form of a name (whether it is a
//! trait's method, or an allocator's entry).

use super::pseudonyms::Pseudonyms;
use super::public;

/// The context that decides on the paths in a name.
pub(super) struct Naming<'a> {
    pub(super) pseudonyms: &'a mut Pseudonyms,
    /// Whether the function itself stays; its arguments are judged separately.
    pub(super) is_kept: bool,
    /// Returns whether the user keeps a path such as `my::Type`.
    pub(super) keeps: &'a dyn Fn(&str) -> bool,
    /// Rust's, or else C's and C++'s.
    pub(super) is_rust: bool,
    /// Whether the source file is known and not a public library's.
    pub(super) in_own_file: bool,
}

/// Words of the languages, including types, that stay.
const WORDS: &str = "\
    as for impl dyn mut const fn unsafe extern where bool char str i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f16 \
    f32 f64 int long short unsigned signed void float double auto decltype volatile restrict static virtual thunk to \
    vtable typeinfo guard variable non-virtual wchar_t char8_t char16_t char32_t __int128 nullptr_t bfloat16 new delete \
    true false self Self C _object";

/// Words that compilers use in braces and after dots.
const COMPILERS: &str = "\
    closure impl shim lambda vtable type env async_fn async_block async_closure async_fn_env async_block_env closure_env \
    coroutine constant default arg unnamed once drop_in_place clone reify cold part constprop isra llvm lto_priv localalias \
    default_resolver fn_ptr";

fn is_word(word: &str) -> bool {
    WORDS.split_ascii_whitespace().any(|known| known == word)
}

/// An open bracket and the path in it.
#[derive(Debug)]
struct Level {
    bracket: char,
    /// Whether the current path stays.
    path: Option<bool>,
    /// The decision after the next name of the path: a name within a trait's method is the type's again.
    then: Option<bool>,
    /// The path before `as` or `for`.
    first: Option<Option<bool>>,
    is_impl: bool,
    /// It begins a path: `<X as Y>::f`, and not `X<Y>`.
    is_qualified: bool,
    /// Whether it is the function itself, and no argument.
    is_subject: bool,
}

impl Level {
    fn new(bracket: char, is_qualified: bool, is_subject: bool) -> Self {
        Self { bracket, path: None, then: None, first: None, is_impl: false, is_qualified, is_subject }
    }
}

impl Naming<'_> {
    /// Returns the name with its private parts replaced.
    pub(super) fn scrubbed(&mut self, name: &str) -> String {
        const ANONYMOUS: &str = "(anonymous namespace)";
        let mut out = String::with_capacity(name.len());
        let mut levels = vec![Level::new(' ', false, true)];
        let (mut rest, mut after_colons, mut after_name) = (name, false, false);
        while let Some(letter) = rest.chars().next() {
            let level = levels.len() - 1;
            if is_letter(letter) {
                let end = rest.find(|letter| !is_letter(letter)).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                let before_dot = out.ends_with('.');
                out.push_str(&self.word(word, after, after_colons, before_dot, &mut levels[level]));
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
                '>' | ')' | ']' | '}' if level > 0 && closes(levels[level].bracket, letter) => {
                    let inner = levels.pop().unwrap_or_else(|| Level::new(' ', false, false));
                    after_own_bracket(&inner, &mut levels[level - 1]);
                    out.push(letter);
                    (rest, after_colons, after_name) = (&rest[1..], false, true);
                    continue;
                }
                _ => {}
            }
            out.push(letter);
            rest = &rest[letter.len_utf8()..];
            // `~vector` is one name.
            (after_colons, after_name) = (after_colons && letter == '~', false);
        }
        out
    }

    fn word(
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
                self.hidden(word, after)
            };
        }
        if (level.bracket == '{' || after_dot)
            && COMPILERS.split_ascii_whitespace().any(|known| known == word)
        {
            return word.to_owned();
        }
        if after_colons {
            let stays = level.path.unwrap_or(false);
            if let Some(then) = level.then.take() {
                level.path = Some(then);
            }
            return if stays || word == "operator" { word.to_owned() } else { self.hidden(word, after) };
        }
        if matches!(word, "as" | "for") {
            level.first = Some(level.path);
            (level.path, level.then) = (None, None);
            return word.to_owned();
        }
        let is_alone = !after.starts_with("::");
        // A parameter of a type.
        let is_parameter = word.len() == 1 && word.starts_with(|letter: char| letter.is_ascii_uppercase());
        if is_alone && (is_word(word) || is_parameter || word == "operator") {
            return word.to_owned();
        }
        let stays = (level.is_subject && self.is_kept) || self.stays(word, after);
        (level.path, level.then) = (Some(stays), None);
        if stays { word.to_owned() } else { self.hidden(word, after) }
    }

    /// Returns whether the path that begins with `word` stays.
    fn stays(&self, word: &str, after: &str) -> bool {
        let of_library = if !after.starts_with("::") {
            public::is_function(word)
        } else if self.is_rust {
            public::is_crate(word)
        } else {
            public::is_namespace(word, self.in_own_file)
        };
        let more = after.find(|letter: char| !is_letter(letter) && letter != ':').unwrap_or(after.len());
        of_library || (self.keeps)(format!("{word}{}", &after[..more]).trim_end_matches(':'))
    }

    fn hidden(&mut self, word: &str, after: &str) -> String {
        let is_inner = after.starts_with("::") && !after.starts_with("::<") && !after.starts_with("::{");
        let kind = match word.chars().next() {
            Some(first) if first.is_uppercase() => "Type",
            _ if is_inner => "module",
            _ => "function",
        };
        self.pseudonyms.of(kind, word)
    }
}

/// Sets the decision for a path after a bracket that belongs to it.
fn after_own_bracket(inner: &Level, outer: &mut Level) {
    if inner.is_qualified {
        // `<[T]>::f` can only be the standard library's.
        let subject = inner.first.unwrap_or(inner.path);
        outer.path = inner.path.or(inner.first.is_none().then_some(true));
        outer.then = inner.first.is_some().then_some(subject.unwrap_or(false));
    } else if inner.is_impl {
        // `<impl Y for X>`: the trait is first. For `<impl [T]>` the module around it decides.
        let of_trait = inner.first.unwrap_or(inner.path);
        outer.path = of_trait.or(outer.path);
        outer.then = inner.first.is_some().then_some(inner.path.unwrap_or(false));
    }
}

fn closes(open: char, close: char) -> bool {
    matches!((open, close), ('<', '>') | ('(', ')') | ('[', ']') | ('{', '}'))
}

fn is_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

/// Returns the length of the sign of C++'s `operator`.
fn operator_length(rest: &str) -> usize {
    if rest.starts_with("()") || rest.starts_with("[]") {
        return 2;
    }
    let signs = ["<=>", "<<=", ">>=", "->*", "<<", ">>", "->", "<=", ">=", "==", "<", ">"];
    signs.iter().find(|sign| rest.starts_with(**sign)).map_or(0, |sign| sign.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubbed(name: &str, is_rust: bool) -> String {
        let mut pseudonyms = Pseudonyms::new("");
        let keeps = |path: &str| path.starts_with("kept::");
        let mut naming = Naming {
            pseudonyms: &mut pseudonyms,
            is_kept: false,
            keeps: &keeps,
            is_rust,
            in_own_file: false,
        };
        let once = naming.scrubbed(name);
        assert_eq!(naming.scrubbed(&once), once, "twice is once");
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
            assert_eq!(scrubbed(name, true), name);
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
            assert_eq!(scrubbed(name, false), name);
        }
    }

    #[test]
    fn private_parts_are_replaced_anywhere_in_a_name() {
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
            let result = scrubbed(name, is_rust);
            let leaks = result.to_lowercase().contains("secret");
            assert!(!leaks || name.starts_with("std::secret"), "{name}: {result}");
        }
    }

    #[test]
    fn the_form_of_a_name_stays() {
        use crate::analysis::trim::{is_allocator_entry, is_plumbing};
        let entry = scrubbed("<svc::Counting as core::alloc::global::GlobalAlloc>::alloc", true);
        assert!(is_allocator_entry(&entry), "{entry}");
        let entry = scrubbed("svc::<impl core::alloc::global::GlobalAlloc for svc::Counting>::realloc", true);
        assert!(is_allocator_entry(&entry), "{entry}");
        let generic = scrubbed("alloc::vec::Vec<my::Thing>::push", true);
        assert!(generic.starts_with("alloc::vec::Vec<module_") && generic.ends_with(">::push"), "{generic}");
        assert!(is_plumbing(&generic));
        assert!(!is_plumbing(&scrubbed("my::process::<alloc::vec::Vec<u8>>", true)));
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
            scrubbed(name, true);
            scrubbed(name, false);
        }
    }
}
