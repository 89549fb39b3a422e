//! Arrays, which are identified by a handle instead of an address. The size of an array is the size of its elements,
//! because the driver does not report the additional bytes for tiling.

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
pub(in crate::hook) struct ArrayDescriptor {
    width: usize,
    height: usize,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::hook) struct ArrayDescriptor3d {
    width: usize,
    height: usize,
    depth: usize,
    format: u32,
    channels: u32,
    flags: u32,
}

/// The flag of an array whose depth is a number of layers (`CUDA_ARRAY3D_LAYERED`), which mipmaps do not halve.
const LAYERED: u32 = 0x01;
/// The flags of arrays to which memory is mapped later (`CUDA_ARRAY3D_SPARSE`, `CUDA_ARRAY3D_DEFERRED_MAPPING`).
const MAPPED_LATER: u32 = 0x40 | 0x80;

impl ArrayDescriptor3d {
    /// Returns the total bytes of the elements at a mipmap level; 0 if memory is mapped later.
    fn bytes(&self, level: u32) -> u64 {
        if self.flags & MAPPED_LATER != 0 {
            return 0;
        }
        let shrunk = |side: usize| ((side as u64) >> level.min(63)).max(1);
        let depth = if self.flags & LAYERED != 0 { (self.depth as u64).max(1) } else { shrunk(self.depth) };
        let elements = shrunk(self.width).saturating_mul(shrunk(self.height)).saturating_mul(depth);
        elements.saturating_mul(u64::from(self.channels)).saturating_mul(bytes_of_format(self.format))
    }
}

/// Returns the bytes per channel of a `CUarray_format`; 4 for a compressed or video format, which is not exact.
fn bytes_of_format(format: u32) -> u64 {
    match format {
        0x01 | 0x08 | 0xc0..=0xc5 => 1,
        0x02 | 0x09 | 0x10 | 0xc6..=0xcb => 2,
        _ => 4,
    }
}

/// Returns the bytes of a new array's elements; 0 for a null descriptor, which the driver refuses.
///
/// # Safety
/// The descriptor must be the pointer that the caller passes to the driver, which reads it too.
pub(in crate::hook) unsafe fn bytes(descriptor: *const ArrayDescriptor) -> u64 {
    // SAFETY: a null descriptor is not read.
    unsafe { descriptor.as_ref() }.map_or(0, |flat| {
        let ArrayDescriptor { width, height, format, channels } = *flat;
        ArrayDescriptor3d { width, height, depth: 0, format, channels, flags: 0 }.bytes(0)
    })
}

/// Returns the bytes of the elements of a new array with this many mipmap levels, as [`bytes`] does. An array has at most
/// 32 levels.
///
/// # Safety
/// As for [`bytes`].
pub(in crate::hook) unsafe fn bytes_of_levels(descriptor: *const ArrayDescriptor3d, levels: u32) -> u64 {
    // SAFETY: a null descriptor is not read.
    unsafe { descriptor.as_ref() }.map_or(0, |descriptor| {
        (0..levels.min(32)).fold(0_u64, |sum, level| sum.saturating_add(descriptor.bytes(level)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mipmaps_halve_all_but_layers() {
        let cube = ArrayDescriptor3d { width: 8, height: 4, depth: 2, format: 0x20, channels: 4, flags: 0 };
        assert_eq!(cube.bytes(0), 8 * 4 * 2 * 16);
        assert_eq!(cube.bytes(2), 2 * 16);
        let layers = ArrayDescriptor3d { flags: LAYERED, format: 0x10, ..cube };
        assert_eq!(layers.bytes(3), 2 * 8);
        assert_eq!(ArrayDescriptor3d { flags: 0x80, ..cube }.bytes(0), 0);
        let line = ArrayDescriptor3d { height: 0, depth: 0, ..cube };
        assert_eq!(line.bytes(0), 8 * 16);
    }
}
