//! Contexts, and each thread's stack of current contexts. Numbers below 64 are the devices' primary contexts.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::handle::{self, Tag};
use crate::machine::machine;
use crate::status::{CuResult, Status};
use crate::work;

/// The number of the first context that is not primary, and therefore the maximum number of devices.
const FIRST_CREATED: u32 = 64;
const MAX_CONTEXTS: usize = 1 << 14;

/// The device's index plus one for each context, by the context's number; 0 for a context that does not exist.
static DEVICE_OF: [AtomicU8; MAX_CONTEXTS] = [const { AtomicU8::new(0) }; MAX_CONTEXTS];
static NEXT: AtomicU32 = AtomicU32::new(FIRST_CREATED);

/// A live context.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Context {
    pub number: u16,
    pub device: usize,
}

#[derive(Clone, Copy)]
struct Stack {
    numbers: [u16; 32],
    depth: usize,
}

thread_local! {
    static STACK: Cell<Stack> = const { Cell::new(Stack { numbers: [0; 32], depth: 0 }) };
}

impl Context {
    /// Returns the context that a handle refers to.
    ///
    /// # Errors
    /// `INVALID_CONTEXT` if the handle is not a context's; `CONTEXT_IS_DESTROYED` if the context no longer exists.
    pub fn of(context: *mut c_void) -> CuResult<Self> {
        let (_, number) = handle::read(Tag::Context, context).map_err(|_| Status::INVALID_CONTEXT)?;
        Self::numbered(number as u16)
    }

    /// Returns the context with this number.
    ///
    /// # Errors
    /// `CONTEXT_IS_DESTROYED` if the context does not exist.
    pub fn numbered(number: u16) -> CuResult<Self> {
        match DEVICE_OF.get(usize::from(number)).map(|device| device.load(Ordering::Acquire)) {
            None | Some(0) => Err(Status::CONTEXT_IS_DESTROYED),
            Some(device) => Ok(Self { number, device: usize::from(device) - 1 }),
        }
    }

    /// Returns the thread's current context.
    ///
    /// # Errors
    /// `NOT_INITIALIZED` before `cuInit` was called; `INVALID_CONTEXT` if the thread has no current context.
    pub fn current() -> CuResult<Self> {
        let stack = STACK.get();
        match stack.depth {
            0 => Err(machine().err().unwrap_or(Status::INVALID_CONTEXT)),
            depth => Self::numbered(stack.numbers[depth - 1]),
        }
    }

    /// Returns the context that a stream belongs to: the current context for the three predefined streams.
    ///
    /// # Errors
    /// `INVALID_HANDLE` if the stream does not exist or was destroyed.
    pub fn of_stream(stream: *mut c_void) -> CuResult<Self> {
        if stream.addr() <= 2 {
            return Self::current();
        }
        let context = Self::numbered(handle::read(Tag::Stream, stream)?.0)?;
        if work::is_stream(stream, context.number) { Ok(context) } else { Err(Status::INVALID_HANDLE) }
    }

    /// Returns the context's handle.
    pub fn handle(self) -> *mut c_void {
        handle::make(Tag::Context, 0, u32::from(self.number))
    }

    /// Creates the primary context of a device.
    pub fn primary(device: usize) -> Self {
        DEVICE_OF[device].store(device as u8 + 1, Ordering::Release);
        Self { number: device as u16, device }
    }

    /// Creates a context that is not primary.
    ///
    /// # Errors
    /// `OUT_OF_MEMORY` after some sixteen thousand contexts.
    pub fn create(device: usize) -> CuResult<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
        let slot = DEVICE_OF.get(number).ok_or(Status::OUT_OF_MEMORY)?;
        slot.store(device as u8 + 1, Ordering::Release);
        Ok(Self { number: number as u16, device })
    }

    /// Returns whether this is a device's primary context.
    pub fn is_primary(self) -> bool {
        u32::from(self.number) < FIRST_CREATED
    }

    /// Destroys the context and frees its memory.
    ///
    /// # Errors
    /// `NOT_INITIALIZED` before `cuInit` was called.
    pub fn destroy(self) -> CuResult {
        DEVICE_OF[usize::from(self.number)].store(0, Ordering::Release);
        work::context_ended(self.number);
        machine()?.release_context(self);
        machine()?.area(self.device).count_context(false);
        Ok(())
    }
}

/// Returns the current context's handle, null if there is none. A destroyed context is still current, as in the driver.
pub(crate) fn current_handle() -> *mut c_void {
    let stack = STACK.get();
    match stack.depth {
        0 => std::ptr::null_mut(),
        depth => handle::make(Tag::Context, 0, u32::from(stack.numbers[depth - 1])),
    }
}

/// Replaces the current context; `None` removes it.
pub(crate) fn set_current(context: Option<Context>) {
    let mut stack = STACK.get();
    stack.depth = stack.depth.saturating_sub(1);
    STACK.set(stack);
    if let Some(context) = context {
        // The stack has room, because a context was just popped.
        let _ = push(context);
    }
}

/// Pushes a context onto the thread's stack.
///
/// # Errors
/// `INVALID_VALUE` if the stack is full.
pub(crate) fn push(context: Context) -> CuResult {
    let mut stack = STACK.get();
    *stack.numbers.get_mut(stack.depth).ok_or(Status::INVALID_VALUE)? = context.number;
    stack.depth += 1;
    STACK.set(stack);
    Ok(())
}

/// Pops the current context.
///
/// # Errors
/// `INVALID_CONTEXT` if there is none.
pub(crate) fn pop() -> CuResult<*mut c_void> {
    let top = current_handle();
    if top.is_null() {
        return Err(Status::INVALID_CONTEXT);
    }
    set_current(None);
    Ok(top)
}
