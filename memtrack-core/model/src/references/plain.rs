//! The standard library's types that refer to nothing: numbers, texts, addresses, what the system has open.

use super::{Asked, References, Visitor};
use std::marker::{PhantomData, PhantomPinned};
use std::sync::atomic;
use std::{alloc, any, cmp, convert, ffi, fs, hash, io, net, num, ops, path, process, sync, thread, time};

macro_rules! nothing {
    ($($type:ty),* $(,)?) => {$(
        impl References for $type {
            #[inline]
            fn references(&self, _to: &mut Visitor<'_>) {}

            #[inline]
            fn never_refers(_asked: &mut Asked) -> bool {
                true
            }
        }
    )*};
}

nothing!((), bool, char, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f32, f64);
nothing!(num::NonZeroI8, num::NonZeroI16, num::NonZeroI32, num::NonZeroI64, num::NonZeroI128);
nothing!(num::NonZeroU8, num::NonZeroU16, num::NonZeroU32, num::NonZeroU64, num::NonZeroU128);
nothing!(num::NonZeroIsize, num::NonZeroUsize);
nothing!(atomic::AtomicBool, atomic::AtomicIsize, atomic::AtomicUsize);
#[cfg(target_has_atomic = "8")]
nothing!(atomic::AtomicI8, atomic::AtomicU8);
#[cfg(target_has_atomic = "16")]
nothing!(atomic::AtomicI16, atomic::AtomicU16);
#[cfg(target_has_atomic = "32")]
nothing!(atomic::AtomicI32, atomic::AtomicU32);
#[cfg(target_has_atomic = "64")]
nothing!(atomic::AtomicI64, atomic::AtomicU64);
nothing!(atomic::Ordering, cmp::Ordering, convert::Infallible, ops::RangeFull, PhantomPinned);
nothing!(String, ffi::CString, ffi::OsString, path::PathBuf);
nothing!(time::Duration, time::Instant, time::SystemTime);
nothing!(any::TypeId, alloc::Layout, alloc::System);
nothing!(thread::ThreadId, thread::Thread, sync::Barrier, sync::Condvar, sync::Once);
nothing!(net::IpAddr, net::Ipv4Addr, net::Ipv6Addr, net::SocketAddr, net::SocketAddrV4, net::SocketAddrV6);
nothing!(net::TcpListener, net::TcpStream, net::UdpSocket);
nothing!(fs::File, io::Empty, io::ErrorKind, io::Sink, io::Stderr, io::Stdin, io::Stdout);
nothing!(process::Child, process::ChildStderr, process::ChildStdin, process::ChildStdout);
nothing!(hash::RandomState, hash::DefaultHasher);

macro_rules! nothing_unsized {
    ($($type:ty),*) => {$(
        impl References for $type {
            fn references(&self, _to: &mut Visitor<'_>) {}
        }
    )*};
}

nothing_unsized!(str, ffi::CStr, ffi::OsStr, path::Path);

macro_rules! nothing_of_any {
    ($($type:ty),*) => {$(
        impl<T: ?Sized> References for $type {
            #[inline]
            fn references(&self, _to: &mut Visitor<'_>) {}

            #[inline]
            fn never_refers(_asked: &mut Asked) -> bool {
                true
            }
        }
    )*};
}

// What is borrowed is not held. (A raw pointer may be one that `Rc::into_raw` made: that is for its owner to say.)
nothing_of_any!(PhantomData<T>, &T, &mut T);

impl<H> References for hash::BuildHasherDefault<H> {
    fn references(&self, _to: &mut Visitor<'_>) {}

    fn never_refers(_asked: &mut Asked) -> bool {
        true
    }
}

macro_rules! functions {
    ($([$($argument:ident)*])*) => {$(
        functions!(@ [fn($($argument),*) -> R] $($argument)*);
        functions!(@ [unsafe fn($($argument),*) -> R] $($argument)*);
        functions!(@ [extern "C" fn($($argument),*) -> R] $($argument)*);
        functions!(@ [unsafe extern "C" fn($($argument),*) -> R] $($argument)*);
    )*};
    (@ [$type:ty] $($argument:ident)*) => {
        impl<R, $($argument),*> References for $type {
            #[inline]
            fn references(&self, _to: &mut Visitor<'_>) {}

            #[inline]
            fn never_refers(_asked: &mut Asked) -> bool {
                true
            }
        }
    };
}

functions!([] [A] [A B] [A B C] [A B C D] [A B C D E] [A B C D E F] [A B C D E F G] [A B C D E F G H]);
