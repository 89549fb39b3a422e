//! The names that scrubbing keeps. These lists contain exact names from well-known public libraries. The table in
//! [`ownership`] is for reports, where `tokio*` and everything in `site-packages` belong to a framework. Here, a name
//! that is kept by mistake is disclosed to strangers, so only names that belong exclusively to public libraries are
//! listed.
//!
//! [`ownership`]: memtrack_frames::ownership

/// Public Rust crates.
const CRATES: &str = "\
    alloc core std proc_macro test __rustc compiler_builtins backtrace rustc_demangle gimli addr2line hashbrown \
    memtrack_core memtrack_recorder memtrack_model memtrack_file memtrack_cuda memtrack_run memtrack_allocator memtrack_preload \
    memtrack_preload_heap memtrack_formats memtrack_report memtrack_symbols memtrack_profile memtrack_cycles memtrack_page \
    candle_core candle_nn candle_transformers candle_datasets candle_kernels candle_flash_attn candle_onnx \
    burn burn_core burn_tensor burn_nn burn_optim burn_train burn_autodiff burn_ndarray burn_tch burn_candle burn_cuda \
    burn_wgpu burn_fusion burn_jit burn_cubecl burn_common burn_dataset burn_derive burn_import burn_router burn_ir \
    cubecl cubecl_core cubecl_cuda cubecl_runtime cubecl_common cubecl_linalg cubecl_cpp cubecl_wgpu cubecl_std \
    cudarc cust cust_core cust_raw tch torch_sys ort ort_sys \
    tokio tokio_util tokio_stream tokio_macros tokio_rustls futures futures_core futures_util futures_channel \
    futures_executor futures_io futures_sink futures_task async_std async_io async_executor async_channel async_task \
    async_trait async_stream smol mio hyper hyper_util hyper_rustls h2 http http_body axum axum_core tower tower_http \
    tower_layer tower_service actix actix_web actix_rt actix_http reqwest tonic prost prost_types tracing tracing_core \
    tracing_subscriber rayon rayon_core crossbeam crossbeam_channel crossbeam_deque crossbeam_epoch crossbeam_utils \
    crossbeam_queue serde serde_core serde_json serde_yaml serde_derive bincode safetensors tokenizers hf_hub ndarray \
    nalgebra faer gemm gemm_common gemm_core gemm_f16 gemm_f32 gemm_f64 polars polars_core polars_io polars_lazy arrow \
    arrow_array arrow_buffer arrow_data arrow_schema parquet image regex regex_automata regex_syntax aho_corasick \
    indexmap smallvec bytes once_cell parking_lot parking_lot_core anyhow clap clap_builder libloading criterion divan \
    memmap2 half num_traits rand rand_core flate2 zstd lz4_flex pyo3 numpy";

/// Outermost namespaces of public C++ libraries.
const NAMESPACES: &str = "\
    std __gnu_cxx __cxxabiv1 at c10 torch c10d caffe2 nvfuser pybind11 boost Eigen absl google grpc tensorflow xla \
    stream_executor thrust cub cutlass nvinfer1 oneapi dnnl mkldnn ideep triton llvm onnxruntime";

/// C++ namespaces that programs are unlikely to define themselves. Other public namespaces are not kept if the source
/// file is known to belong to the program.
const UNAMBIGUOUS_NAMESPACES: &str =
    "std __gnu_cxx __cxxabiv1 c10 c10d pybind11 absl nvfuser onnxruntime cutlass thrust";

/// Public Python packages, by their folders in `site-packages`.
const PACKAGES: &str = "\
    torch torchvision torchaudio torchtext torchgen functorch numpy scipy pandas sklearn matplotlib PIL cv2 transformers \
    accelerate diffusers datasets tokenizers safetensors huggingface_hub peft bitsandbytes deepspeed megatron apex \
    pytorch_lightning lightning lightning_fabric torchmetrics timm einops xformers flash_attn triton vllm sglang \
    sentence_transformers trl jax jaxlib flax optax tensorflow keras onnx onnxruntime tqdm ray wandb tensorboard \
    IPython ipykernel jupyter_client tornado traitlets zmq nbclient asyncio requests urllib3 yaml click fsspec \
    aiohttp fastapi uvicorn starlette pydantic joblib numba llvmlite sympy networkx psutil absl hydra omegaconf";

/// Top-level modules of Python's standard library.
const PYTHON_MODULES: &str = "\
    abc argparse ast asyncio base64 bdb bisect bz2 cProfile calendar cmd code codecs codeop collections concurrent \
    configparser contextlib contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis email encodings \
    enum fnmatch fractions functools gc genericpath getpass gettext glob gzip hashlib heapq hmac html http importlib \
    inspect io ipaddress json keyword linecache locale logging lzma mimetypes multiprocessing ntpath numbers opcode \
    operator optparse os pathlib pdb pickle pickletools pkgutil platform posixpath pprint profile pstats queue random re \
    reprlib runpy sched secrets selectors shlex shutil signal site socket socketserver sqlite3 ssl stat statistics string \
    struct subprocess symtable sysconfig tarfile tempfile textwrap threading timeit token tokenize trace traceback \
    tracemalloc types typing unittest urllib uuid venv warnings weakref webbrowser wsgiref xml xmlrpc zipapp zipfile \
    zipimport zoneinfo _bootstrap _bootstrap_external _weakrefset _collections_abc _compat_pickle _pydecimal _strptime \
    _pyio __future__ lib-dynload lib2to3 sre_compile sre_parse unicodedata";

/// C functions of public libraries, by their full names.
const FUNCTIONS: &str = "\
    main _start __libc_start_main __libc_start_call_main __libc_start_main_impl start_thread clone clone3 __clone __clone3 \
    malloc calloc realloc free reallocarray posix_memalign aligned_alloc memalign valloc pvalloc malloc_usable_size mmap \
    mmap64 munmap mremap sbrk brk memcpy memmove memset strdup strndup getline getdelim asprintf vasprintf fopen fopen64 \
    fdopen getaddrinfo qsort qsort_r dlopen dlsym call_init ffi_call ffi_call_int execute_native_thread_routine thread_run \
    pythread_wrapper run_mod run_eval_code_obj type_call binary_op1 slot_tp_init slot_tp_call slot_tp_new \
    method_vectorcall cfunction_call partial_call do_richcompare subtype_dealloc list_resize rust_begin_unwind \
    rust_eh_personality operator list_append dict_resize unicode_resize vgetargskeywords";

/// Prefixes of C functions in public libraries.
const FUNCTION_PREFIXES: &str = "\
    _Py _IO_ _Unwind_ __cxa_ __rust_ __rdl_ __rg_ _dl_ __libc_ pthread_ pymain_ cuMem cuCtx cuInit cuModule cuLaunch \
    cuLibrary cuStream cuDevice cudaMalloc cudaFree cudaHost cudaMemcpy cudaMemset cudaLaunch cudaStream cudaEvent cudaGet \
    cudaSet cudaDevice __cuda cublas cublasLt cudnn cufft cusparse cusolver curand nccl pnccl ncclComm mkl_ cblas_ openblas \
    GOMP_ __kmp g_malloc g_slice_ sqlite3_ SSL_ CRYPTO_ THPVariable_ THPEngine_ THPFunction_";

/// The words between `Py` and an underscore in the names of the Python interpreter's functions.
const INTERPRETER_WORDS: &str = "\
    Arg Bool Buffer Bytes ByteArray Callable Capsule Cell CFunction CMethod Code Codec Complex Context Coro Descr Dict \
    Err Eval Exception File Float Frame FrozenSet Function Gen GILState Import Index InstanceMethod Interpreter Iter List Long \
    Mapping Marshal Mem MemoryView Method Module Number Object ODict OS Property Run Sequence Set Slice State Structseq Sys \
    Thread Time Tuple Type Unicode Vectorcall Weakref Wrapper _RunMain _BytesMain _Main _Finalize _Initialize";

/// Public shared libraries, without the prefix `lib` and without everything from the first dot on.
const BINARIES: &str = "\
    c m pthread dl rt stdc++ gcc_s python3 cuda cudart cublas cublasLt cudnn nccl nvrtc torch torch_cpu torch_cuda \
    torch_python c10 c10_cuda gomp iomp5 mkl_core mkl_rt openblas";

/// Classes in `torch.nn` and `torch.optim`. Profilers name modules after their classes.
const CLASSES: &str = "\
    Linear Bilinear LazyLinear Identity Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d MaxPool1d \
    MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveMaxPool2d BatchNorm1d \
    BatchNorm2d BatchNorm3d SyncBatchNorm LayerNorm GroupNorm InstanceNorm2d RMSNorm ReLU ReLU6 LeakyReLU PReLU ELU GELU \
    SiLU Mish Sigmoid Tanh Softmax LogSoftmax Softplus Hardswish Hardsigmoid Dropout Dropout1d Dropout2d Dropout3d Embedding \
    EmbeddingBag RNN LSTM GRU RNNCell LSTMCell GRUCell Transformer TransformerEncoder TransformerDecoder \
    TransformerEncoderLayer TransformerDecoderLayer MultiheadAttention Sequential ModuleList ModuleDict ParameterList \
    Flatten Unflatten Upsample PixelShuffle ZeroPad2d ReflectionPad2d CrossEntropyLoss MSELoss L1Loss NLLLoss BCELoss \
    BCEWithLogitsLoss KLDivLoss SmoothL1Loss HuberLoss Tensor Parameter Module SGD Adam AdamW Adagrad Adadelta Adamax \
    RMSprop LBFGS NAdam RAdam Rprop SparseAdam ASGD";

/// Common names of marks, threads, operators and optimizer states.
const COMMON_NAMES: &str = "\
    main step epoch batch iteration request forward backward optimizer loss train eval (other) tokio-runtime-worker \
    pt_main_thread weight bias exp_avg exp_avg_sq max_exp_avg_sq momentum_buffer running_mean running_var zero_grad \
    square_avg acc_delta grad_avg sum parameter gradient activation input temporary autograd_detail optimizer_state unknown \
    state python3 python";

/// Returns whether a list of words contains a name.
pub(super) fn is_in(list: &str, name: &str) -> bool {
    !name.is_empty() && list.split_ascii_whitespace().any(|listed| listed == name)
}

/// Returns whether a crate is public.
pub(super) fn is_crate(name: &str) -> bool {
    is_in(CRATES, name)
}

/// Returns whether a namespace belongs to a public library. `in_program_file` is true if the function's source file is
/// known to belong to the program.
pub(super) fn is_namespace(name: &str, in_program_file: bool) -> bool {
    is_in(if in_program_file { UNAMBIGUOUS_NAMESPACES } else { NAMESPACES }, name)
}

/// Returns whether a folder in `site-packages`, or a file there without its suffix, belongs to a public package.
pub(super) fn is_package(name: &str) -> bool {
    is_in(PACKAGES, name)
}

/// Returns whether a folder, or a file without its suffix, belongs to Python's standard library.
pub(super) fn is_python_module(name: &str) -> bool {
    is_in(PYTHON_MODULES, name)
}

/// Returns whether a C function belongs to a public library.
pub(super) fn is_function(name: &str) -> bool {
    is_in(FUNCTIONS, name)
        || FUNCTION_PREFIXES.split_ascii_whitespace().any(|prefix| name.starts_with(prefix))
        || name.strip_prefix("Py").is_some_and(|rest| {
            let object = rest.split_once('_').map_or(rest, |(object, _)| object);
            is_in(INTERPRETER_WORDS, if object.is_empty() { rest } else { object })
        })
}

/// Returns whether a shared library is public, such as `libtorch_cuda.so` or `libc.so.6`.
pub(super) fn is_binary(file: &str) -> bool {
    let stem = file.strip_prefix("lib").and_then(|rest| rest.split_once(".so"));
    stem.is_some_and(|(stem, version)| {
        let plain = stem.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        let numbered = version.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
        numbered && (is_in(BINARIES, stem) || (plain == "python" && stem.len() > plain.len()))
    })
}

/// Returns whether a class belongs to PyTorch.
pub(super) fn is_class(name: &str) -> bool {
    is_in(CLASSES, name)
}

/// Returns whether a name is too common to identify anything.
pub(super) fn is_common(name: &str) -> bool {
    is_in(COMMON_NAMES, name)
}
