// Internal frames, which are not part of the user's program: interpreters, dispatchers, unwinders.

import type {Texts} from '../types.ts';

const NAMES = new RegExp([
  // Python's interpreter and its C entry points.
  '^_?Py[A-Z_]\\w*', '^_?PyEval_', '^_call_impl$', '^_wrapped_call_impl$', '^wrapper$', '^inner$', '^decorate_context$', '^cfunction_', '^method_vectorcall',
  '^object_vacall', '^slot_tp_call', '^type_call$', '^run_mod$', '^pymain_',
  '^run_eval_code_obj$', '^pyrun_', '^THPVariable_', '^binary_op1?$', '^slot_', '^execute_native_thread_routine', '^pthread_',
  // PyTorch's dispatcher and bindings; the `call` of an operator stays, for its name.
  '^c10::(Dispatcher|impl|KernelFunction|BoxedKernel|intrusive_ptr|TensorImpl::~)', '^at::_ops::(empty|resize_|_to_copy|clone)', '::redispatch\\(', '^at::redispatch::', '^torch::_ops::',
  '::wrapper_', '^torch::autograd::(VariableType|THPVariable)', '^at::autocast::WrapFunction', '^at::\\(anonymous namespace\\)::(create_out|structured_)', '^at::meta::', '^torch::autograd::CppNode_apply',
  // The unwinder and the allocator, which are in every stack.
  '^torch::unwind', '^torch::CapturedTraceback', '^torch::cuda::', 'gather_with_cpp', 'CachingAllocator', '^c10::(GetAllocator|StorageImpl|alloc_cpu)',
  '^at::detail::_?empty_', '^at::native::(empty_|resize_)', '^at::empty_', '^at::TensorIteratorBase::', 'TypeError_to_NotImplemented_',
  // The runtimes of Rust and C.
  '^(core|std|alloc)::(ops::function|panicking|panic|rt|sys|thread|boxed|alloc|raw_vec)', '^<?alloc::', '^__rust_(alloc|realloc|begin)', '^<F as ', '^<std::',
  '^__libc_', '^_start$', '^start_thread$', '^clone3?$', '^__clone',
].join('|'));

const PLACES = /(^|[/\\<])(frozen importlib|runpy\.py|site-packages[/\\]torch[/\\](nn[/\\]modules[/\\]module|_ops|_dynamo[/\\]eval_frame|utils[/\\]_contextlib|utils[/\\]_device|overrides)\.py)/;

/** The return type before the name of a demangled C++ template. */
const RETURN_TYPE = /^(void|bool|_object\*|at::Tensor(Base)?|std::tuple<[^ ]*>) /;

/** Returns whether a frame is internal, judging by its function and file. Frames without a name are internal. */
export function is_noise(name: string, file: string): boolean {
  return name === '' || name === '??' || name === '<unknown>' || NAMES.test(name.replace(RETURN_TYPE, '')) || PLACES.test(file);
}

const known = new WeakMap<Texts, {noise: Uint8Array; user?: Uint32Array}>();

/** Returns one byte per frame: 1 for internal ones. Computed once per page. */
export function noise_frames(texts: Texts): Uint8Array {
  let made = known.get(texts);
  if (!made) {
    const noise = new Uint8Array(texts.frame_name.length);
    for (let f = 0; f < noise.length; f++) noise[f] = Number(texts.frame_noise[f] === 1 || is_noise(texts.string(texts.frame_name[f]!), texts.string(texts.frame_file[f]!)));
    known.set(texts, made = {noise});
  }
  return made.noise;
}

/**
 * Returns, for each stack, 1 + its innermost frame that is not internal, or else its innermost frame; 0: a stack without
 * frames.
 */
export function user_frames(texts: Texts): Uint32Array {
  const noise = noise_frames(texts), made = known.get(texts)!;
  if (!made.user) {
    const {stack_from, stack_frames} = texts, user = made.user = new Uint32Array(stack_from.length - 1);
    for (let s = 0; s < user.length; s++) {
      const from = stack_from[s]!, to = stack_from[s + 1]!;
      if (from === to) continue;
      let i = from + texts.stack_skip[s]!;
      while (i < to && noise[stack_frames[i]!]) i++;
      user[s] = 1 + stack_frames[i < to ? i : from]!;
    }
  }
  return made.user;
}
