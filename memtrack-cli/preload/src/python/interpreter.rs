//! Finds CPython in the process: in the program and its libraries before `main`, and later in libraries that the program loads,
//! for instance as a plugin.
//!
//! **How is an interpreter noticed that is loaded later?** `dlopen` cannot be wrapped (memtrack-cuda's `absent` explains
//! why). But a program that has opened a library looks up a function in it, and so does CPython itself for each extension
//! module that it imports. So the first `dlsym` with a handle also looks for CPython there. It uses the locks that the
//! program's own `dlsym` is about to use.
//!
//! Arenas from before that moment are unknown, and so are the blocks in them.

use super::arenas::{ArenaAllocator, Domain};
use super::calls;
use super::domains::Allocator;
use crate::next_function::function_at;
use memtrack_cuda::run;
use memtrack_recorder::events::closed_libraries;
use memtrack_recorder::{environment, errno};
use memtrack_run::heap;
use std::ffi::{CStr, c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A copy of CPython in the process. It is never freed, because CPython has pointers to it.
pub(super) struct Interpreter {
    pub(super) functions: Functions,
    /// The arena allocator that memtrack replaced.
    pub(super) arenas: ArenaAllocator,
    pub(super) domains: [Domain; 2],
}

impl Interpreter {
    /// Returns the interpreter whose arena allocator has this context. It is the context of memtrack's allocator, or of the
    /// original one if another thread has just replaced the original.
    pub(super) fn of_context(context: *mut c_void) -> Option<&'static Self> {
        // SAFETY: each pointer is null, or from a leaked box.
        let known =
            || INTERPRETERS.iter().filter_map(|slot| unsafe { slot.load(Ordering::Acquire).as_ref() });
        known()
            .find(|known| std::ptr::eq(*known, context.cast_const().cast()))
            .or_else(|| known().find(|known| known.arenas.context == context))
    }
}

/// Functions of CPython's API.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub(super) get_allocator: unsafe extern "C" fn(c_int, *mut Allocator),
    pub(super) set_allocator: unsafe extern "C" fn(c_int, *const Allocator),
    get_arenas: unsafe extern "C" fn(*mut ArenaAllocator),
    set_arenas: unsafe extern "C" fn(*const ArenaAllocator),
    /// The functions for marks; `None` if some are missing.
    pub(super) calls: Option<calls::Api>,
}

impl Functions {
    /// Returns the functions that `look_up` finds; `None` if there is no CPython, or one before 3.8, where two blocks can
    /// lie in one slot of `sizes`.
    fn find(look_up: impl Fn(&CStr) -> *mut c_void) -> Option<Self> {
        let find = |name: &CStr| Some(look_up(name)).filter(|found| !found.is_null());
        let set_arenas = find(c"PyObject_SetArenaAllocator")?;
        // New in 3.8.
        find(c"Py_InitializeFromConfig")?;
        // SAFETY: CPython's functions of these names have the signatures of the fields.
        unsafe {
            Some(Self {
                get_allocator: function_at(find(c"PyMem_GetAllocator")?),
                set_allocator: function_at(find(c"PyMem_SetAllocator")?),
                get_arenas: function_at(find(c"PyObject_GetArenaAllocator")?),
                set_arenas: function_at(set_arenas),
                calls: calls::Api::find(&look_up),
            })
        }
    }

    /// Returns the current arena allocator; `None` if it is incomplete.
    fn arenas(&self) -> Option<ArenaAllocator> {
        let mut current = MaybeUninit::<[*mut c_void; 3]>::zeroed();
        // SAFETY: CPython writes a `PyObjectArenaAllocator`, which is three pointers. Both functions are there.
        unsafe {
            (self.get_arenas)(current.as_mut_ptr().cast());
            let current = current.assume_init();
            let is_complete = current[1..].iter().all(|function| !function.is_null());
            is_complete.then(|| transmute::<[*mut c_void; 3], ArenaAllocator>(current))
        }
    }
}

/// The maximum number of interpreters; further ones are not recorded. They are separate libraries: the sub-interpreters of a
/// program share their allocators.
const MAX_INTERPRETERS: usize = 8;
static INTERPRETERS: [AtomicPtr<Interpreter>; MAX_INTERPRETERS] =
    [const { AtomicPtr::new(null_mut()) }; MAX_INTERPRETERS];

/// Numbers in CPython's `PyMemAllocatorDomain`.
const MEM: c_int = 1;
const OBJ: c_int = 2;

/// Replaces the arena allocator of CPython if it is in the program, and watches for libraries with CPython. Called before
/// `main`, when recording has begun.
pub(crate) fn prepare() {
    if environment::variable("PYTHONMALLOCSTATS").is_some_and(|value| !value.is_empty()) {
        return;
    }
    heap::unrecorded(|| {
        calls::prepare();
        if let Some(functions) = Functions::find(run::process_symbol) {
            replace_arena_allocator(functions);
        }
        // SAFETY: the call returns this thread's last message, which the program must not see.
        unsafe { libc::dlerror() };
    });
    run::watch_lookups(note_lookup);
}

/// Replaces the arena allocator, unless this has been done.
fn replace_arena_allocator(functions: Functions) {
    for slot in &INTERPRETERS {
        // SAFETY: the pointer is null, or from the leaked box below.
        let interpreter = match unsafe { slot.load(Ordering::Acquire).as_ref() } {
            None => {
                let Some(arenas) = functions.arenas() else { return };
                let domains = [Domain::new(MEM), Domain::new(OBJ)];
                let new = Box::into_raw(Box::new(Interpreter { functions, arenas, domains }));
                if slot.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                    // SAFETY: the box was just made, and no pointer to it was stored.
                    drop(unsafe { Box::from_raw(new) });
                    // Another thread looks up a function in the same library, most likely.
                    return;
                }
                // SAFETY: as above.
                unsafe { &*new }
            }
            Some(known) if std::ptr::fn_addr_eq(known.functions.set_arenas, functions.set_arenas) => known,
            Some(_) => continue,
        };
        // The original is set again if CPython was initialised once more, or if the library was unloaded, and loaded at the
        // same address. Anything else that is set may call memtrack's allocator.
        let is_original = functions.arenas().is_some_and(|current| {
            current.context == interpreter.arenas.context
                && std::ptr::fn_addr_eq(current.alloc, interpreter.arenas.alloc)
        });
        if is_original {
            let watching = ArenaAllocator::watching(interpreter);
            // SAFETY: CPython copies the allocator, whose functions and context stay valid.
            unsafe { (functions.set_arenas)(&watching) };
            KNOWN_AT.store(closed_libraries(), Ordering::Relaxed);
            calls::expect(interpreter);
        }
        return;
    }
}

/// The number of libraries that had been closed when an interpreter was found; [`UNKNOWN`] if there is none. While it has not
/// changed, the interpreter is still loaded, and no other one is looked for.
static KNOWN_AT: AtomicUsize = AtomicUsize::new(UNKNOWN);
const UNKNOWN: usize = usize::MAX;

/// The handles in which CPython was looked for most recently, by a hash.
static SEARCHED: [AtomicPtr<c_void>; 64] = [const { AtomicPtr::new(null_mut()) }; 64];
/// The number of libraries that had been closed when [`SEARCHED`] was last cleared. After a library was closed, its handle may
/// mean another one.
static SEARCHED_AT: AtomicUsize = AtomicUsize::new(0);

/// Looks for CPython where the program is about to look up a name.
fn note_lookup(handle: *mut c_void, name: &CStr) {
    let closed = closed_libraries();
    if KNOWN_AT.load(Ordering::Relaxed) == closed {
        // CPython looks up this function of an extension module.
        if name.to_bytes().starts_with(b"PyInit_") {
            replace_again();
        }
        return;
    }
    // CPython may have been loaded after the last search with this handle, if it is a handle for many libraries.
    let is_of_python = name.to_bytes().starts_with(b"Py");
    if !is_of_python && (handle == libc::RTLD_NEXT || handle == libc::RTLD_DEFAULT) {
        return;
    }
    if SEARCHED_AT.swap(closed, Ordering::Relaxed) != closed {
        SEARCHED.iter().for_each(|searched| searched.store(null_mut(), Ordering::Relaxed));
    }
    // A handle is the address of a structure of more than 1 KiB.
    let searched = &SEARCHED[handle.addr() / 1024 % SEARCHED.len()];
    let is_searched = searched.swap(handle, Ordering::Relaxed) == handle;
    if (is_of_python || !is_searched) && crate::tls::is_set_up() && heap::is_on() {
        errno::preserving(|| heap::unrecorded(|| search(handle)));
    }
}

/// Replaces the arena allocators that CPython has set again: from 3.12 on, it does so when it is initialised once more. Called by
/// CPython's imports, which hold its lock.
#[cold]
fn replace_again() {
    for slot in &INTERPRETERS {
        // SAFETY: the pointer is null, or from a leaked box.
        if let Some(known) = unsafe { slot.load(Ordering::Acquire).as_ref() } {
            replace_arena_allocator(known.functions);
        }
    }
}

/// Looks for CPython in a library and in those that it needs, and among the libraries that were opened for all code in the
/// process (`RTLD_GLOBAL`).
#[cold]
fn search(handle: *mut c_void) {
    for place in [handle, libc::RTLD_DEFAULT] {
        // A look-up that fails sets an error message, which the program's own look-up resets.
        // SAFETY: the program is about to use this handle itself.
        let look_up = |name: &CStr| unsafe { run::look_up(place, name) };
        if let Some(functions) = Functions::find(look_up) {
            return replace_arena_allocator(functions);
        }
    }
}
