//! Standard library types that refer to nothing: numbers, strings, addresses, open files and sockets.

use super::{References, TypeProbe, Visitor};
use std::marker::{PhantomData, PhantomPinned};
use std::sync::atomic;
use std::{alloc, any, cmp, convert, ffi, fs, hash, io, net, num, ops, path, process, sync, thread, time};

macro_rules! refers_to_nothing {
    ($($type:ty),* $(,)?) => {$(
        impl References for $type {
            #[inline]
            fn references(&self, _to: &mut Visitor<'_>) {}

            #[inline]
            fn never_refers(_probe: &mut TypeProbe) -> bool {
                true
            }
        }
    )*};
}

refers_to_nothing!((), bool, char, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize, f32, f64);
refers_to_nothing!(num::NonZeroI8, num::NonZeroI16, num::NonZeroI32, num::NonZeroI64, num::NonZeroI128);
refers_to_nothing!(num::NonZeroU8, num::NonZeroU16, num::NonZeroU32, num::NonZeroU64, num::NonZeroU128);
refers_to_nothing!(num::NonZeroIsize, num::NonZeroUsize);
refers_to_nothing!(atomic::AtomicBool, atomic::AtomicIsize, atomic::AtomicUsize);
#[cfg(target_has_atomic = "8")]
refers_to_nothing!(atomic::AtomicI8, atomic::AtomicU8);
#[cfg(target_has_atomic = "16")]
refers_to_nothing!(atomic::AtomicI16, atomic::AtomicU16);
#[cfg(target_has_atomic = "32")]
refers_to_nothing!(atomic::AtomicI32, atomic::AtomicU32);
#[cfg(target_has_atomic = "64")]
refers_to_nothing!(atomic::AtomicI64, atomic::AtomicU64);
refers_to_nothing!(atomic::Ordering, cmp::Ordering, convert::Infallible, ops::RangeFull, PhantomPinned);
refers_to_nothing!(String, ffi::CString, ffi::OsString, path::PathBuf);
refers_to_nothing!(time::Duration, time::Instant, time::SystemTime);
refers_to_nothing!(any::TypeId, alloc::Layout, alloc::System);
refers_to_nothing!(thread::ThreadId, thread::Thread, sync::Barrier, sync::Condvar, sync::Once);
refers_to_nothing!(
    net::IpAddr,
    net::Ipv4Addr,
    net::Ipv6Addr,
    net::SocketAddr,
    net::SocketAddrV4,
    net::SocketAddrV6
);
refers_to_nothing!(net::TcpListener, net::TcpStream, net::UdpSocket);
refers_to_nothing!(fs::File, io::Empty, io::ErrorKind, io::Sink, io::Stderr, io::Stdin, io::Stdout);
refers_to_nothing!(process::Child, process::ChildStderr, process::ChildStdin, process::ChildStdout);
refers_to_nothing!(hash::RandomState, hash::DefaultHasher);

macro_rules! refers_to_nothing_unsized {
    ($($type:ty),*) => {$(
        impl References for $type {
            fn references(&self, _to: &mut Visitor<'_>) {}
        }
    )*};
}

refers_to_nothing_unsized!(str, ffi::CStr, ffi::OsStr, path::Path);

macro_rules! refers_to_nothing_for_any {
    ($($type:ty),*) => {$(
        impl<T: ?Sized> References for $type {
            #[inline]
            fn references(&self, _to: &mut Visitor<'_>) {}

            #[inline]
            fn never_refers(_probe: &mut TypeProbe) -> bool {
                true
            }
        }
    )*};
}

// A reference keeps nothing alive, so the borrowed value is not visited. (Raw pointers are missing here, because one
// may come from `Rc::into_raw` and must then be reported.)
refers_to_nothing_for_any!(PhantomData<T>, &T, &mut T);

impl<H> References for hash::BuildHasherDefault<H> {
    fn references(&self, _to: &mut Visitor<'_>) {}

    fn never_refers(_probe: &mut TypeProbe) -> bool {
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
            fn never_refers(_probe: &mut TypeProbe) -> bool {
                true
            }
        }
    };
}

functions!([] [A] [A B] [A B C] [A B C D] [A B C D E] [A B C D E F] [A B C D E F G] [A B C D E F G H]);
