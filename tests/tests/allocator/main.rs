//! The caching allocator, compared with PyTorch's decisions and run on the mock driver.

mod api;
mod bad_input;
mod buffers;
mod captures;
mod cuda;
mod failing_device;
mod history;
mod malloc_async;
mod oom_text;
mod oracle;
mod pluggable;
mod properties;
mod recording;
mod replay;
mod settings;
mod snapshot;
mod threads;
