//! The wrapper around every entry point: injected failures, the trace, and the conversion from a `Result` to a status code.

use std::io::Write;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::settings::settings;
use crate::status::{CuResult, Status};

/// Defines entry points of the driver: `fn NAME [as ALIAS] (arguments) { body that returns a CuResult }`. The alias is the
/// variant for the per-thread default stream, which takes the same arguments.
macro_rules! entries {
    () => {};
    (fn $name:ident as $alias:ident $arguments:tt $body:tt $($rest:tt)*) => {
        $crate::call::entry! { $name $arguments $body }
        $crate::call::entry! { $alias $arguments $body }
        $crate::call::entries! { $($rest)* }
    };
    (fn $name:ident $arguments:tt $body:tt $($rest:tt)*) => {
        $crate::call::entry! { $name $arguments $body }
        $crate::call::entries! { $($rest)* }
    };
}
pub(crate) use entries;

/// Defines one entry point.
macro_rules! entry {
    ($name:ident ($($argument:ident: $kind:ty),* $(,)?) $body:tt) => {
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $kind),*) -> i32 {
            $crate::call::call(stringify!($name), || -> $crate::status::CuResult $body)
        }
    };
}
pub(crate) use entry;

/// Runs an entry point's body, or returns the injected failure instead.
pub(crate) fn call(name: &'static str, body: impl FnOnce() -> CuResult) -> i32 {
    let result = match injected(name) {
        Some(status) => Err(status),
        None => body(),
    };
    let code = result.map_or_else(|status| status.0, |()| 0);
    trace(name, code);
    code
}

/// Fails with "not supported": the body of every entry point that the mock knows only by name.
pub(crate) fn unsupported(name: &'static str) -> i32 {
    call(name, || Err(Status::NOT_SUPPORTED))
}

fn injected(name: &str) -> Option<Status> {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let failure = settings().fail.as_ref()?;
    let hit = failure.name == name && failure.calls.contains(&CALLS.fetch_add(1, Ordering::Relaxed));
    hit.then_some(failure.status)
}

fn trace(name: &str, code: i32) {
    if let Some(file) = &settings().trace {
        // If the trace cannot be written, the test notices that it is missing.
        let _ = writeln!(file.lock().unwrap_or_else(PoisonError::into_inner), "{name} {code}");
    }
}

/// Writes a result to the caller's out-parameter.
///
/// # Errors
/// `INVALID_VALUE` if the pointer is null.
pub(crate) fn put<T>(place: *mut T, value: T) -> CuResult {
    if place.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the caller of the driver promises that its out-parameters are writable and aligned for their type.
    unsafe { place.write(value) };
    Ok(())
}

/// Reads an in-parameter through the caller's pointer.
///
/// # Errors
/// `INVALID_VALUE` if the pointer is null.
pub(crate) fn get<T: Copy>(place: *const T) -> CuResult<T> {
    if place.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    // SAFETY: the caller of the driver promises that its in-parameters are readable.
    Ok(unsafe { place.read() })
}
