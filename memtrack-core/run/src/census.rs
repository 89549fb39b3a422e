//! Counts the programs that are not recorded: programs into which no library can be preloaded, and programs whose
//! environment does not contain the library. The process that starts such a program counts it, in the command's shared
//! memory.

use crate::MEMORY;
use memtrack_recorder::errno;
use memtrack_recorder::shared_memory::count_unrecorded_program;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The file name of the preload library, without its folder; leaked, because a program may be started in a signal handler.
static LIBRARY: AtomicPtr<c_char> = AtomicPtr::new(null_mut());

/// Prepares the counting when the preload library is loaded.
pub(super) fn prepare() {
    if let Some(name) = library_name() {
        LIBRARY.store(name.into_raw(), Ordering::Release);
    }
}

/// Returns the loader's name for the library that contains this code, without the folder.
fn library_name() -> Option<CString> {
    // SAFETY: queries an address of code; on success the loader has filled the structure with a name that is valid while
    // the library is loaded.
    let path = unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(prepare as *const c_void, &mut found) == 0 || found.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr(found.dli_fname).to_bytes()
    };
    CString::new(path.rsplit(|&byte| byte == b'/').next()?).ok()
}

/// The program to start, as the call specifies it.
#[derive(Clone, Copy)]
pub enum Started {
    /// A path.
    Path(*const c_char),
    /// A name, which is looked up in `PATH` as a shell does.
    Name(*const c_char),
    /// A descriptor of the program's file.
    Open(c_int),
}

/// An environment as C represents it; `None` if it is unknown.
pub type Environment = Option<*const *const c_char>;

/// Counts a program that is about to be started, or to replace this one, if it will not be recorded. `has_no_room`
/// means that its address-space limit is too small for recording. Nothing is allocated or locked, and `errno` is
/// preserved.
///
/// # Safety
/// The arguments must be as the C library requires them: C strings, and a list of them that ends with null. Each may
/// be null.
pub(super) unsafe fn count_unrecorded(program: Started, environment: Environment, has_no_room: bool) {
    // SAFETY: the caller guarantees the arguments.
    errno::preserving(|| unsafe {
        let mut room = [0; MAX_PATH_BYTES];
        let path = match program {
            Started::Path(path) => path,
            Started::Name(name) => search(name, &mut room),
            Started::Open(file) => descriptor_path(file, &mut room),
        };
        if !path.is_null() && libc::access(path, libc::X_OK) == 0 {
            if has_no_room || refuses_preloading(path) {
                count_unrecorded_program(true);
            } else if environment.is_some_and(|list| !has_library(list)) {
                count_unrecorded_program(false);
            }
        }
    });
}

/// The size of the buffer for a path; longer paths are not checked.
const MAX_PATH_BYTES: usize = 1024;

/// Returns whether a program that is started with this environment loads the library and finds the command's shared
/// memory.
///
/// # Safety
/// `list` must be null, which means an empty environment, or a list of C strings that ends with null.
unsafe fn has_library(mut list: *const *const c_char) -> bool {
    if LIBRARY.load(Ordering::Acquire).is_null() {
        return true;
    }
    let (mut is_loaded, mut has_memory) = (false, false);
    // SAFETY: the list ends with null.
    unsafe {
        while !list.is_null() && !(*list).is_null() {
            let variable = CStr::from_ptr(*list).to_bytes();
            if let Some(libraries) = variable.strip_prefix(b"LD_PRELOAD=") {
                is_loaded = libraries.split(|byte| b" :".contains(byte)).any(is_library);
            } else if variable.strip_prefix(MEMORY.as_bytes()).is_some_and(|rest| rest.starts_with(b"=")) {
                has_memory = true;
            }
            list = list.add(1);
        }
    }
    is_loaded && has_memory
}

/// Returns whether a path in `LD_PRELOAD` names the library.
pub(super) fn is_library(path: &[u8]) -> bool {
    let library = LIBRARY.load(Ordering::Acquire);
    // SAFETY: null, or a leaked C string.
    !library.is_null()
        && path.rsplit(|&byte| byte == b'/').next() == Some(unsafe { CStr::from_ptr(library) }.to_bytes())
}

/// Sets the library's file name.
#[cfg(test)]
pub(super) fn set_library(name: &'static CStr) {
    LIBRARY.store(name.as_ptr().cast_mut(), Ordering::Release);
}

/// Returns the path of the first file that a shell would find by this name; null if there is none.
///
/// # Safety
/// `name` must be null or a C string.
unsafe fn search(name: *const c_char, path: &mut [u8; MAX_PATH_BYTES]) -> *const c_char {
    if name.is_null() {
        return name;
    }
    // SAFETY: `getenv` returns null or a C string.
    let (bytes, list) = unsafe {
        let list = libc::getenv(c"PATH".as_ptr());
        // The C library's default where the variable is not set.
        let list = if list.is_null() { c"/bin:/usr/bin".as_ptr() } else { list };
        (CStr::from_ptr(name).to_bytes(), CStr::from_ptr(list).to_bytes())
    };
    if bytes.contains(&b'/') {
        return name;
    }
    for folder in list.split(|&byte| byte == b':') {
        let length = folder.len() + 1 + bytes.len();
        if folder.is_empty() || length >= MAX_PATH_BYTES {
            continue;
        }
        path[..folder.len()].copy_from_slice(folder);
        path[folder.len()] = b'/';
        path[folder.len() + 1..length].copy_from_slice(bytes);
        path[length] = 0;
        // SAFETY: the path ends with a zero.
        if unsafe { libc::access(path.as_ptr().cast(), libc::X_OK) } == 0 {
            return path.as_ptr().cast();
        }
    }
    std::ptr::null()
}

/// Returns the path of an open file in `/proc`; null if the number is not a descriptor.
fn descriptor_path(file: c_int, path: &mut [u8; MAX_PATH_BYTES]) -> *const c_char {
    let folder = b"/proc/self/fd/";
    path[..folder.len()].copy_from_slice(folder);
    let Ok(mut number) = u32::try_from(file) else { return std::ptr::null() };
    let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
    for place in path[folder.len()..folder.len() + digits].iter_mut().rev() {
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
    path[folder.len() + digits] = 0;
    path.as_ptr().cast()
}

/// Returns whether the loader preloads nothing into this program: it is linked statically, its C library is not glibc,
/// or it is set-user-id or set-group-id. False if that is unknown.
fn refuses_preloading(path: *const c_char) -> bool {
    // SAFETY: a C string, and local memory; the descriptor was opened here.
    unsafe {
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

/// `PT_INTERP`: the segment that contains the loader's path.
const INTERPRETER: u32 = 3;
/// The maximum number of segments that are checked, which is more than programs have.
const MAX_SEGMENTS: u16 = 64;

/// Returns whether a file is a program that does not use glibc's loader for this processor.
fn has_no_glibc(file: c_int) -> bool {
    let mut head = [0; 64];
    if !read(file, &mut head, 0) || !head.starts_with(b"\x7fELF") {
        // A script, or a file that the kernel does not run.
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
    for number in 0..u64::from(half(56).min(MAX_SEGMENTS)) {
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

/// Fills the buffer from an offset in a file; returns `false` if the file ends before the buffer is full.
fn read(file: c_int, buffer: &mut [u8], at: u64) -> bool {
    // SAFETY: the buffer is a local variable.
    let count = unsafe { libc::pread(file, buffer.as_mut_ptr().cast(), buffer.len(), at as libc::off_t) };
    usize::try_from(count).is_ok_and(|count| count == buffer.len())
}
