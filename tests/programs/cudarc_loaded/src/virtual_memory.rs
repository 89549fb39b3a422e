//! Physical memory mapped to reserved addresses, as in PyTorch's expandable segments.

use crate::counts::{compare, of_driver};
use cudarc::driver::{CudaContext, sys};

pub fn mapped() {
    let context = CudaContext::new(0).expect("a device");
    context.bind_to_thread().expect("a context");
    let piece = 2 << 20;
    let (mut range, mut handles) = (0, [0; 2]);
    // SAFETY: out-parameters and structures are local variables; all memory is unmapped, released and freed once.
    unsafe {
        let mut properties: sys::CUmemAllocationProp = std::mem::zeroed();
        properties.type_ = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        let access = sys::CUmemAccessDesc {
            location: properties.location,
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        sys::cuMemAddressReserve(&mut range, 8 * piece, 0, 0, 0).result().expect("addresses");
        compare("addresses alone");
        for (index, handle) in handles.iter_mut().enumerate() {
            let at = range + (index * piece) as u64;
            sys::cuMemCreate(handle, piece, &properties, 0).result().expect("physical memory");
            sys::cuMemMap(at, piece, 0, *handle, 0).result().expect("a mapping");
            sys::cuMemSetAccess(at, piece, &access, 1).result().expect("access");
            compare("a mapping");
        }
        assert_eq!(of_driver(0).live_bytes, 2 * piece as i64);
        sys::cuMemsetD8_v2(range, 7, 2 * piece).result().expect("memory");
        sys::cuMemRelease(handles[0]).result().expect("a handle");
        compare("a released handle whose memory is mapped");
        sys::cuMemUnmap(range, piece).result().expect("a mapping");
        compare("the first unmapped");
        sys::cuMemRelease(handles[1]).result().expect("a handle");
        sys::cuMemUnmap(range + piece as u64, piece).result().expect("a mapping");
        sys::cuMemAddressFree(range, 8 * piece).result().expect("addresses");
    }
    compare("the end of mappings");
}
