//! Describes candle's tensors to memtrack. Copy this file to categorise the memory of your own program.

use std::hash::{Hash, Hasher};

use candle_core::{CpuStorage, DType, Storage, Tensor, Var};
use memtrack_core::event::DeviceId;
use memtrack_core::operators::{Dtype, ReportTensors, TensorInfo, TensorReader};

/// A local type for the trait's parameter. The trait belongs to memtrack and the tensor to candle, so the orphan rule requires
/// a type from this crate.
#[derive(Debug)]
pub enum Candle {}

impl ReportTensors<Candle> for Tensor {
    fn report(&self, to: &mut TensorReader<'_>) {
        let (storage, layout) = self.storage_and_layout();
        // This memory is on the host heap; memory of a device is described in the same way, with the device's ordinal.
        let Storage::Cpu(storage) = &*storage else { return };
        let (address, bytes) = place(storage);
        let info = TensorInfo::new(number(self.id()), DeviceId::HOST, dtype(self.dtype()), self.dims());
        to.tensor(&info.strides(layout.stride()).storage(address, bytes));
    }
}

impl ReportTensors<Candle> for Var {
    fn report(&self, to: &mut TensorReader<'_>) {
        self.as_tensor().report(to);
    }
}

/// Returns the address and the bytes of the elements.
fn place(storage: &CpuStorage) -> (u64, u64) {
    fn of<T>(elements: &[T]) -> (u64, u64) {
        (elements.as_ptr().addr() as u64, size_of_val(elements) as u64)
    }
    match storage {
        CpuStorage::U8(elements)
        | CpuStorage::F6E2M3(elements)
        | CpuStorage::F6E3M2(elements)
        | CpuStorage::F4(elements)
        | CpuStorage::F8E8M0(elements) => of(elements),
        CpuStorage::U32(elements) => of(elements),
        CpuStorage::I16(elements) => of(elements),
        CpuStorage::I32(elements) => of(elements),
        CpuStorage::I64(elements) => of(elements),
        CpuStorage::BF16(elements) => of(elements),
        CpuStorage::F16(elements) => of(elements),
        CpuStorage::F32(elements) => of(elements),
        CpuStorage::F64(elements) => of(elements),
        CpuStorage::F8E4M3(elements) => of(elements),
    }
}

fn dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::U32 => Dtype::U32,
        DType::I16 => Dtype::I16,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::BF16 => Dtype::Bf16,
        DType::F16 => Dtype::F16,
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::F8E4M3 => Dtype::F8E4M3,
        _ => Dtype::U8,
    }
}

/// Returns a tensor's number. candle numbers its tensors, but exposes the numbers only through `Hash`.
fn number(id: impl Hash) -> u64 {
    struct Number(u64);
    impl Hasher for Number {
        fn write(&mut self, bytes: &[u8]) {
            bytes.iter().for_each(|&byte| self.0 = self.0 << 8 | u64::from(byte));
        }

        fn write_usize(&mut self, number: usize) {
            self.0 = number as u64;
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }
    let mut number = Number(0);
    id.hash(&mut number);
    number.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Result};

    fn described(tensor: &Tensor) -> TensorInfo<'static> {
        let mut found = None;
        tensor.report(&mut TensorReader::new(&mut |info, _| found = Some(info.clone().into_owned())));
        found.expect("a tensor in the host's memory is described")
    }

    #[test]
    fn a_view_is_another_tensor_in_the_same_storage() -> Result<()> {
        let tensor = Tensor::zeros((2, 3), DType::F32, &Device::Cpu)?;
        let (whole, turned, row) =
            (described(&tensor), described(&tensor.t()?), described(&tensor.narrow(0, 1, 1)?));
        assert!(whole.identity != turned.identity && whole.identity != row.identity);
        assert!(whole.storage.is_some() && whole.storage == turned.storage && whole.storage == row.storage);
        assert_eq!((whole.dtype, whole.storage_bytes, &whole.sizes[..]), (Dtype::F32, Some(24), &[2, 3][..]));
        assert_eq!((whole.strides, turned.strides.as_deref()), (None, Some(&[1, 3][..])));
        assert_eq!(described(&tensor.clone()).identity, described(&tensor).identity);
        Ok(())
    }
}
