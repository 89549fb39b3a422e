//! The names that language runtimes give their functions in perf maps and dumps, split into function, file and line where
//! the form is known. All other names are kept whole.
//!
//! | runtime | name | function | file and line |
//! |---|---|---|---|
//! | V8 | `JS:*foo /app.js:3:12` | `foo` | `/app.js`, 3 |
//! | V8 | `LazyCompile:~ file:///app.mjs:3:12` | `(anonymous)` | `/app.mjs`, 3 |
//! | CPython | `py::foo:/app.py` | `foo` | `/app.py` |
//! | LuaJIT | `TRACE_7::app.lua:3` | `TRACE_7` | `app.lua`, 3 |
//!
//! The sign before V8's name is the tier that compiled the function (`~`, `^`, `+`, `*`). It is left out, so that a function
//! is one row of a report. The line is that at which the function begins.

use memtrack_model::Frame;

/// The kinds of V8's names that have a place.
const V8_KINDS: [&str; 5] = ["JS:", "LazyCompile:", "Function:", "Script:", "Eval:"];
/// The beginnings of V8's places, which may contain spaces.
const PLACES: [&str; 6] = [" /", " file:", " node:", " http:", " https:", " evalmachine."];

/// The name of CPython's trampolines beside the frames of Python that they call. Reports leave functions of the interpreter
/// out, so these frames are not shown twice.
const PYTHON_TRAMPOLINE: &str = "_Py_trampoline_func";

/// Makes a frame of a name. `has_lines_of_python`: the stacks contain Python's frames with their lines already.
pub(super) fn split(text: &str, has_lines_of_python: bool) -> Frame {
    let python =
        python(text).map(|parts| if has_lines_of_python { (PYTHON_TRAMPOLINE, "", None) } else { parts });
    let (function, file, line) =
        python.or_else(|| v8(text)).or_else(|| lua(text)).unwrap_or((text, "", None));
    Frame {
        function: if function.is_empty() { "(anonymous)" } else { function }.to_owned(),
        file: Some(file).filter(|file| !file.is_empty()).map(str::to_owned),
        line: line.filter(|_| !file.is_empty()),
        binary: None,
    }
}

type Parts<'a> = (&'a str, &'a str, Option<u32>);

fn v8(text: &str) -> Option<Parts<'_>> {
    let name = V8_KINDS.iter().find_map(|kind| text.strip_prefix(kind))?;
    let name = name.strip_prefix(['~', '^', '+', '-', '*']).unwrap_or(name);
    // Older versions have no column.
    let (before, number) = split_number(name)?;
    let (before, line) = split_number(before).unwrap_or((before, number));
    let begins = PLACES.iter().filter_map(|place| before.find(place)).min().or_else(|| before.rfind(' '))?;
    let (function, file) = (&before[..begins], &before[begins + 1..]);
    Some((function.trim(), file.strip_prefix("file://").unwrap_or(file), Some(line)))
}

fn python(text: &str) -> Option<Parts<'_>> {
    let (function, file) = text.strip_prefix("py::")?.split_once(':')?;
    (!function.is_empty()).then_some((function, file, None))
}

fn lua(text: &str) -> Option<Parts<'_>> {
    let (trace, place) = text.split_once("::")?;
    let number = trace.strip_prefix("TRACE_")?;
    let (file, line) = split_number(place)?;
    number.bytes().all(|digit| digit.is_ascii_digit()).then_some((trace, file, Some(line)))
}

/// Splits `text:number`.
fn split_number(text: &str) -> Option<(&str, u32)> {
    let (text, number) = text.rsplit_once(':')?;
    let is_number = number.bytes().all(|digit| digit.is_ascii_digit());
    number.parse().ok().filter(|_| is_number).map(|number| (text, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_forms_are_split() {
        for (text, function, file, line) in [
            ("JS:*foo /path/app.js:3:12", "foo", Some("/path/app.js"), Some(3)),
            ("JS:~ /path/app.js:1:1", "(anonymous)", Some("/path/app.js"), Some(1)),
            ("JS:^get foo /my path/app.js:3:12", "get foo", Some("/my path/app.js"), Some(3)),
            ("JS:+a.b.c file:///path/app.mjs:30:2", "a.b.c", Some("/path/app.mjs"), Some(30)),
            ("LazyCompile:~foo file.js:1:13", "foo", Some("file.js"), Some(1)),
            ("LazyCompile:foo file.js:13", "foo", Some("file.js"), Some(13)),
            ("Eval:~ /path/app.js:1:1", "(anonymous)", Some("/path/app.js"), Some(1)),
            ("Script:~ /path/app.js:1:1", "(anonymous)", Some("/path/app.js"), Some(1)),
            (
                "JS:*realRequire node:internal/modules/cjs/loader:1223:20",
                "realRequire",
                Some("node:internal/modules/cjs/loader"),
                Some(1223),
            ),
            ("JS:~foo :1:1", "foo", None, None),
            ("py::Kind.method:/path/app.py", "Kind.method", Some("/path/app.py"), None),
            ("py::<module>:<frozen os>", "<module>", Some("<frozen os>"), None),
            ("TRACE_12::app.lua:7", "TRACE_12", Some("app.lua"), Some(7)),
        ] {
            let frame = split(text, false);
            let parts = (frame.function.as_str(), frame.file.as_deref(), frame.line);
            assert_eq!(parts, (function, file, line), "{text}");
        }
    }

    #[test]
    fn other_names_are_kept_whole() {
        for text in [
            "Builtin:InterpreterEntryTrampoline",
            "BytecodeHandler:LdaSmi",
            "RegExp:^ a:1:2$",
            "JS:*foo",
            "JS:",
            "JS:*é:1:2",
            "JS:*foo /a.js:99999999999:+1",
            "py::",
            "py::foo",
            "TRACE_x::a.lua:1",
            "TRACE_1::a.lua",
            "instance void [App] Main::Run(string[])[Tier0]",
            "Lcom/example/Main;::run",
            "wasm[0]::function[3]",
            "[JIT] Integer#times",
        ] {
            assert_eq!(split(text, false), Frame { function: text.into(), ..Frame::default() }, "{text}");
        }
        assert_eq!(split("py::foo:/a.py", true).function, PYTHON_TRAMPOLINE);
    }
}
