//! The size of each lifetime's storage.

use super::identities::{Identities, NONE};
use crate::optrace::Mode;
use memtrack_model::optrace::{OperatorTrace, RecordKind, Tensor};

/// Returns the size of each lifetime in bytes, or `None` if the trace does not contain it.
pub(super) fn lifetime_sizes(trace: &OperatorTrace, identities: &Identities, mode: Mode) -> Vec<Option<u64>> {
    let mut inferred: Vec<Option<u64>> = vec![None; identities.lifetimes.len()];
    let mut observed: Vec<Option<u64>> = vec![None; identities.lifetimes.len()];
    for (number, record) in (0..).zip(&trace.records) {
        if let RecordKind::Memory(memory) = &record.what {
            if let Some(key) = identities.key_of_memory(number) {
                // The first size wins, because PyTorch only warns if the free has a different size.
                observed[key as usize].get_or_insert(memory.bytes);
            }
            continue;
        }
        identities.for_each_key(trace, number, |tensor, _, key| {
            if key != NONE
                && let Some(bytes) = tensor_extent(trace, &trace.tensors[tensor as usize], mode)
            {
                let slot = &mut inferred[key as usize];
                *slot = Some(slot.map_or(bytes, |before| before.max(bytes)));
            }
        });
    }
    observed.into_iter().zip(inferred).map(|(observed, inferred)| observed.or(inferred)).collect()
}

/// Returns the number of bytes that a tensor spans according to PyTorch's formula, which takes the largest
/// product of a size and its stride. In tolerant mode, returns the size of the storage instead if the trace
/// contains it.
fn tensor_extent(trace: &OperatorTrace, tensor: &Tensor, mode: Mode) -> Option<u64> {
    if mode == Mode::Tolerant && tensor.storage_bytes.is_some() {
        return tensor.storage_bytes;
    }
    if trace.strings.bytes(tensor.layout) != b"strided" {
        return None;
    }
    let strides = tensor.strides.as_ref()?;
    let products =
        tensor.sizes.iter().zip(strides).map(|(&size, &stride)| i128::from(size) * i128::from(stride));
    let elements = if tensor.sizes.is_empty() { 1 } else { products.max().unwrap_or(1) };
    let bytes = elements.saturating_mul(i128::from(tensor.element_bytes));
    Some(u64::try_from(bytes.max(0)).unwrap_or(u64::MAX).min(i64::MAX as u64))
}
