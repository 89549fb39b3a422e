//! Contexts, and which of them is current in a thread. Numbers below 64 are the devices' primary ones.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::handle::{self, Tag};
use crate::machine::machine;
use crate::status::{Answer, Status};
use crate::work;

/// Devices there can be, at most.
const FIRST_CREATED: u32 = 64;
const MOST: usize = 1 << 14;

/// The device of each context, plus one; 0 where it is not alive.
static DEVICE_OF: [AtomicU8; MOST] = [const { AtomicU8::new(0) }; MOST];
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
    /// The context of a handle.
    ///
    /// # Errors
    /// Invalid context for what is none; destroyed for what is none any more.
    pub fn of(context: *mut c_void) -> Answer<Self> {
        let (_, number) = handle::read(Tag::Context, context).map_err(|_| Status::INVALID_CONTEXT)?;
        Self::numbered(number as u16)
    }

    /// The context of a number, if it is alive.
    ///
    /// # Errors
    /// Destroyed where it is not.
    pub fn numbered(number: u16) -> Answer<Self> {
        match DEVICE_OF.get(usize::from(number)).map(|device| device.load(Ordering::Acquire)) {
            None | Some(0) => Err(Status::CONTEXT_IS_DESTROYED),
            Some(device) => Ok(Self { number, device: usize::from(device) - 1 }),
        }
    }

    /// The thread's.
    ///
    /// # Errors
    /// Not initialized before `cuInit`; invalid context where the thread has none.
    pub fn current() -> Answer<Self> {
        let stack = STACK.get();
        match stack.depth {
            0 => Err(machine().err().unwrap_or(Status::INVALID_CONTEXT)),
            depth => Self::numbered(stack.numbers[depth - 1]),
        }
    }

    /// The one that a stream belongs to: the three streams that need no making are the current context's.
    ///
    /// # Errors
    /// Invalid handle for what is no stream, or none any more.
    pub fn of_stream(stream: *mut c_void) -> Answer<Self> {
        if stream.addr() <= 2 {
            return Self::current();
        }
        let context = Self::numbered(handle::read(Tag::Stream, stream)?.0)?;
        if work::is_stream(stream, context.number) { Ok(context) } else { Err(Status::INVALID_HANDLE) }
    }

    /// Its handle.
    pub fn handle(self) -> *mut c_void {
        handle::make(Tag::Context, 0, u32::from(self.number))
    }

    /// Makes the primary context of a device.
    pub fn primary(device: usize) -> Self {
        DEVICE_OF[device].store(device as u8 + 1, Ordering::Release);
        Self { number: device as u16, device }
    }

    /// Makes another context.
    ///
    /// # Errors
    /// Out of memory after some sixteen thousand.
    pub fn create(device: usize) -> Answer<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) as usize;
        let slot = DEVICE_OF.get(number).ok_or(Status::OUT_OF_MEMORY)?;
        slot.store(device as u8 + 1, Ordering::Release);
        Ok(Self { number: number as u16, device })
    }

    /// Whether it is a device's own.
    pub fn is_primary(self) -> bool {
        u32::from(self.number) < FIRST_CREATED
    }

    /// Ends it, with all that it holds.
    ///
    /// # Errors
    /// Not initialized before `cuInit`.
    pub fn destroy(self) -> Answer {
        DEVICE_OF[usize::from(self.number)].store(0, Ordering::Release);
        work::context_ended(self.number);
        machine()?.release_context(self);
        machine()?.area(self.device).count_context(false);
        Ok(())
    }
}

/// The current context's handle, null where there is none. What was destroyed is still current, as in the driver.
pub(crate) fn current_handle() -> *mut c_void {
    let stack = STACK.get();
    match stack.depth {
        0 => std::ptr::null_mut(),
        depth => handle::make(Tag::Context, 0, u32::from(stack.numbers[depth - 1])),
    }
}

/// Replaces the current context; none takes it away.
pub(crate) fn set_current(context: Option<Context>) {
    let mut stack = STACK.get();
    stack.depth = stack.depth.saturating_sub(1);
    STACK.set(stack);
    if let Some(context) = context {
        // There is room: one was just taken.
        let _ = push(context);
    }
}

/// Puts a context on top.
///
/// # Errors
/// Invalid value for the thirty-third.
pub(crate) fn push(context: Context) -> Answer {
    let mut stack = STACK.get();
    *stack.numbers.get_mut(stack.depth).ok_or(Status::INVALID_VALUE)? = context.number;
    stack.depth += 1;
    STACK.set(stack);
    Ok(())
}

/// Takes the current context off.
///
/// # Errors
/// Invalid context where there is none.
pub(crate) fn pop() -> Answer<*mut c_void> {
    let top = current_handle();
    if top.is_null() {
        return Err(Status::INVALID_CONTEXT);
    }
    set_current(None);
    Ok(top)
}
