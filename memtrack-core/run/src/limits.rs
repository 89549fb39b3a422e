//! Executes programs without the preload library if their address space is limited so tightly that they would not be recorded
//! anyway ([`has_address_space`](memtrack_recorder::environment::has_address_space)). The library would take up to 4 MB of the
//! address space.

use super::census::{Environment, is_library};
use std::ffi::{CStr, c_char};

/// The maximum number of variables in an environment that is copied; a program with more is started with the library.
const MAX_VARIABLES: usize = 512;
/// The size of the buffer for the list of other preloaded libraries.
const MAX_LIST_BYTES: usize = 1024;

/// The name of the variable that lists the preloaded libraries.
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// Passes a copy of the environment, without memtrack's libraries, to `start`. Does nothing if the environment does not contain
/// these libraries, or if it is too large. Nothing is allocated or locked.
///
/// # Safety
/// The environment must be null, or a list of C strings that ends with null.
pub(super) unsafe fn without_library(environment: Environment, start: impl FnOnce(*const *const c_char)) {
    let Some(mut list) = environment.filter(|list| !list.is_null()) else { return };
    let mut variables = [std::ptr::null(); MAX_VARIABLES];
    let mut others = [0_u8; MAX_LIST_BYTES];
    let (mut count, mut is_changed) = (0, false);
    // SAFETY: the list ends with null.
    unsafe {
        while !(*list).is_null() {
            // The last entry stays null.
            if count + 1 >= MAX_VARIABLES {
                return;
            }
            variables[count] = *list;
            count += 1;
            if let Some(libraries) = CStr::from_ptr(*list).to_bytes().strip_prefix(PRELOAD) {
                match other_libraries(libraries, &mut others) {
                    Others::All => {}
                    Others::None => (count, is_changed) = (count - 1, true),
                    Others::Some => {
                        variables[count - 1] = others.as_ptr().cast();
                        is_changed = true;
                    }
                    Others::TooLong => return,
                }
            }
            list = list.add(1);
        }
        variables[count] = std::ptr::null();
    }
    if is_changed {
        start(variables.as_ptr());
    }
}

/// How many of the libraries in `LD_PRELOAD` remain when memtrack's are removed.
#[derive(Debug, PartialEq, Eq)]
enum Others {
    All,
    None,
    /// Some libraries remain; the buffer contains the variable that lists them.
    Some,
    /// Some libraries remain, but the buffer is too small for their list.
    TooLong,
}

/// Writes `LD_PRELOAD` without memtrack's libraries to `variable`, as a C string. All libraries in the
/// preload library's folder count as memtrack's.
fn other_libraries(libraries: &[u8], variable: &mut [u8; MAX_LIST_BYTES]) -> Others {
    let paths = || libraries.split(|byte| b" :".contains(byte)).filter(|path| !path.is_empty());
    let folder = |path: &[u8]| path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    let Some(own) = paths().find(|path| is_library(path)) else { return Others::All };
    let own = &own[..folder(own)];
    variable[..PRELOAD.len()].copy_from_slice(PRELOAD);
    let mut length = PRELOAD.len();
    for path in paths().filter(|path| &path[..folder(path)] != own) {
        // A colon or the final zero follows.
        if length + path.len() + 1 >= MAX_LIST_BYTES {
            return Others::TooLong;
        }
        if length > PRELOAD.len() {
            variable[length] = b':';
            length += 1;
        }
        variable[length..length + path.len()].copy_from_slice(path);
        length += path.len();
    }
    variable[length] = 0;
    if length == PRELOAD.len() { Others::None } else { Others::Some }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::census::set_library;
    use std::ffi::CString;
    use std::ptr::null;

    /// Returns the environment that a program is started with; `None` if it is not started.
    fn started_with(variables: &[&str]) -> Option<Vec<String>> {
        let variables: Vec<CString> = variables.iter().map(|text| CString::new(*text).unwrap()).collect();
        let list: Vec<_> = variables.iter().map(|text| text.as_ptr()).chain([null()]).collect();
        let mut started = None;
        let start = |mut list: *const *const c_char| {
            let mut texts = Vec::new();
            // SAFETY: the list ends with null.
            unsafe {
                while !(*list).is_null() {
                    texts.push(CStr::from_ptr(*list).to_str().unwrap().to_owned());
                    list = list.add(1);
                }
            }
            started = Some(texts);
        };
        // SAFETY: the list ends with null.
        unsafe { without_library(Some(list.as_ptr()), start) };
        started
    }

    #[test]
    fn only_memtracks_libraries_are_removed() {
        set_library(c"preload-1.so");
        let own = "/cache/$LIB/heap-2.so:/cache/$LIB/preload-1.so";
        let with = |libraries: &str| started_with(&["A=1", &format!("LD_PRELOAD={libraries}"), "B=2"]);
        assert_eq!(with(own), Some(vec!["A=1".to_owned(), "B=2".to_owned()]));
        let expected = ["A=1", "LD_PRELOAD=/a.so:b.so", "B=2"].map(str::to_owned).to_vec();
        assert_eq!(with(&format!("/a.so:{own} b.so")), Some(expected));
        assert_eq!(with("/a.so"), None);
        assert_eq!(started_with(&["A=1"]), None);
        assert_eq!(with(&format!("{own}:/{}", "x".repeat(MAX_LIST_BYTES))), None);
        let many: Vec<String> = (0..MAX_VARIABLES).map(|number| format!("V{number}=")).collect();
        let preload = format!("LD_PRELOAD={own}");
        let many: Vec<&str> = many.iter().map(String::as_str).chain([&preload[..]]).collect();
        assert_eq!(started_with(&many), None);
        assert_eq!(started_with(&many[2..]).map(|texts| texts.len()), Some(MAX_VARIABLES - 2));
        // SAFETY: an environment may be null.
        unsafe { without_library(Some(null()), |_| unreachable!()) };
    }
}
