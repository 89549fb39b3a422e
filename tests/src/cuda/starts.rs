//! Every way in which a program starts another program and waits for it.

use std::ffi::{CString, c_char};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr::{null, null_mut};

unsafe extern "C" {
    static environ: *const *mut c_char;
}

/// Starts a program with arguments in the given way; the program must succeed.
pub fn start(way: &str, program: &str, arguments: &[&str]) {
    let line = format!("exec '{program}' {}", arguments.join(" "));
    let line = CString::new(line).expect("a line");
    let words: Vec<CString> = std::iter::once(program)
        .chain(arguments.iter().copied())
        .map(|word| CString::new(word).expect("a word"))
        .collect();
    let mut pointers: Vec<*mut c_char> = words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    pointers.push(null_mut());
    let (path, pointers) = (words[0].as_ptr(), pointers.as_ptr());
    let mut child = 0;
    // SAFETY: C strings, and null-terminated lists of C strings; a forked child only calls `execvp` and `_exit`.
    unsafe {
        match way {
            "posix_spawn" => {
                assert_eq!(libc::posix_spawn(&mut child, path, null(), null(), pointers, environ), 0);
            }
            "posix_spawnp" => {
                assert_eq!(libc::posix_spawnp(&mut child, path, null(), null(), pointers, environ), 0);
            }
            "system" => return assert_eq!(libc::system(line.as_ptr()), 0),
            "popen" => {
                let pipe = libc::popen(line.as_ptr(), c"r".as_ptr());
                assert!(!pipe.is_null());
                return assert_eq!(libc::pclose(pipe), 0);
            }
            "fork" => {
                child = libc::fork();
                if child == 0 {
                    libc::execvp(path, pointers.cast());
                    libc::_exit(1);
                }
            }
            "command" => {
                return assert!(Command::new(program).args(arguments).status().expect("it starts").success());
            }
            "command_by_fork" => {
                let mut command = Command::new(program);
                command.args(arguments).pre_exec(|| Ok(()));
                return assert!(command.status().expect("it starts").success());
            }
            way => panic!("no such way: {way}"),
        }
        let mut status = -1;
        assert_eq!((libc::waitpid(child, &mut status, 0), status), (child, 0));
    }
}
