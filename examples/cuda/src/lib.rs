//! Programs that allocate on a CUDA device; each is in `src/bin`. [`driver`] opens the CUDA driver for them, or the mock.

pub mod driver;
