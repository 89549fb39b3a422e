//! Removes uninformative frames from stacks: the innermost frames of memtrack, the unwinder, the allocator and the
//! standard library, as well as everything inside an allocator that the program provides. `top` groups stacks by the
//! remaining frames.

use super::top::frames::is_javascript;
use memtrack_model::Frame;
use memtrack_model::paths::with_slashes;
use memtrack_symbols::names::plain_path;

/// Crates whose functions, if they are the innermost frames, do nothing but perform an allocation.
const ALLOCATION_CRATES: [&str; 13] = [
    "memtrack_core",
    "memtrack_recorder",
    "memtrack_model",
    "memtrack_file",
    "memtrack_cuda",
    "memtrack_run",
    "memtrack_allocator",
    "memtrack_preload",
    "__rustc",
    "alloc",
    "core",
    "std",
    "hashbrown",
];
/// Functions without a crate that only perform an allocation.
const ALLOCATION_FUNCTIONS: [&str; 10] = [
    "_Unwind_Backtrace",
    "malloc",
    "calloc",
    "realloc",
    "free",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "operator new",
    "operator new[]",
];

/// Prefixes of jemalloc's functions, as its builds name them.
const JEMALLOC_PREFIXES: [&str; 3] = ["je_", "_rjem_", "do_rallocx"];

/// Prefixes of PyTorch functions that only perform an allocation: those for stack capture, the caching allocator, and
/// creating empty tensors.
const PYTORCH_ALLOCATION_PREFIXES: [&str; 6] = [
    "torch::unwind::",
    "torch::CapturedTraceback::",
    "torch::cuda::(anonymous namespace)::gather",
    "c10::",
    "at::detail::",
    "at::TensorBase at::detail::",
];

/// Prefixes of the functions that the compiler inserts between `alloc::alloc` and a program's `#[global_allocator]`.
/// They look like the user's code, because their names contain the program's crate and their line is that of the
/// `static`.
const SHIM_PREFIXES: [&str; 6] =
    ["__rust_alloc", "__rust_dealloc", "__rust_realloc", "__rust_no_alloc_shim", "__rdl_", "__rg_"];
/// The trait that a program's allocator implements.
const ALLOCATOR_TRAIT: &str = "core::alloc::global::GlobalAlloc";

/// Returns whether this function is an entry point of the program's own allocator, in which case all frames inside it
/// belong to the allocator.
pub fn is_allocator_entry(function: &str) -> bool {
    let of_trait = function.split_once(ALLOCATOR_TRAIT).is_some_and(|(before, after)| {
        (before.starts_with('<') && before.ends_with(" as ") && after.starts_with(">::"))
            || (before.ends_with("<impl ") && after.starts_with(" for "))
    });
    of_trait || is_shim(&plain_path(function))
}

fn is_shim(path: &str) -> bool {
    let name = path.rsplit("::").next().unwrap_or(path);
    SHIM_PREFIXES.iter().any(|beginning| name.starts_with(beginning))
}

/// Returns whether a function only performs an allocation for its caller.
pub fn is_plumbing(function: &str) -> bool {
    if is_allocator_entry(function) {
        return true;
    }
    if PYTORCH_ALLOCATION_PREFIXES.iter().any(|beginning| function.starts_with(beginning)) {
        return true;
    }
    // A trait method on a primitive type, such as `<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem`,
    // belongs to the trait's crate.
    let of_trait = function.strip_prefix('<').and_then(|rest| rest.split_once(" as "));
    let of_trait = of_trait.filter(|(own, _)| !own.contains("::")).map(|(_, of_trait)| of_trait);
    // Only the first segment of the path is compared, so types in later segments, such as `<impl [T]>`, do not matter.
    let raw = of_trait.unwrap_or(function);
    if raw.split_once("::").is_some_and(|(first, _)| ALLOCATION_CRATES.contains(&first)) {
        return true;
    }
    let path = plain_path(of_trait.unwrap_or(function));
    match path.split_once("::") {
        Some((first, _)) => ALLOCATION_CRATES.contains(&first),
        None => {
            let name = path.split('(').next().unwrap_or_default();
            ALLOCATION_FUNCTIONS.contains(&name)
                || name.starts_with("__rust_")
                || JEMALLOC_PREFIXES.iter().any(|beginning| name.starts_with(beginning))
        }
    }
}

/// Prefixes of functions that only forward a call, wherever they are in a stack: PyTorch's dispatcher, and functions
/// from its autograd engine and generated code.
const FORWARDING_PREFIXES: [&str; 14] = [
    "c10::impl::",
    "c10::Dispatcher::",
    "c10::KernelFunction::",
    "at::(anonymous namespace)::wrapper_",
    "at::(anonymous namespace)::(anonymous namespace)::wrapper_",
    "at::(anonymous namespace)::create_out",
    "at::(anonymous namespace)::structured_",
    "torch::autograd::VariableType::",
    "torch::autograd::Engine::thread_",
    "torch::autograd::python::PythonEngine::",
    "torch::autograd::Node::operator()",
    "torch::ADInplaceOrView::",
    "_object* torch::autograd::TypeError_to_NotImplemented_",
    "std::",
];
/// Prefixes of C functions that only forward a call: the Python interpreter's own functions, and program startup.
const FORWARDING_C_PREFIXES: [&str; 9] =
    ["_Py", "Py", "pymain_", "pyrun_", "method_vectorcall", "cfunction_", "slot_", "__libc_", "pthread_"];
/// Full names of functions that only forward a call.
const FORWARDING_FUNCTIONS: [&str; 11] = [
    "run_mod",
    "run_eval_code_obj",
    "type_call",
    "binary_op1",
    "_start",
    "__clone",
    "clone",
    "start_thread",
    "execute_native_thread_routine",
    "??",
    "[unknown]",
];

/// Files and functions in PyTorch's Python code that only forward a call.
const FORWARDING_PYTHON_FUNCTIONS: [(&str, &str); 4] = [
    ("torch/nn/modules/module.py", "_call_impl"),
    ("torch/nn/modules/module.py", "_wrapped_call_impl"),
    ("torch/optim/optimizer.py", "wrapper"),
    ("torch/utils/_contextlib.py", "decorate_context"),
];

/// Returns whether a frame only forwards a call and is therefore uninformative.
pub fn is_internal(frame: &Frame) -> bool {
    let function = frame.function.as_str();
    if let Some(file) = frame.file.as_deref().filter(|file| file.ends_with(".py")) {
        let (file, method) = (with_slashes(file), function.rsplit('.').next().unwrap_or(function));
        return FORWARDING_PYTHON_FUNCTIONS.iter().any(|&(of, name)| file.ends_with(of) && method == name);
    }
    if is_javascript(frame) {
        return false;
    }
    let of_c = !function.contains("::");
    let redispatched = function.starts_with("at::_ops::") && function.contains("::redispatch(");
    redispatched
        || FORWARDING_PREFIXES.iter().any(|beginning| function.starts_with(beginning))
        || (of_c && FORWARDING_C_PREFIXES.iter().any(|beginning| function.starts_with(beginning)))
        || FORWARDING_FUNCTIONS.contains(&function)
        || is_plumbing(function)
}

/// Returns the frames starting at the first one that does more than perform an allocation, or all frames if none does.
pub fn informative_frames(frames: &[Frame]) -> &[Frame] {
    let entered = frames.iter().rposition(|frame| is_allocator_entry(&frame.function));
    let outside = entered.map_or(0, |entry| entry + 1);
    let first = frames[outside..].iter().position(|frame| !is_plumbing(&frame.function));
    &frames[first.map_or(0, |first| outside + first)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames_named(names: &[&str]) -> Vec<Frame> {
        names.iter().map(|&name| Frame { function: name.into(), ..Frame::default() }).collect()
    }

    #[test]
    fn leading_plumbing_is_trimmed_and_inner_plumbing_stays() {
        let frames = frames_named(&[
            "memtrack_recorder::recorder::record",
            "<memtrack_recorder::host::TrackingAllocator<A> as core::alloc::global::GlobalAlloc>::alloc",
            "__rustc::__rust_alloc",
            "alloc::alloc::alloc",
            "<alloc::raw_vec::RawVec<u8>>::grow_one",
            "my::work",
            "core::ops::function::FnOnce::call_once",
            "main",
        ]);
        assert_eq!(informative_frames(&frames), &frames[5..]);
    }

    #[test]
    fn custom_global_allocator_and_its_callees_are_plumbing() {
        let legacy = frames_named(&[
            "malloc",
            "svc::arena::grow",
            "<svc::Counting as core::alloc::global::GlobalAlloc>::alloc",
            "svc::__rust_alloc",
            "alloc::alloc::alloc",
            "svc::handle",
            "std::sys::backtrace::__rust_begin_short_backtrace",
            "main",
        ]);
        assert_eq!(informative_frames(&legacy), &legacy[5..]);
        let nested = frames_named(&[
            "__rustc::__rust_realloc",
            "svc::arena::Index::grow",
            "svc::<impl core::alloc::global::GlobalAlloc for svc::Counting>::realloc",
            "svc::_::__rg_realloc",
            "svc::handle",
        ]);
        assert_eq!(informative_frames(&nested), &nested[4..]);
        for own in ["svc::rust_alloc", "svc::Counting::alloc", "<svc::A as svc::GlobalAlloc>::alloc"] {
            assert!(!is_plumbing(own), "{own}");
        }
    }

    #[test]
    fn jemalloc_is_plumbing() {
        let frames =
            frames_named(&["_rjem_je_hook_invoke_alloc", "_rjem_malloc", "__rustc::__rust_alloc", "main"]);
        assert_eq!(informative_frames(&frames), &frames[3..]);
        assert!(!is_plumbing("jet_engine") && !is_plumbing("je::malloc"));
    }

    #[test]
    fn pytorch_allocator_is_plumbing_and_operators_are_not() {
        let frames = frames_named(&[
            "torch::unwind::unwind()",
            "torch::CapturedTraceback::gather(bool, bool, bool)",
            "torch::cuda::(anonymous namespace)::gather_with_cpp()",
            "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)",
            "at::TensorBase at::detail::_empty_generic<long>(c10::ArrayRef<long>, c10::Allocator*)",
            "at::native::mm(at::Tensor const&)",
            "c10::impl::wrap_kernel_functor_unboxed_<at::Tensor>",
        ]);
        assert_eq!(informative_frames(&frames), &frames[5..]);
    }

    #[test]
    fn module_call_is_internal_on_every_system() {
        for file in [
            "/v/site-packages/torch/nn/modules/module.py",
            "D:\\lm\\Lib\\site-packages\\torch\\nn\\modules\\module.py",
        ] {
            let frame = Frame { function: "_call_impl".into(), file: Some(file.into()), ..Frame::default() };
            assert!(is_internal(&frame), "{file}");
        }
    }

    #[test]
    fn stack_of_only_plumbing_is_kept() {
        let frames = frames_named(&["__rust_alloc", "std::rt::lang_start"]);
        assert_eq!(informative_frames(&frames), &frames[..]);
        assert!(informative_frames(&[]).is_empty());
    }

    #[test]
    fn generic_user_function_is_not_plumbing() {
        assert!(!is_plumbing("my::process::<alloc::vec::Vec<u8>>"));
        assert!(!is_plumbing("<my::Model as core::ops::Drop>::drop"));
        assert!(!is_plumbing("core_business::run"));
        assert!(is_plumbing("alloc::slice::<impl [T]>::to_vec"));
        assert!(is_plumbing("<T as alloc::slice::<impl [T]>::to_vec_in::ConvertVec>::to_vec"));
        assert!(!is_plumbing("<T as my::slice::Convert>::convert"));
    }
}
