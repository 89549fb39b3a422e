//! How many programs there were that are not recorded, which none of them can know alone: each leaves a byte in a file of
//! the command's, which says at its end how many there are. There is one file for programs that begin a recording, of
//! which only so many do, and one for those into which no library can be preloaded: who starts such a program counts it.

use super::{BEGAN, MAX_PROCESSES, PROCESSES, REFUSED};
use memtrack_recorder::environment;
use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The path of the file of those, leaked: what starts a program may run in a signal's handler.
static REFUSED_AT: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// The preload library was loaded.
pub(super) fn prepare() {
    if let Some(file) = file(REFUSED) {
        REFUSED_AT.store(file.into_raw(), Ordering::Release);
    }
}

fn file(name: &str) -> Option<CString> {
    let folder = environment::variable(PROCESSES)?;
    CString::new(Path::new(&folder).join(name).as_os_str().as_bytes()).ok()
}

/// Counts this program; `false` where it is one too many.
pub(super) fn may_begin() -> bool {
    let most = environment::text(MAX_PROCESSES).and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    match file(BEGAN).and_then(|file| add_one(&file)) {
        Some(number) => number <= most,
        // The command has ended, or another user's rights are in force.
        None => true,
    }
}

/// Adds a byte; how many there are then.
fn add_one(file: &CStr) -> Option<u64> {
    // SAFETY: a C string and a byte; the descriptor is ours.
    unsafe {
        let file = libc::open(file.as_ptr(), libc::O_WRONLY | libc::O_APPEND | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let written = libc::write(file, b".".as_ptr().cast(), 1);
        let end = libc::lseek(file, 0, libc::SEEK_CUR);
        libc::close(file);
        if written == 1 { u64::try_from(end).ok() } else { None }
    }
}

/// A program is about to be started, or to take this one's place. Nothing is allocated or locked, and `errno` stays.
pub(super) fn starts(program: *const c_char, is_searched: bool) {
    let refused_at = REFUSED_AT.load(Ordering::Acquire);
    if refused_at.is_null() || program.is_null() {
        return;
    }
    // SAFETY: the first is ours; the caller's is a C string, as it promises the C library. Every thread has an `errno`.
    unsafe {
        let errno = *libc::__errno_location();
        let name = CStr::from_ptr(program);
        let refused = if is_searched && !name.to_bytes().contains(&b'/') {
            first_found_refuses(name.to_bytes())
        } else {
            refuses(name.as_ptr())
        };
        if refused {
            add_one(CStr::from_ptr(refused_at));
        }
        *libc::__errno_location() = errno;
    }
}

/// Whether the first file that the shell would find of this name refuses a library.
fn first_found_refuses(name: &[u8]) -> bool {
    const LONGEST: usize = 1024;
    // SAFETY: `getenv` gives null or a C string.
    let list = unsafe {
        let list = libc::getenv(c"PATH".as_ptr());
        if list.is_null() {
            return false;
        }
        CStr::from_ptr(list).to_bytes()
    };
    for folder in list.split(|&byte| byte == b':') {
        let mut path = [0_u8; LONGEST];
        let length = folder.len() + 1 + name.len();
        if folder.is_empty() || length >= LONGEST {
            continue;
        }
        path[..folder.len()].copy_from_slice(folder);
        path[folder.len()] = b'/';
        path[folder.len() + 1..length].copy_from_slice(name);
        // SAFETY: a C string: zeros follow.
        if unsafe { libc::access(path.as_ptr().cast(), libc::X_OK) } == 0 {
            return refuses(path.as_ptr().cast());
        }
    }
    false
}

/// Whether the loader preloads nothing into this program: it is linked statically, its C library is not glibc, or it has
/// other rights. Not where that cannot be told, and not where there is no such program.
fn refuses(path: *const c_char) -> bool {
    // SAFETY: a C string, and memory of ours; the descriptor is ours.
    unsafe {
        if libc::access(path, libc::X_OK) != 0 {
            return false;
        }
        let file = libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK);
        if file < 0 {
            return false;
        }
        let mut data: libc::stat = std::mem::zeroed();
        let known = libc::fstat(file, &mut data) == 0 && data.st_mode & libc::S_IFMT == libc::S_IFREG;
        let privileged = data.st_mode & libc::S_ISUID != 0 && data.st_uid != libc::geteuid()
            || data.st_mode & libc::S_ISGID != 0 && data.st_gid != libc::getegid();
        let refuses = known && (privileged || has_no_glibc(file));
        libc::close(file);
        refuses
    }
}

/// `PT_INTERP`: the segment that names the loader.
const INTERPRETER: u32 = 3;
/// More segments than programs have.
const MOST_SEGMENTS: u16 = 64;

/// Whether a file is a program that names no loader of glibc's for this processor.
fn has_no_glibc(file: c_int) -> bool {
    let mut head = [0; 64];
    if !read(file, &mut head, 0) || !head.starts_with(b"\x7fELF") {
        // A script, or nothing that the kernel runs.
        return false;
    }
    let machine = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    if head[4] != 2 || head[5] != 1 || half(18) != machine {
        return true;
    }
    let word = |bytes: &[u8], at: usize| {
        bytes[at..at + 8].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
    };
    let first = word(&head, 32);
    for number in 0..u64::from(half(56).min(MOST_SEGMENTS)) {
        let mut segment = [0; 56];
        if !read(file, &mut segment, first.saturating_add(number * 56)) {
            return false;
        }
        if segment[..4] == INTERPRETER.to_le_bytes() {
            let mut name = [0; 128];
            let length = (word(&segment, 32) as usize).min(name.len());
            return read(file, &mut name[..length], word(&segment, 8))
                && name.windows(4).any(|window| window == b"musl");
        }
    }
    true
}

/// Fills the buffer with what stands at a place of a file; `false` where there is less.
fn read(file: c_int, buffer: &mut [u8], at: u64) -> bool {
    // SAFETY: the buffer is ours.
    let count = unsafe { libc::pread(file, buffer.as_mut_ptr().cast(), buffer.len(), at as libc::off_t) };
    usize::try_from(count).is_ok_and(|count| count == buffer.len())
}
