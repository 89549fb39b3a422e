//! Calls that cudarc's safe layer does not provide, through its raw functions.

use crate::counts::{compare, of_driver};
use cudarc::driver::{CudaContext, result, sys};
use std::ptr;

/// Allocates and frees pitched memory, arrays, registered host memory, plain memory, and memory of another process.
pub fn arrays() {
    let context = CudaContext::new(0).expect("a device");
    context.bind_to_thread().expect("a context");
    let mut host = vec![0u8; 10_000];
    let (mut address, mut pitch, mut array) = (0, 0, ptr::null_mut());
    let descriptor = sys::CUDA_ARRAY_DESCRIPTOR {
        Width: 30,
        Height: 20,
        Format: sys::CUarray_format::CU_AD_FORMAT_FLOAT,
        NumChannels: 4,
    };
    // SAFETY: out-parameters and the descriptor are local variables; everything is freed once.
    unsafe {
        sys::cuMemAllocPitch_v2(&mut address, &mut pitch, 100, 30, 4).result().expect("pitched memory");
        assert_eq!(of_driver(0).live_bytes, pitch as i64 * 30);
        compare("pitched memory");
        sys::cuArrayCreate_v2(&mut array, &descriptor).result().expect("an array");
        compare("an array");
        sys::cuMemHostRegister_v2(host.as_mut_ptr().cast(), host.len(), 0)
            .result()
            .expect("registered memory");
        compare("registered memory");
        sys::cuMemHostUnregister(host.as_mut_ptr().cast()).result().expect("registered memory");
        sys::cuArrayDestroy(array).result().expect("an array");
        compare("the end of arrays");

        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        sys::cuIpcGetMemHandle(&mut handle, address).result().expect("a handle");
        let mut opened = 0;
        sys::cuIpcOpenMemHandle_v2(&mut opened, handle, 1).result().expect("shared memory");
        compare("memory of another process, which is not counted");
        sys::cuIpcCloseMemHandle(opened).result().expect("shared memory");
        sys::cuMemFree_v2(address).result().expect("pitched memory");
        compare("the end of pitched memory");

        let plain = result::malloc_sync(12_345).expect("plain memory");
        compare("plain memory");
        result::free_sync(plain).expect("plain memory");
    }
}

/// Allocates from a pool that the program creates, on a device that is not current.
pub fn created_pool() {
    let context = CudaContext::new(0).expect("a device");
    let mut address = 0;
    // SAFETY: out-parameters and properties are local variables; everything is freed once.
    unsafe {
        let mut properties: sys::CUmemPoolProps = std::mem::zeroed();
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.__bindgen_anon_1.id = 1;
        let mut pool = ptr::null_mut();
        sys::cuMemPoolCreate(&mut pool, &properties).result().expect("a pool");
        let stream = context.default_stream();
        sys::cuMemAllocFromPoolAsync(&mut address, 54_321, pool, stream.cu_stream())
            .result()
            .expect("pool memory");
        assert_eq!(of_driver(1).live_bytes, 54_321, "a pool of the second device");
        compare("a pool of the second device");
        sys::cuMemFreeAsync(address, stream.cu_stream()).result().expect("pool memory");
        sys::cuMemPoolDestroy(pool).result().expect("a pool");
        compare("the end of the pool");
    }
}

/// Makes calls that fail, which change no counts.
pub fn failures() {
    let context = CudaContext::new(0).expect("a device");
    let stream = context.default_stream();
    let buffer = stream.alloc_zeros::<u8>(333).expect("a buffer");
    assert!(stream.alloc_zeros::<u8>(1 << 50).is_err(), "more than the device has");
    compare("too much");
    // SAFETY: no block begins at this address, which the mock detects.
    assert!(unsafe { result::free_sync(0x1234_5600) }.is_err());
    let mut address = 0;
    // SAFETY: the out-parameter is a local variable.
    assert!(unsafe { sys::cuMemAlloc_v2(&mut address, 0) }.result().is_err(), "a size of 0 is invalid");
    compare("failures");
    drop(buffer);
    compare("the end of failures");
}

/// Ends contexts, which frees their memory.
pub fn contexts() {
    let mut context = ptr::null_mut();
    // SAFETY: out-parameters are local variables; the context is destroyed once, which frees its memory.
    unsafe {
        sys::cuCtxCreate_v4(&mut context, ptr::null_mut(), 0, 1).result().expect("a context");
        result::malloc_sync(1_111).expect("memory");
        let mut host = ptr::null_mut();
        sys::cuMemHostAlloc(&mut host, 2_222, 0).result().expect("pinned memory");
        compare("another context");
        sys::cuCtxDestroy_v2(context).result().expect("a context");
    }
    compare("the other context's end");

    let primary = CudaContext::new(0).expect("a device");
    primary.bind_to_thread().expect("a context");
    // SAFETY: the reset frees the memory.
    unsafe {
        result::malloc_sync(3_333).expect("memory");
        compare("before the reset");
        sys::cuDevicePrimaryCtxReset_v2(0).result().expect("a reset");
    }
    compare("the reset");
}
