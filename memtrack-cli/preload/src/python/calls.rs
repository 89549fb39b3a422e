//! Marks at the calls of Python functions that the user has named: `memtrack_mark`, and those of `memtrack run --mark-on`.
//!
//! - **From 3.12 on**, CPython reports each function that is made (`PyFunction_AddWatcher`). For a wanted one, memtrack sets the C
//!   function that CPython calls (`PyFunction_SetVectorcall`), which sets the mark and calls the original. Other functions are
//!   called as always. CPython inlines calls of functions with a version, without looking at that C function, so the code
//!   object's version is set to none.
//! - **Before 3.12**, CPython calls each frame's evaluator through a pointer (PEP 523). If the user has named functions, memtrack's
//!   evaluator compares the name of each frame's code with theirs. CPython 3.11 then inlines no call of Python. Without
//!   `--mark-on` nothing is set, so that `memtrack_mark` is noticed only if it is named there.
//!
//! The hooks are set by the first recorded object after the interpreter has been initialised: there the thread holds the GIL, and
//! no function of CPython's allocators is in progress. When the interpreter ends, they are gone, and set again in its successor.
//! Sub-interpreters have none.
//!
//! **Why not `sys.monitoring`, or `sys.setprofile`?** Both are functions of Python that a program can see and use itself. They
//! allocate, and slow all functions.

use super::interpreter::Interpreter;
use crate::next_function::function_at;
use memtrack_recorder::python::functions::{Arguments, Call, Functions, WantedFunctions};
use memtrack_recorder::recorder::mark;
use memtrack_recorder::{environment, errno};
use memtrack_run::heap;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

type Object = *mut c_void;
type Vectorcall = unsafe extern "C" fn(Object, *const Object, usize, Object) -> Object;
type Evaluator = unsafe extern "C" fn(*mut c_void, Object, c_int) -> Object;
type EvaluatorOf3_8 = unsafe extern "C" fn(Object, c_int) -> Object;
type Watcher = unsafe extern "C" fn(c_int, Object, Object) -> c_int;

/// Functions of CPython's API.
#[derive(Clone, Copy)]
pub(super) struct Api {
    /// `Py_IsInitialized`.
    is_initialized: unsafe extern "C" fn() -> c_int,
    /// `Py_AtExit`.
    at_exit: unsafe extern "C" fn(extern "C" fn()) -> c_int,
    /// `PyInterpreterState_Get`.
    interpreter: unsafe extern "C" fn() -> *mut c_void,
    /// `PyInterpreterState_Main`.
    main_interpreter: unsafe extern "C" fn() -> *mut c_void,
    /// The address of `PyUnicode_Type`.
    text_type: u64,
    /// `_PyEval_EvalFrameDefault`.
    evaluator: *mut c_void,
    watching: Option<Watching>,
    evaluating: Option<Evaluating>,
}

/// Functions from 3.12 on.
#[derive(Clone, Copy)]
struct Watching {
    /// `PyFunction_AddWatcher`.
    add: unsafe extern "C" fn(Watcher) -> c_int,
    /// `PyFunction_SetVectorcall`.
    set: unsafe extern "C" fn(Object, Vectorcall),
    /// `PyErr_GetRaisedException` and `PyErr_SetRaisedException`.
    take_error: unsafe extern "C" fn() -> Object,
    set_error: unsafe extern "C" fn(Object),
}

/// Functions from 3.9 on.
#[derive(Clone, Copy)]
struct Evaluating {
    /// `_PyInterpreterState_GetEvalFrameFunc`.
    get: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    /// `_PyInterpreterState_SetEvalFrameFunc`.
    set: unsafe extern "C" fn(*mut c_void, Evaluator),
}

impl Api {
    /// Returns the functions that `look_up` finds; `None` if there is no CPython, or an unknown one.
    pub(super) fn find(look_up: impl Fn(&CStr) -> *mut c_void) -> Option<Self> {
        let find = |name: &CStr| Some(look_up(name)).filter(|found| !found.is_null());
        // SAFETY: CPython's functions of these names have the signatures of the fields.
        unsafe {
            let watching = || {
                Some(Watching {
                    add: function_at(find(c"PyFunction_AddWatcher")?),
                    set: function_at(find(c"PyFunction_SetVectorcall")?),
                    take_error: function_at(find(c"PyErr_GetRaisedException")?),
                    set_error: function_at(find(c"PyErr_SetRaisedException")?),
                })
            };
            let evaluating = || {
                Some(Evaluating {
                    get: function_at(find(c"_PyInterpreterState_GetEvalFrameFunc")?),
                    set: function_at(find(c"_PyInterpreterState_SetEvalFrameFunc")?),
                })
            };
            let interpreter = find(c"PyInterpreterState_Get").or_else(|| find(c"_PyInterpreterState_Get"))?;
            Some(Self {
                is_initialized: function_at(find(c"Py_IsInitialized")?),
                at_exit: function_at(find(c"Py_AtExit")?),
                interpreter: function_at(interpreter),
                main_interpreter: function_at(find(c"PyInterpreterState_Main")?),
                text_type: find(c"PyUnicode_Type")?.addr() as u64,
                evaluator: find(c"_PyEval_EvalFrameDefault")?,
                watching: watching(),
                evaluating: evaluating(),
            })
        }
    }
}

/// What the hooks use.
struct Hooks {
    api: Api,
    functions: Functions,
    wanted: &'static WantedFunctions,
}

/// The hooks of the interpreter; null before they are set. They are never freed, because calls may be in progress.
static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(null_mut());
/// The C function that calls Python functions, or the evaluator, that memtrack's calls.
static ORIGINAL: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// The interpreter in which the hooks are to be set.
static FOUND: AtomicPtr<Interpreter> = AtomicPtr::new(null_mut());

static WANTED: OnceLock<WantedFunctions> = OnceLock::new();
/// Whether the user has named functions.
static ARE_NAMED: OnceLock<bool> = OnceLock::new();

static STAGE: AtomicU8 = AtomicU8::new(NONE);
/// There is no interpreter, or no hook is to be set.
const NONE: u8 = 0;
/// The interpreter was found, and is not initialised yet.
const WAITING: u8 = 1;
/// A thread sets the hooks.
const SETTING: u8 = 2;
const SET: u8 = 3;

/// Reads which functions are wanted. Called before `main`.
pub(super) fn prepare() {
    let names = environment::text(memtrack_run::MARK_ON);
    let _ = ARE_NAMED.set(names.is_some());
    let wanted = WantedFunctions::new(names.iter().flat_map(|names| names.split(',')));
    let _ = WANTED.set(wanted);
}

/// Sets the hooks as soon as this interpreter is initialised. Only the first interpreter of a process has hooks, or its successor
/// at the same place.
pub(super) fn expect(interpreter: &'static Interpreter) {
    let new = std::ptr::from_ref(interpreter).cast_mut();
    let (acquire, relaxed) = (Ordering::AcqRel, Ordering::Relaxed);
    if interpreter.functions.calls.is_some()
        && FOUND.compare_exchange(null_mut(), new, acquire, relaxed).is_ok()
    {
        STAGE.store(WAITING, Ordering::Release);
    }
}

/// Sets the hooks if they are due. The calling thread must hold the GIL, in no function of CPython's allocators.
#[inline(always)]
pub(super) fn set_if_due() {
    if STAGE.load(Ordering::Relaxed) == WAITING {
        errno::preserving(|| heap::unrecorded(set));
    }
}

#[cold]
#[inline(never)]
fn set() {
    // SAFETY: the pointer is null or from a leaked box.
    let found = unsafe { FOUND.load(Ordering::Acquire).as_ref() };
    let Some(api) = found.and_then(|interpreter| interpreter.functions.calls) else { return };
    // SAFETY: the function only reads a number.
    if unsafe { (api.is_initialized)() } == 0 {
        return;
    }
    let (Some(functions), Some(wanted)) = (Functions::of_interpreter(), WANTED.get()) else { return };
    // SAFETY: the thread holds the GIL (`of_interpreter`), so it has a state, which these functions read.
    let state = unsafe { (api.interpreter)() };
    // SAFETY: as above.
    if state.is_null() || state != unsafe { (api.main_interpreter)() } {
        return;
    }
    if STAGE.compare_exchange(WAITING, SETTING, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    let are_named = ARE_NAMED.get().copied().unwrap_or_default();
    if !functions.are_watched() && !are_named {
        STAGE.store(NONE, Ordering::Release);
        return;
    }
    HOOKS.store(Box::into_raw(Box::new(Hooks { api, functions, wanted })), Ordering::Release);
    let is_set = if functions.are_watched() { watch(&api) } else { set_evaluator(&api, state) };
    if is_set {
        // SAFETY: the function only stores the pointer. If there are too many, a successor of the interpreter has no hooks.
        let _ = unsafe { (api.at_exit)(interpreter_ended) };
    }
    STAGE.store(if is_set { SET } else { NONE }, Ordering::Release);
}

/// Called by CPython at the end of `Py_Finalize`, after the interpreter's state was freed.
extern "C" fn interpreter_ended() {
    STAGE.store(WAITING, Ordering::Release);
}

/// Watches the functions that are made. Returns false if the program has taken all watchers.
fn watch(api: &Api) -> bool {
    let Some(watching) = api.watching else { return false };
    // SAFETY: the thread holds the GIL. The function stores the pointer; if it fails, it raises an exception, which is dropped. An
    // exception that the program is about to handle is put back.
    unsafe {
        let raised = (watching.take_error)();
        let is_added = (watching.add)(note_function) >= 0;
        (watching.set_error)(raised);
        is_added
    }
}

/// CPython's `PyFunction_EVENT_CREATE`.
const CREATED: c_int = 0;

/// The watcher. It must return 0.
unsafe extern "C" fn note_function(event: c_int, function: Object, _new_value: Object) -> c_int {
    if event != CREATED {
        return 0;
    }
    let Some(hooks) = hooks() else { return 0 };
    // SAFETY: CPython passes a function object that exists, and the thread holds the GIL.
    unsafe {
        if let Some(code) = hooks.functions.code_of_function(hooks.wanted, function.addr() as u64)
            && errno::preserving(|| {
                heap::unrecorded(|| hooks.functions.wanted(hooks.wanted, code).next().is_some())
            })
        {
            set_vectorcall(hooks, function);
        }
    }
    0
}

#[cold]
#[inline(never)]
fn set_vectorcall(hooks: &Hooks, function: Object) {
    let (Some(watching), Some(field)) =
        (hooks.api.watching, hooks.functions.vectorcall_of(function.addr() as u64))
    else {
        return;
    };
    // SAFETY: the function object exists, and the GIL protects it. The field is the C function that calls it.
    unsafe {
        let original = (field as *const *mut c_void).read_volatile();
        if original.is_null() || original == vectorcall as Vectorcall as *mut c_void {
            return;
        }
        // All functions that were just made have the same one.
        ORIGINAL.store(original, Ordering::Release);
        (watching.set)(function, vectorcall);
        hooks.functions.remove_version(function.addr() as u64);
    }
}

/// Calls a wanted function.
unsafe extern "C" fn vectorcall(
    function: Object,
    arguments: *const Object,
    count: usize,
    keywords: Object,
) -> Object {
    note_call(function, arguments, count, keywords);
    // SAFETY: the original was stored before this function was set. It is called as CPython would call it.
    unsafe {
        let original = function_at::<Vectorcall>(ORIGINAL.load(Ordering::Acquire));
        original(function, arguments, count, keywords)
    }
}

/// Sets the mark for a call. It is a function of its own so that the caller has no frame.
#[inline(never)]
fn note_call(function: Object, arguments: *const Object, count: usize, keywords: Object) {
    /// The bit of the count that says something about the array.
    const OFFSET: usize = 1 << (usize::BITS - 1);
    let Some(hooks) = hooks() else { return };
    let call = Call {
        function: function.addr() as u64,
        arguments: arguments.addr() as u64,
        count: (count & !OFFSET) as u64,
        keywords: keywords.addr() as u64,
    };
    // SAFETY: the caller holds the function and the arguments, and the thread holds the GIL.
    unsafe {
        // Its code may have been replaced since the function was made.
        if let Some(code) = hooks.functions.code_of_function(hooks.wanted, call.function) {
            set_marks(hooks, code, || hooks.functions.arguments_of_call(&call));
        }
    }
}

/// Sets memtrack's evaluator. Returns false if that is impossible.
fn set_evaluator(api: &Api, state: *mut c_void) -> bool {
    // SAFETY: the thread holds the GIL, which protects the interpreter's state. Both functions only read or store the pointer.
    unsafe {
        if let Some(evaluating) = api.evaluating {
            let original = (evaluating.get)(state);
            ORIGINAL.store(original, Ordering::Release);
            if !original.is_null() {
                (evaluating.set)(state, evaluate);
            }
            return !original.is_null();
        }
        let field = Functions::evaluator_in_3_8(state.addr() as u64) as *mut *mut c_void;
        // The field certainly is the evaluator if it contains CPython's.
        if field.read_volatile() != api.evaluator {
            return false;
        }
        ORIGINAL.store(api.evaluator, Ordering::Release);
        field.write_volatile(evaluate_in_3_8 as EvaluatorOf3_8 as *mut c_void);
    }
    true
}

/// Evaluates a frame.
unsafe extern "C" fn evaluate(state: *mut c_void, frame: Object, is_throwing: c_int) -> Object {
    note_frame(frame, is_throwing);
    // SAFETY: as in `vectorcall`.
    unsafe {
        let original = function_at::<Evaluator>(ORIGINAL.load(Ordering::Acquire));
        original(state, frame, is_throwing)
    }
}

/// Evaluates a frame of 3.8.
unsafe extern "C" fn evaluate_in_3_8(frame: Object, is_throwing: c_int) -> Object {
    note_frame(frame, is_throwing);
    // SAFETY: as in `vectorcall`.
    unsafe {
        let original = function_at::<EvaluatorOf3_8>(ORIGINAL.load(Ordering::Acquire));
        original(frame, is_throwing)
    }
}

/// Sets the mark for the beginning of a frame, if it is one of a wanted function.
#[inline(never)]
fn note_frame(frame: Object, is_throwing: c_int) {
    let Some(hooks) = hooks().filter(|_| is_throwing == 0) else { return };
    // SAFETY: CPython passes a frame that it is about to evaluate, with the GIL, and holds the arguments.
    unsafe {
        let frame = frame.addr() as u64;
        if let Some(code) = hooks.functions.code_of_frame(hooks.wanted, frame) {
            set_marks(hooks, code, || hooks.functions.arguments_of_frame(frame));
        }
    }
}

/// Sets the marks for a call of the function that a code object is of, if it is wanted.
///
/// # Safety
/// The code object and the arguments must exist during the call.
#[inline(never)]
unsafe fn set_marks(hooks: &Hooks, code: u64, arguments: impl Fn() -> Arguments) {
    errno::preserving(|| {
        // SAFETY: the caller guarantees that the code object exists.
        let mut functions = unsafe { hooks.functions.wanted(hooks.wanted, code) };
        // The mark itself cannot be set where nothing is recorded.
        while let Some(wanted) = heap::unrecorded(|| functions.next()) {
            // SAFETY: the caller guarantees that the arguments exist.
            let text = || unsafe { hooks.functions.first_text(arguments(), hooks.api.text_type) };
            let text = if wanted.is_named_by_argument { heap::unrecorded(text) } else { None };
            mark(text.as_deref().unwrap_or(&wanted.name));
            heap::unrecorded(|| drop(text));
        }
    });
}

fn hooks() -> Option<&'static Hooks> {
    // SAFETY: the pointer is null or from a leaked box.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}
