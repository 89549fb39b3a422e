//! Allocated bytes by category over time.

use crate::analysis::Profile;
use crate::category::Category;
use crate::export::category_deltas;
use memtrack_model::optrace::DeviceIndex;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

/// The bytes of each category, in the order of [`Category::ALL`].
pub type Bytes = [i64; Category::ALL.len()];
/// The form of [`Bytes`] in JSON, keyed by the categories' names. Empty categories are left out.
pub(crate) type BytesAnswer = BTreeMap<&'static str, i64>;

/// Serializes bytes as a [`BytesAnswer`].
pub(crate) fn serialize_bytes<S: Serializer>(bytes: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    let categories = Category::ALL.iter().zip(bytes).filter(|(_, bytes)| **bytes != 0);
    let answer: BytesAnswer = categories.map(|(category, &bytes)| (category.name(), bytes)).collect();
    answer.serialize(to)
}

/// The bytes allocated at a given moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time in ns, or −1 for memory that existed before the trace.
    pub time_ns: i64,
    /// The bytes by category.
    pub bytes: Bytes,
}

impl Moment {
    /// Returns the sum over all categories.
    pub fn total(&self) -> i64 {
        self.bytes.iter().fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }
}

/// Calls `visit` once for each distinct time in chronological order, passing the bytes that are allocated on
/// a device after all changes at that time.
pub fn walk(profile: &Profile<'_>, device: DeviceIndex, mut visit: impl FnMut(&Moment)) {
    let mut moment: Option<Moment> = None;
    for change in profile.changes_on(device) {
        let now = moment.get_or_insert(Moment { time_ns: change.time_ns, ..Moment::default() });
        if now.time_ns != change.time_ns {
            visit(now);
            now.time_ns = change.time_ns;
        }
        for (category, bytes) in category_deltas(profile, change) {
            let slot = &mut now.bytes[category as usize];
            *slot = slot.saturating_add(bytes);
        }
    }
    moment.iter().for_each(&mut visit);
}

/// Returns the first moment at which the most bytes are allocated, or `None` if nothing was ever allocated.
pub fn peak(profile: &Profile<'_>, device: DeviceIndex) -> Option<Moment> {
    let mut peak: Option<Moment> = None;
    walk(profile, device, |moment| {
        if peak.is_none_or(|peak| moment.total() > peak.total()) {
            peak = Some(*moment);
        }
    });
    peak
}

/// Returns the times of a device's first and last change, ignoring preexisting memory. Returns `None` if all
/// memory is preexisting.
pub fn span_ns(profile: &Profile<'_>, device: DeviceIndex) -> Option<(i64, i64)> {
    let times = || profile.changes().iter().filter(|change| change.device == device && change.time_ns != -1);
    Some((times().next()?.time_ns, times().next_back()?.time_ns))
}
