//! The interpreter: noticed when the binary that contains it is listed or when a stack first goes through it, prepared
//! by the first stack afterwards. A process has at most one; a second one that it loads is ignored.
#![allow(unsafe_code)]

use super::codes;
use super::elf::Exports;
use super::layout::{Layout, TYPE_DEALLOC, layout_of};
use super::memory::{Checked, Memory, Trusted};
use crate::host::grant_python_loan;
use crate::python::{FrameWord, UNMERGED, merge};
use crate::shared_memory::log::Record;
use crate::shared_memory::{append, is_beyond_limit, is_connected};
use crate::stack::capture::MAX_FRAMES;
use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};

/// A function that returns a thread state.
type ThreadStateFunction = unsafe extern "C" fn() -> *mut c_void;

/// An interpreter whose binary is loaded.
pub(super) struct Interpreter {
    /// `PyGILState_GetThisThreadState`.
    own_state: ThreadStateFunction,
    /// `_PyThreadState_UncheckedGet`.
    current_state: ThreadStateFunction,
    /// The address of `_PyRuntime`.
    runtime: u64,
    /// The address of `PyCode_Type`.
    pub(super) code_type: u64,
    /// The function that runs frames, `_PyEval_EvalFrameDefault`.
    pub(super) evaluator: Range<u64>,
    /// The code of the binary.
    code: Range<u64>,
    version: VersionSource,
    has_debug_checks: bool,
    /// Whether the type of code objects is in writable memory.
    has_writable_types: bool,
    /// Whether the interpreter is in the program itself, which is never unloaded.
    #[cfg_attr(test, expect(dead_code, reason = "tests do not unload libraries"))]
    pub(super) is_program: bool,
    /// The thread of the program's `main`; 0 if it is not known.
    main_thread: u64,
    /// [`NOTICED`], [`PREPARING`] or [`READY`].
    stage: AtomicU8,
    /// The layout; set when the stage is [`READY`].
    layout: std::sync::OnceLock<Layout>,
    /// Whether a walk with checks has found only code objects.
    is_verified: AtomicBool,
}

const NOTICED: u8 = 0;
const PREPARING: u8 = 1;
const READY: u8 = 2;

/// Where the version is.
enum VersionSource {
    /// `Py_Version`, from 3.11 on: the version as a number.
    Number(u64),
    /// `Py_GetVersion`, which formats a static text.
    Text(unsafe extern "C" fn() -> *const c_char),
}

/// The interpreter; null if there is none, or if its frames cannot be read. Interpreters are never freed.
static ACTIVE: AtomicPtr<Interpreter> = AtomicPtr::new(std::ptr::null_mut());
/// Whether an interpreter's frames cannot be read, so that none is noticed any more.
static IS_REFUSED: AtomicBool = AtomicBool::new(false);
/// The thread of `main`, as `pthread_self` returns it, once a function here was called on it.
static MAIN_THREAD: AtomicU64 = AtomicU64::new(0);

/// Returns the interpreter.
#[inline(always)]
pub(super) fn active() -> Option<&'static Interpreter> {
    // SAFETY: the pointer is null or from a box that is never freed.
    unsafe { ACTIVE.load(Ordering::Acquire).as_ref() }
}

/// Sets the interpreter; null if there is none. Returns the previous one.
#[cfg(all(target_env = "gnu", not(test)))]
pub(super) fn replace(interpreter: *mut Interpreter) -> *mut Interpreter {
    ACTIVE.swap(interpreter, Ordering::AcqRel)
}

/// Returns whether an interpreter was refused.
#[cfg(all(target_env = "gnu", not(test)))]
pub(super) fn is_refused() -> bool {
    IS_REFUSED.load(Ordering::Relaxed)
}

/// Notices the interpreter if the binary with this name, load address and program headers contains it, and recording
/// goes to the command. Does not call the dynamic linker.
///
/// # Safety
/// The binary must be loaded during the call.
pub(crate) unsafe fn notice(name: &str, bias: u64, headers: &[libc::Elf64_Phdr]) {
    if !is_connected() || active().is_some() || IS_REFUSED.load(Ordering::Relaxed) {
        return;
    }
    note_main_thread();
    // SAFETY: the caller guarantees that the binary is loaded.
    let Some(exports) = (unsafe { Exports::of(bias, headers) }) else { return };
    let address = |name| exports.find(name).map(|export| export.address);
    let Some(runtime) = address("_PyRuntime") else {
        if address("Py_GetVersion").is_some() {
            refuse("the layout of Python before 3.7 is not known");
        }
        return;
    };
    let found = (|| {
        let own_state = address("PyGILState_GetThisThreadState")?;
        let current_state = ["_PyThreadState_UncheckedGet", "PyThreadState_GetUnchecked"];
        let current_state = current_state.into_iter().find_map(address)?;
        let evaluator = exports.find("_PyEval_EvalFrameDefault")?;
        let code_type = address("PyCode_Type")?;
        let version = match address("Py_Version").and_then(|at| Checked.word(at)) {
            Some(number) => VersionSource::Number(number),
            // SAFETY: CPython's function of this name has this type.
            None => VersionSource::Text(unsafe {
                std::mem::transmute::<*const c_void, unsafe extern "C" fn() -> *const c_char>(address(
                    "Py_GetVersion",
                )?
                    as *const c_void)
            }),
        };
        // SAFETY: CPython's functions of these names have this type.
        let function = |address: u64| unsafe {
            std::mem::transmute::<*const c_void, ThreadStateFunction>(address as *const c_void)
        };
        Some(Interpreter {
            own_state: function(own_state),
            current_state: function(current_state),
            runtime,
            code_type,
            code: code_of(bias, headers)?,
            evaluator: evaluator.address..evaluator.address.saturating_add(evaluator.size_bytes),
            version,
            has_debug_checks: address("_Py_NegativeRefcount").is_some(),
            has_writable_types: is_writable(bias, headers, code_type + TYPE_DEALLOC),
            is_program: name.is_empty(),
            main_thread: MAIN_THREAD.load(Ordering::Relaxed),
            stage: AtomicU8::new(NOTICED),
            layout: std::sync::OnceLock::new(),
            is_verified: AtomicBool::new(false),
        })
    })();
    match found {
        Some(interpreter) => {
            let interpreter = Box::into_raw(Box::new(interpreter));
            let none = std::ptr::null_mut();
            if ACTIVE.compare_exchange(none, interpreter, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                // SAFETY: another thread was first, so this box is not shared.
                drop(unsafe { Box::from_raw(interpreter) });
            } else if !is_beyond_limit() {
                grant_python_loan();
            }
        }
        None => refuse("the interpreter does not export what is needed to read its frames"),
    }
}

/// Returns the addresses of a loaded segment.
fn loaded(bias: u64, header: &libc::Elf64_Phdr) -> Range<u64> {
    let start = bias.wrapping_add(header.p_vaddr);
    start..start.wrapping_add(header.p_memsz)
}

/// Returns the addresses of a binary's code.
fn code_of(bias: u64, headers: &[libc::Elf64_Phdr]) -> Option<Range<u64>> {
    let is_code =
        |header: &&libc::Elf64_Phdr| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0;
    let code = headers.iter().filter(is_code).map(|header| loaded(bias, header));
    code.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
}

/// Returns whether a variable of a binary can be written after the binary was loaded.
fn is_writable(bias: u64, headers: &[libc::Elf64_Phdr], address: u64) -> bool {
    let is_in = |kind: u32, flags: u32| {
        let mut segments =
            headers.iter().filter(|header| header.p_type == kind && header.p_flags & flags == flags);
        segments.any(|header| loaded(bias, header).contains(&address))
    };
    is_in(libc::PT_LOAD, libc::PF_W) && !is_in(libc::PT_GNU_RELRO, 0)
}

/// Remembers the calling thread if it is the one that runs `main`.
fn note_main_thread() {
    // SAFETY: the calls only query numbers.
    let (is_main, thread) = unsafe {
        (libc::syscall(libc::SYS_gettid) == libc::c_long::from(libc::getpid()), libc::pthread_self())
    };
    if is_main {
        MAIN_THREAD.store(thread, Ordering::Relaxed);
    }
}

/// Ends the recording of Python frames in this process, and reports the reason to the command.
#[cold]
pub(super) fn refuse(reason: &str) {
    ACTIVE.store(std::ptr::null_mut(), Ordering::Release);
    if !IS_REFUSED.swap(true, Ordering::Relaxed) {
        append(&Record::PythonRefused(reason.into()));
    }
}

/// The state of the calling thread in the interpreter.
pub(super) struct ThreadState {
    /// The address of the `PyThreadState`.
    pub(super) address: u64,
    /// Whether the thread holds the GIL, so that the state and its frames exist while the thread is in a hook.
    pub(super) is_attached: bool,
}

impl Interpreter {
    /// Returns the layout, which the first call determines; `None` if the frames cannot be read (yet).
    #[inline(always)]
    pub(super) fn layout(&self) -> Option<&Layout> {
        if self.stage.load(Ordering::Acquire) == READY { self.layout.get() } else { self.prepare() }
    }

    #[cold]
    fn prepare(&self) -> Option<&Layout> {
        if self.stage.compare_exchange(NOTICED, PREPARING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // Another thread prepares it, or it was refused.
            return None;
        }
        match self.find_layout() {
            Ok(layout) => {
                let _ = self.layout.set(layout);
                self.report();
                self.stage.store(READY, Ordering::Release);
                self.layout.get()
            }
            Err(reason) => {
                refuse(&reason);
                None
            }
        }
    }

    /// Reports the interpreter to the command.
    pub(super) fn report(&self) {
        append(&Record::Python(self.evaluator.start, self.evaluator.end));
    }

    fn find_layout(&self) -> Result<Layout, String> {
        let layout = layout_of(self.version()?, self.runtime)?;
        if self.has_debug_checks {
            return Err("debug builds of Python are not supported".to_owned());
        }
        // SAFETY: the binary stays loaded during the hook, and the segment was found to be writable.
        if !self.has_writable_types || !unsafe { codes::watch_frees(self.code_type + TYPE_DEALLOC) } {
            return Err("the type of code objects cannot be changed".to_owned());
        }
        Ok(layout)
    }

    /// Returns the major and the minor version.
    fn version(&self) -> Result<(u8, u8), String> {
        match self.version {
            VersionSource::Number(number) => Ok(((number >> 24) as u8, (number >> 16) as u8)),
            VersionSource::Text(function) => {
                // SAFETY: the function formats a static text, and may be called at any time.
                let text = unsafe { function() };
                if text.is_null() {
                    return Err("the version of Python is not known".to_owned());
                }
                // SAFETY: it is a C string.
                let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
                version_in(&text).ok_or_else(|| "the version of Python is not known".to_owned())
            }
        }
    }

    /// Returns the state of the calling thread; `None` if the thread runs no Python.
    #[inline(always)]
    pub(super) fn thread_state(&self, layout: &Layout) -> Option<ThreadState> {
        // SAFETY: the functions take no argument, return a pointer, and may be called at any time by any thread. The
        // binary stays loaded during the hook (`suspend`).
        let (current, own) = unsafe {
            let current = (self.current_state)() as u64;
            if layout.current_is_of_thread && current != 0 {
                return Some(ThreadState { address: current, is_attached: true });
            }
            (current, (self.own_state)() as u64)
        };
        if own == 0 {
            return None;
        }
        if current == own {
            return Some(ThreadState { address: own, is_attached: true });
        }
        self.detached_state(layout, current, own)
    }

    /// Returns the state of a thread that does not run in its first state: it has released the GIL, or runs in another
    /// interpreter.
    #[cold]
    fn detached_state(&self, layout: &Layout, current: u64, own: u64) -> Option<ThreadState> {
        // SAFETY: `_PyRuntime` is a static variable of a binary that stays loaded during the hook.
        let runtime = |offset| unsafe { Trusted::new() }.word(self.runtime + offset).unwrap_or(0);
        let has_several = || runtime(layout.runtime_head) != runtime(layout.runtime_main);
        if !layout.current_is_of_thread && current != 0 && has_several() {
            // The state may belong to any thread, and that thread may free it.
            // SAFETY: the call only queries a number.
            let thread = unsafe { libc::pthread_self() };
            if Checked.word(current + layout.state_thread) == Some(thread) {
                return Some(ThreadState { address: current, is_attached: true });
            }
        }
        // When the interpreter ends, it frees the states of other threads.
        (runtime(layout.runtime_finalizing) == 0).then_some(ThreadState { address: own, is_attached: false })
    }

    /// Returns whether the frames of a thread can be read directly.
    #[inline(always)]
    pub(super) fn trusts(&self, state: &ThreadState) -> bool {
        // SAFETY: the call only queries a number.
        let is_main = || self.main_thread == unsafe { libc::pthread_self() };
        self.is_verified.load(Ordering::Relaxed) && (state.is_attached || is_main())
    }

    /// Puts Python frames at their places in a stack, innermost address first, or at its outer end, if some frames of the
    /// evaluator are not recognized. `is_cut` is set if there may be more Python frames.
    pub(super) fn insert(&self, stack: &mut Vec<u64>, frames: &[FrameWord], is_cut: bool) {
        // A return address may be that of the function that follows.
        let is_evaluator = |address: u64| self.evaluator.contains(&address.wrapping_sub(1));
        let is_interpreter = |address: u64| self.code.contains(&address.wrapping_sub(1));
        let calls = frames.iter().filter(|frame| frame.is_entry).count();
        let found = stack.iter().filter(|&&address| is_evaluator(address)).count();
        if calls == found || is_cut && calls < found || stack.len() >= MAX_FRAMES && calls > found {
            *stack = merge(stack, frames, is_evaluator, is_interpreter);
        } else {
            stack.push(UNMERGED);
            stack.extend(frames.iter().map(|frame| frame.to_word()));
        }
    }

    /// Returns the layout if a walk with checks has found only code objects, and the calling thread holds the GIL.
    pub(super) fn verified_layout(&self) -> Option<&Layout> {
        let layout = self.is_verified.load(Ordering::Relaxed).then(|| self.layout()).flatten()?;
        self.thread_state(layout).filter(|state| state.is_attached).map(|_| layout)
    }

    /// Records that a walk with checks has found only code objects.
    pub(super) fn set_verified(&self) {
        self.is_verified.store(true, Ordering::Relaxed);
    }
}

/// Returns the version in a text such as `3.10.13 (main, …`.
fn version_in(text: &str) -> Option<(u8, u8)> {
    let mut numbers = text.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_pythons_text() {
        assert_eq!(version_in("3.10.13 (main, Aug 24 2023) [GCC 12.2.0]"), Some((3, 10)));
        assert_eq!(version_in("3.9.18+ (heads/3.9:x)"), Some((3, 9)));
        assert_eq!(version_in("experimental"), None);
    }
}
